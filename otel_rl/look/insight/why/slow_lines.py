"""Lines that were printed in slow steps, and hardly in others."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING

from otel_rl.look.reader.result import lines_of
from otel_rl.look.reader.valid import literal
from otel_rl.recorder.facts.processes import process_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.why.slow_steps import StepWall
    from otel_rl.look.reader.runs import RunReader

_NUMBERS = r"0x[0-9a-fA-F]+|\d+(?:[.,:]\d+)*"
"""Parts in which lines of one kind differ."""
_SHAPE = f"regexp_replace(text, {literal(_NUMBERS)}, '#', 'g')"
_LEAST_SHARE = 0.5
"""The part of the slow steps in which a line is at least."""
_FALSE = 0.01
"""The chance at most that any line of a run would be so by chance, if none had to do with slow steps."""
_MOST, _LONGEST = 2, 120


def slow_lines(run: RunReader, known: Sequence[StepWall], slow: Sequence[StepWall]) -> list[str]:
    """Return sentences about the lines that belong to slow steps, the surest first.

    Lines that differ in numbers alone are one. The test is Fisher's exact one, times the number of different lines.
    """
    if not slow or len(slow) == len(known):
        return []
    numbers = ", ".join(str(wall.step) for wall in slow)
    said = lines_of(
        run.sql(f"""
        WITH said AS (
            SELECT step, {_SHAPE} AS shape, min_by({{'text': text, 'role': role, 'rank': rank}}, time_unix_nano) AS line
            FROM logs
            WHERE left_out = 0 AND step BETWEEN {known[0].step} AND {known[-1].step} GROUP BY ALL),
        counted AS (
            SELECT count(*) FILTER (WHERE step IN ({numbers})) AS in_slow, count(*) AS in_all,
                min_by(line, step) FILTER (WHERE step IN ({numbers})) AS line FROM said GROUP BY shape)
        SELECT in_slow, in_all, line.text, line.role, line.rank, (SELECT count(*) FROM counted)
        FROM counted WHERE in_slow >= {_LEAST_SHARE * len(slow)} ORDER BY in_all - in_slow, in_slow DESC LIMIT 50""")
    )
    telling = []
    for in_slow, in_all, text, role, rank, different in said:
        chance = different * _chance(in_slow, in_all, len(slow), len(known))
        if chance <= _FALSE:
            who = "" if rank is None else f"{process_name(role, rank)} "
            telling.append((chance, _sentence(in_slow, in_all, len(slow), len(known), f"{who}printed", text)))
    return [sentence for _, sentence in sorted(telling)[:_MOST]]


def _chance(in_slow: int, in_all: int, slow: int, known: int) -> float:
    """Return the chance that so many of the steps with a line are slow, if slow steps were drawn by lot."""
    ways = sum(comb(in_all, both) * comb(known - in_all, slow - both) for both in range(in_slow, min(slow, in_all) + 1))
    return ways / comb(known, slow)


def _sentence(in_slow: int, in_all: int, slow: int, known: int, printed: str, text: str) -> str:
    line = text.strip().split("\n")[0]
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
    where = "the slow step" if slow == 1 else f"{in_slow:,} of {slow:,} slow steps"
    others = "no other one" if in_all == in_slow else f"{in_all - in_slow:,} of {known - slow:,} others"
    return f"In {where}, and in {others}, {printed}: {line}"
