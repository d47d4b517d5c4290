"""The span of a phase or a step that is not recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry import trace

if TYPE_CHECKING:
    from typing import Self


class NoSpan(trace.NonRecordingSpan):
    """A span that records nothing, so that callers need no case distinction."""

    def __init__(self) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)

    def __enter__(self) -> Self:
        return self

    def part(self, name: str = "", /, **attributes: object) -> NoSpan:
        """Return this span."""
        return self

    onload = execute = offload = part


NO_SPAN = NoSpan()
