"""Hangs that have ended: how long, at which step, who made no progress, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.troubles import HANG
from otel_rl.look.reader.result import lines_of
from otel_rl.recorder.archive.json_texts import decoded
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.facts import Summary
    from otel_rl.look.insight.recorded import RecordedRun

_NS = 1_000_000_000
_MOST, _MOST_NAMED = 3, 3
_COSTLY = 0.01
"""The part of the time of a run from which on a hang of the whole job is a warning."""
_REASONS = {"dead": "was dead", "ended": "had ended", "circle": "waited for each other in a circle"}


class _HungProcess(NamedTuple):
    """A process that made no progress for some time; the columns of `hangs`."""

    attempt: int
    role: str
    rank: int
    host: str
    step: int | None
    phase: str
    started_unix_nano: int
    ended_unix_nano: int
    scope: str
    cause: str
    culprits: tuple[str, ...]
    ending: str


class _HangEpisode(NamedTuple):
    """Processes that hung at one time, the first one first."""

    processes: list[_HungProcess]

    @property
    def began(self) -> int:
        return self.processes[0].started_unix_nano

    @property
    def ended(self) -> int:
        return max(process.ended_unix_nano for process in self.processes)

    @property
    def is_of_job(self) -> bool:
        return any(process.scope == "job" for process in self.processes)


def hangs(recorded: RecordedRun, summary: Summary) -> list[Finding]:
    """Return the longest hangs that have ended; the one that lasts is what the state of the run says."""
    episodes = sorted(_episodes(_read(recorded)), key=lambda episode: episode.began - episode.ended)
    findings = [_finding(recorded, summary, episode) for episode in episodes[:_MOST]]
    if rest := episodes[_MOST:]:
        took = wording.seconds(sum(episode.ended - episode.began for episode in rest) / _NS)
        text = f"{wording.count(len(rest), 'shorter hang')} took {took} in all."
        findings.append(Finding(kind="hang", severity="note", sentence=text, evidence=Evidence(panel="timeline")))
    return findings


def _read(recorded: RecordedRun) -> list[_HungProcess]:
    """Return the processes that hung and no longer do; of silent machines it is not known."""
    hangs = recorded.every.sql(f"""
        SELECT {", ".join(_HungProcess._fields)}
        FROM (SELECT * REPLACE (coalesce(role, '') AS role, coalesce(culprits, '[]') AS culprits) FROM hangs)
        WHERE ended_unix_nano IS NOT NULL AND kind = 'hung' ORDER BY started_unix_nano, role, rank""")
    processes = [_HungProcess(*line) for line in lines_of(hangs)]
    return [process._replace(culprits=tuple(decoded(str(process.culprits)) or ())) for process in processes]


def _episodes(processes: Sequence[_HungProcess]) -> list[_HangEpisode]:
    """Return processes whose hangs overlap as one hang."""
    episodes: list[_HangEpisode] = []
    for process in processes:
        if episodes and process.started_unix_nano <= episodes[-1].ended:
            episodes[-1].processes.append(process)
        else:
            episodes.append(_HangEpisode([process]))
    return episodes


def _finding(recorded: RecordedRun, summary: Summary, episode: _HangEpisode) -> Finding:
    first = episode.processes[0]
    stuck = [process for process in episode.processes if (process.role, process.phase) == (first.role, first.phase)]
    names = dict.fromkeys(recorded.rank_text(process.rank, process.role, process.host) for process in stuck)
    who = wording.names([*names], _MOST_NAMED)
    verb = "was" if len(names) == 1 else "were"
    where = f"in {first.phase}" if first.phase else "outside of any phase"
    seconds = (episode.ended - episode.began) / _NS
    step = f" at step {wording.integer(first.step)}" if first.step is not None else ""
    times = f"{wording.clock(episode.began)} to {wording.clock(episode.ended)}"
    blamed = next((process for process in episode.processes if process.culprits and process.cause), None)
    reason = f"; {wording.names(blamed.culprits)} {_REASONS[blamed.cause]}" if blamed is not None else ""
    end = "" if any(process.ending == "resumed" for process in episode.processes) else ", until it ended"
    subject = "Hung" if episode.is_of_job else f"{wording.capitalized(who)} hung"
    place = f"{who} {verb} {where}" if episode.is_of_job else where
    is_costly = episode.is_of_job and seconds >= _COSTLY * summary.duration_s
    return Finding(
        kind="hang",
        severity="warning" if is_costly else "note",
        sentence=f"{subject} for {wording.seconds(seconds)}{step} ({times}{end}): {place}{reason}.",
        advice="If it comes again, run `otel-rl why` while it lasts: it says who waits for whom.",
        evidence=Evidence(
            steps=None if first.step is None else (first.step, first.step),
            ranks=tuple(dict.fromkeys(process.rank for process in stuck)),
            role=first.role,
            phases=(first.phase,) if first.phase else (),
            panel="timeline",
        ),
        since_unix_nano=episode.began,
        subject=f"{HANG}:{episode.began}",
    )
