"""Limits of what the reducer holds: every batch of the outbox has all of it, and an agent has little memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.errors.sinks import log_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.export import Span
    from otel_rl.recorder.agent.steps.contribution import Contribution
    from otel_rl.recorder.agent.steps.state import Journal, State
    from otel_rl.recorder.journal.records import SpanStarted

logger = log_of(__name__)
MOST_OPEN = 10_000
"""Open spans of one process: a rollout server has some thousand trajectories at once."""
_MOST_OPEN_IN_ALL = 50_000
"""Open spans of all processes; they take about 10 MiB of a checkpoint."""
_MOST_WAITING_OF_ONE = 1 << 20
"""Bytes of spans of one process that wait for their step to close: about 4,000."""
_MOST_WAITING = 24 << 20
"""Bytes of spans of all processes that wait for their step to close: ten phases of 4,096 ranks take 10 MiB."""


class Bounds:
    """Decides which spans may be open, and which may wait for their step to close.

    Attributes:
        refused: How many spans are not recorded, because too many were open.
    """

    def __init__(self, state: State) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self.refused = 0
        self._named: set[str] = set()
        self._open = sum(len(journal.spans) for journal in state.journals.values())
        steps = [step for of_attempt in state.steps.values() for step in of_attempt.values()]
        self._waiting = sum(one.waiting for step in steps for one in step.values())

    def opens(self, name: str, journal: Journal, record: SpanStarted) -> bool:
        """Count a span that begins; return false if too many are open."""
        if len(journal.spans) < MOST_OPEN and self._open < _MOST_OPEN_IN_ALL:
            self._open += record.span_id not in journal.spans
            return True
        self.refused += 1
        if name not in self._named:
            self._named.add(name)
            what = (journal.label, len(journal.spans), record.name)
            logger.warning(
                "%s: %d phases and spans are open; %s and others are not recorded until some end: use `with`", *what
            )
        return False

    def closed(self, spans: int = 1) -> None:
        """Count spans that have ended."""
        self._open -= spans

    def waits(self, step: Contribution, span: Span) -> bool:
        """Count a span that has ended; return false if it must not wait for its step."""
        size = len(self._encode(span))
        if step.waiting + size > _MOST_WAITING_OF_ONE or self._waiting + size > _MOST_WAITING:
            return False
        step.waiting += size
        self._waiting += size
        return True

    def release(self, contributions: Iterable[Contribution]) -> None:
        """Count the spans of a step that closes as not waiting any more."""
        self._waiting -= sum(one.waiting for one in contributions)
