"""The last lines of the processes of a run that hangs, and how often they came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.reader.result import lines_of
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.recorder.facts.standing import Standing

PRINTED = "printed"
"""The subject of what processes printed."""
_MOST, _MOST_NAMED, _LONGEST = 3, 3, 120


def last_lines(recorded: RecordedRun, standing: Standing) -> list[Finding]:
    """Return the last line of each process of a run that hangs; equal ones are together, the rarest one first."""
    if standing.state != "hung":
        return []
    groups: dict[str, list[tuple[str, int, int]]] = {}
    for role, rank, host, at, repeated, text in _read(recorded):
        groups.setdefault(text, []).append((recorded.rank_text(rank, role, host), at, repeated))
    shown = sorted(groups.items(), key=lambda group: (len(group[1]), -max(at for _, at, _ in group[1])))[:_MOST]
    if not shown:
        return []
    said = "; ".join(_said(recorded, text, by) for text, by in shown)
    return [
        Finding(
            kind="wait",
            severity="note",
            sentence=f"Printed last: {said}",
            evidence=Evidence(ranks=standing.ranks, role=standing.role, panel="timeline"),
            subject=PRINTED,
        )
    ]


def _read(recorded: RecordedRun) -> list[tuple[str, int, str, int, int, str]]:
    return lines_of(
        recorded.every.sql(f"""
        SELECT coalesce(role, ''), rank, host, max(time_unix_nano), max_by(repeated, number), max_by(text, number)
        FROM logs WHERE left_out = 0 AND rank IS NOT NULL AND attempt = {recorded.last_attempt}
        GROUP BY ALL ORDER BY 1, 2""")
    )


def _said(recorded: RecordedRun, text: str, by: list[tuple[str, int, int]]) -> str:
    names, times, counts = zip(*by, strict=True)
    line = text.strip().split("\n")[-1]
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
    times_each = f", {wording.integer(max(counts))} times" if max(counts) > 1 else ""
    ago = wording.age(max(times), recorded.at_unix_nano)
    return f"{wording.names(names, _MOST_NAMED)}, {ago} ago{times_each}: {line}"
