"""Opens what needs a port or a file of the machine; where the machine refuses, the agent goes on without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.errors.sinks import log_of

if TYPE_CHECKING:
    from collections.abc import Callable

Made = TypeVar("Made")
logger = log_of(__name__)


class Openings:
    """Opens listeners and files; if it is `strict`, a refusal of the machine ends the agent.

    Attributes:
        warnings: What the machine refused, and what the agent does instead.
    """

    def __init__(self, *, strict: bool) -> None:
        self._is_strict = strict
        self.warnings: list[str] = []

    def attempt(self, make: Callable[[], Made]) -> Made | None:
        """Return what `make` makes; where the machine refuses, warn and return `None`.

        Raises:
            OSError: The machine refuses, and the run is strict.
            SettingsError: An option is invalid.
        """
        try:
            return make()
        except OSError as error:
            if self._is_strict:
                raise
            if (warning := str(error)) not in self.warnings:
                logger.warning("%s", warning)
                self.warnings.append(warning)
            return None
        except (ValueError, TypeError) as error:
            raise SettingsError(str(error)) from error
