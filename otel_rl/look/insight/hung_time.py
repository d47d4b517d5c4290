"""The time in which a run hung, from the hangs of its archive and what its agents saw last."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from otel_rl.look.reader.result import lines_of
from otel_rl.recorder.archive.reports import report_of
from otel_rl.recorder.facts import standing
from otel_rl.recorder.facts.goodput import Interval, everywhere, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.look.reader.runs import RunReader
    from otel_rl.recorder.archive.now import Now

_Hang = tuple[int, str, int, int]
"""The attempt and the machine of a hang, when it began, and when it ended."""


def hung_intervals(run: RunReader, every: RunReader, nows: Sequence[Now], at: int) -> list[Interval]:
    """Return the intervals in which no rank made progress, in Unix nanoseconds.

    Args:
        run: The run.
        every: The same run with all its attempts.
        nows: What its agents wrote last, which have seen what lasts.
        at: The time in Unix nanoseconds.
    """
    lives = any(standing.lives(report_of(now), at) for now in nows)
    seen = at if lives else max((now.time_unix_nano for now in nows), default=0)
    # A hang has a line for each time that more of it was known, and the lines of all attempts are read.
    query = f"""SELECT attempt, machine, started_unix_nano AS began,
        coalesce(max(ended_unix_nano), greatest(max(time_unix_nano), {seen})) AS ended
        FROM hangs WHERE scope = 'job' AND kind = 'hung' AND coalesce(role, '') = ''
        GROUP BY attempt, machine, rank, host, pid, phase, part, started_unix_nano"""
    hangs = lines_of(every.sql(query))
    ranks = lines_of(
        run.sql("""SELECT attempt, machine, host, max(coalesce(ended_unix_nano, 1::BIGINT << 62))
        FROM attempts WHERE coalesce(role, '') = '' GROUP BY ALL""")
    )
    if lives and all(ended < seen for *_, ended in hangs):  # the archive is up to 10 s behind `now.json`
        follows = {(attempt, host): machine for attempt, machine, host, _ in ranks}
        hangs += [
            (attempt, follows.get((attempt, stall.host), stall.host), stall.since_unix_nano, seen)
            for attempt, stall in ((now.progress.attempt, stall) for now in nows for stall in now.stalled)
            if (stall.scope, stall.kind, stall.role) == ("job", "hung", "")
        ]
    return joined(hang for attempt in {hang[0] for hang in hangs} for hang in _hung_in(attempt, hangs, ranks))


def _hung_in(attempt: int, hangs: Iterable[_Hang], ranks: Iterable[tuple[int, str, str, int]]) -> list[Interval]:
    """Return the hangs of an attempt on all machines whose ranks have not ended before."""
    by_machine: defaultdict[str, list[Interval]] = defaultdict(list)
    for of, machine, began, ended in hangs:
        if of == attempt:
            by_machine[machine].append((began, ended))
    last = max(began for intervals in by_machine.values() for began, _ in intervals)
    machines = {machine for of, machine, _, ended in ranks if of == attempt and ended > last}
    return everywhere(by_machine[machine] for machine in machines | by_machine.keys())
