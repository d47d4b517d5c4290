"""The trajectories that each process has made: how many ended, whether the last ones failed, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from otel_rl.analyses.waits.members import group_in
from otel_rl.recorder.agent.steps.state import is_rollout
from otel_rl.recorder.archive.now import MadeNow
from otel_rl.recorder.errors.sinks import one_line
from otel_rl.recorder.secrets import redacted_start

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from otel_rl.analysis import SpanLeft
    from otel_rl.recorder.agent.steps.state import Journal
    from otel_rl.recorder.journal.records import SpanEnded, SpanStarted

_MOST = 256
"""Processes in `now.json`, those that made one last."""
_LONGEST = 200
"""Characters of an error."""


class MadeTrajectories:
    """Counts the trajectories of each process as they end.

    Attributes:
        by_journal: The counts by the names of journals.
    """

    def __init__(self) -> None:
        self.by_journal: dict[str, MadeNow] = {}

    def leave(self, name: str, journal: Journal, moment: SpanLeft) -> None:
        """Take the end of a span, if it is a trajectory."""
        begun, ended = cast("SpanStarted", moment.begun), cast("SpanEnded", moment.ended)
        if not is_rollout(begun):
            return
        started = journal.started
        made = self.by_journal.get(name) or MadeNow(role=started.role, rank=started.rank, ended=0)
        row = 0 if ended.error is None else made.failed + 1
        made = replace(made, ended=made.ended + 1, failed=row, last=group_in(begun), last_unix_nano=ended.time)
        if ended.error is not None:
            error = redacted_start(one_line(": ".join(filter(None, ended.error))), _LONGEST)
            made = replace(made, failure=made.last, failure_unix_nano=ended.time, error=error)
        self.by_journal[name] = made

    def now(self, journals: Mapping[str, Journal], attempt: int) -> Iterator[MadeNow]:
        """Yield what the processes of an attempt have made, with the number of trajectories that are open."""
        for name in sorted(self.by_journal, key=lambda name: -self.by_journal[name].last_unix_nano)[:_MOST]:
            if (journal := journals.get(name)) is None or journal.started.attempt != attempt:
                continue
            is_open = sum(map(is_rollout, journal.spans.values())) if not journal.over else 0
            yield replace(self.by_journal[name], open=is_open)
