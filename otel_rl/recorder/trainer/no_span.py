"""The span of a phase or a step that is not recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import trace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from otel_rl.recorder.trainer.step import Steps


class NoSpan(trace.NonRecordingSpan):
    """A span that records nothing but logged values, so that callers need no case distinction."""

    def __init__(self, steps: Steps | None = None) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self._steps = steps

    def __enter__(self) -> Self:
        return self

    def log(self, values: Mapping[str, object], *, weight: float = 1) -> None:
        """Record the values of metrics as `Run.log` does."""
        if self._steps is not None:
            self._steps.log(values, None, weight)

    def part(self, name: str = "", /, **attributes: object) -> NoSpan:
        """Return this span."""
        return self

    onload = execute = offload = part


NO_SPAN = NoSpan()
