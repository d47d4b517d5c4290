"""otel-rl: the flight recorder for RL post-training.

A trainer marks its steps and phases and logs its values; every fact is in a local journal before the
call returns. One agent process on each machine turns the journals into OpenTelemetry metrics, spans
and events, and into exact rows for trackers.

Its rooms, from top to bottom; a room imports those below it: `cli`, `demo`, `integrations`, `agent`, `otlp`
and `archive`, `trainer`, `delivery`, `devices`, `setup`, `journal`, `convert`, `semconv`, `stats`, `export`, `errors`.
"""

from typing import TYPE_CHECKING

from otel_rl.errors import SettingsError
from otel_rl.trainer.current import current, traced
from otel_rl.trainer.propagation import attach, carrier
from otel_rl.trainer.run import Run
from otel_rl.trainer.start import init

__all__ = ["Run", "SettingsError", "attach", "carrier", "current", "init", "traced"]

if TYPE_CHECKING:  # mypy would take any name of a module with `__getattr__` for one that exists
    __version__: str
else:

    def __getattr__(name: str) -> str:
        """Return the version of the installed distribution, when somebody asks: looking for it takes milliseconds."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import version

        return version("otel-rl")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
