"""The last error that the first process of a death printed, and not those of the processes that lost it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.known_messages import known, names_an_error
from otel_rl.look.reader.result import lines_of
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.processes import process_name

if TYPE_CHECKING:
    from otel_rl.look.insight.known_messages import KnownMessage
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.recorder.facts.standing import Standing

_ENDED_BADLY = ("failed", "crashed", "lost")
_KNOWN_CAUSES = ("oom_kill", "slurm_time_limit", "slurm", "stopped")
"""Ends whose cause the kernel or the batch system says: printed lines are not the reason."""
_LAST = 60
"""Lines before the end of a process that can say why it ended; what it printed earlier it has survived."""
_LONGEST = 200
_SAID = 60
"""Characters of a line that are compared with the reason of the state, which is shortened."""


class _Words(NamedTuple):
    """The line with which a process ended, as far as there is one."""

    ended_unix_nano: int
    follows: bool
    role: str
    rank: int
    line: str
    means: KnownMessage | None


def last_words(recorded: RecordedRun, standing: Standing) -> list[Finding]:
    """Return the last error that was printed by the process that ended first, unless the state says it already."""
    if standing.state not in _ENDED_BADLY:
        return []
    words = [_words_of(*process) for process in _ended_badly(recorded)]
    telling = sorted((one for one in words if one is not None), key=lambda one: (one.follows, one.ended_unix_nano))
    if not telling:
        return []
    first = telling[0]
    is_said = first.line[:_SAID] in standing.reason
    if is_said and (first.means is None or "memory" in standing.reason):
        return []
    shown = wording.capitalized(process_name(first.role, first.rank))
    line = first.line if len(first.line) <= _LONGEST else f"{first.line[: _LONGEST - 1]}…"
    means = "" if first.means is None else first.means.means
    sentence = f"{shown} printed before its end: {line}{f' ({means})' if means else ''}"
    return [
        Finding(
            kind="outcome",
            severity="bad",
            sentence=f"{wording.capitalized(means)}." if is_said else sentence,
            advice="" if first.means is None else first.means.advice,
            sure="likely",
            evidence=Evidence(ranks=(first.rank,), role=first.role, panel="timeline"),
            since_unix_nano=first.ended_unix_nano,
            subject="last words",
        )
    ]


def _ended_badly(recorded: RecordedRun) -> list[tuple[str, int, int, list[str]]]:
    """Return the processes of the last attempt that ended badly: role, rank, end, and their last lines."""
    causes = ", ".join(f"'{cause}'" for cause in _KNOWN_CAUSES)
    lines = recorded.every.sql(f"""
        WITH down AS (
            SELECT attempt, role, rank, coalesce(ended_unix_nano, 0) AS ended FROM attempts
            WHERE attempt = (SELECT max(attempt) FROM attempts) AND outcome NOT IN ('finished', 'cancelled')
                AND coalesce(cause, '') NOT IN ({causes})),
        said AS (
            SELECT attempt, role, rank, text, attributes, number,
                row_number() OVER (PARTITION BY role, rank ORDER BY number DESC) AS behind
            FROM logs WHERE left_out = 0)
        SELECT role, rank, ended, list(text ORDER BY number)
        FROM down JOIN said USING (attempt, role, rank) WHERE behind <= {_LAST} GROUP BY role, rank, ended""")
    return [(role, rank, ended, [*texts]) for role, rank, ended, texts in lines_of(lines)]


def _words_of(role: str, rank: int, ended: int, texts: list[str]) -> _Words | None:
    """Return the last line that says why a process ended: of an error of its own before that of a lost peer."""
    said = [(line, known(line)) for text in texts for line in text.split("\n")]
    errors = [(line.strip(), means) for line, means in said if means is not None or names_an_error(line)]
    own = [(line, means) for line, means in errors if means is None or not means.follows]
    if not errors:
        return None
    line, means = (own or errors)[-1]
    return _Words(ended, not own, role, rank, line, means)
