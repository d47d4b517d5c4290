"""The recording itself: exporters that are behind, values that were lost, damaged files, ranks that are missing."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.troubles import of_process
from otel_rl.look.reader.result import lines_of
from otel_rl.recorder.archive.json_texts import decoded
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.recorder.archive.now import ExporterNow
    from otel_rl.recorder.facts.order import Severity

_BEHIND = 10
"""Items below which an exporter is not behind; some are always on their way."""
_LONGEST_ERROR = 100
_REFUSED = "refused"
_HARMLESS = ("not_sampled", "unfinished")
_MOST = 3
_PANEL = Evidence(panel="recording")


def recording(recorded: RecordedRun) -> list[Finding]:
    """Return what is wrong with the recording; nothing if nothing is."""
    return [*_exporters(recorded), *_lost(recorded), *_damaged(recorded), *_missing(recorded), *_thinned(recorded)]


def _exporters(recorded: RecordedRun) -> list[Finding]:
    late: dict[str, ExporterNow] = {}
    for now in reversed(recorded.now):
        late |= {
            exporter.name: exporter
            for exporter in now.exporters
            if exporter.waiting >= _BEHIND and (exporter.failures or exporter.last_error)
        }
    place = shlex.quote(str(recorded.place.path))
    return [
        _finding(
            f"{name} is {wording.count(exporter.waiting, 'item')} behind{_error(exporter)}.",
            f"Nothing is lost: it is retried. After the run, `otel-rl agent {place} --once` delivers the rest.",
            "warning",
        )
        for name, exporter in list(late.items())[:_MOST]
    ]


def _error(exporter: ExporterNow) -> str:
    text = " ".join(exporter.last_error.split())
    text = text if len(text) <= _LONGEST_ERROR else f"{text[: _LONGEST_ERROR - 1]}…"
    failures = wording.count(exporter.failures, "failure")
    return f" ({failures}: {text})" if text else f" ({failures})"


def _lost(recorded: RecordedRun) -> list[Finding]:
    counts: dict[str, int] = {}
    for now in recorded.now:
        for reason, count in now.lost.items():
            counts[reason] = counts.get(reason, 0) + count
    lost = {reason: count for reason, count in counts.items() if count and reason not in _HARMLESS}
    if not lost:
        return []
    refused = {reason: count for reason, count in lost.items() if _REFUSED in reason}
    others = {reason: count for reason, count in lost.items() if reason not in refused}
    findings = []
    if refused:
        total = sum(refused.values())
        text = f"{wording.count(total, 'value was', 'values were')} refused ({_reasons(refused)})."
        findings.append(_finding(text, "The trainer's log names the first of each kind.", "note"))
    if others:
        total = sum(others.values())
        text = f"{wording.count(total, 'item was', 'items were')} lost ({_reasons(others)})."
        findings.append(_finding(text, "`agent.log` in the run directory says why.", "warning"))
    return findings


def _reasons(counts: dict[str, int]) -> str:
    largest = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return wording.names([f"{reason.replace('_', ' ')} {wording.integer(count)}" for reason, count in largest], _MOST)


def _damaged(recorded: RecordedRun) -> list[Finding]:
    damaged, holes = recorded.damaged, recorded.run.holes
    if not damaged and not holes:
        return []
    parts = []
    if damaged:
        named = wording.names([f"{path.parent.name}/{path.name}" for path in damaged], 1)
        parts.append(f"{wording.count(len(damaged), 'file')} of the archive cannot be read ({named})")
    if holes:
        by_table: dict[str, int] = {}
        for hole in holes:
            by_table[hole.table] = by_table.get(hole.table, 0) + hole.end - hole.first
        missing = wording.names([f"{wording.count(count, 'item')} of {table}" for table, count in by_table.items()])
        parts.append(f"the archive lacks {missing}")
    text = "; ".join(parts)
    advice = "Restore the files from a copy: what is said here is without them."
    return [_finding(f"{wording.capitalized(text)}.", advice, "warning")]


def _missing(recorded: RecordedRun) -> list[Finding]:
    """Return ranks whose values are missing in rows, which counts a rank that died in its last step too."""
    query = (
        "SELECT missing_ranks, count(DISTINCT step) AS n, min(step) AS a, max(step) AS b FROM steps"
        " WHERE missing_ranks IS NOT NULL AND missing_ranks <> '[]' AND NOT late GROUP BY 1 ORDER BY n DESC LIMIT 1000"
    )
    rows = recorded.run.sql(query)
    of_rank: dict[int, tuple[int, int, int]] = {}
    for text, count, first, last in lines_of(rows):
        for rank in decoded(text) or ():
            known = of_rank.get(rank, (0, first, last))
            of_rank[rank] = known[0] + count, min(known[1], first), max(known[2], last)
    if not of_rank or recorded.steps is None:
        return []
    worst = max(count for count, _, _ in of_rank.values())
    if worst < 2:
        return []
    ranks = sorted(rank for rank, (count, _, _) in of_rank.items() if count == worst)
    _, first, last = of_rank[ranks[0]]
    who = wording.names([recorded.rank_text(rank) for rank in ranks])
    steps = wording.count(worst, "step")
    if last == recorded.steps.last and worst == last - first + 1:
        text = f"{who} sent nothing after step {wording.integer(first - 1)}"
    else:
        text = f"{who} sent nothing in {steps} from {wording.integer(first)} to {wording.integer(last)}"
    evidence = Evidence(steps=(first, last), ranks=tuple(ranks), panel="recording")
    advice = "The values of these steps are those of the other ranks."
    finding = _finding(f"{wording.capitalized(text)}.", advice, "warning", evidence)
    return [replace(finding, subject=of_process("", ranks[0])) if last == recorded.steps.last else finding]


def _thinned(recorded: RecordedRun) -> list[Finding]:
    left, were = recorded.thinned
    if left >= were:
        return []
    text = f"The archive has {wording.integer(left)} of {wording.integer(were)} spans: old steps were thinned."
    return [
        _finding(text, "Times of phases are of the steps that are whole; raise `archive_limit` to keep more.", "note")
    ]


def _finding(sentence: str, advice: str, severity: Severity, evidence: Evidence = _PANEL) -> Finding:
    return Finding(kind="recording", severity=severity, sentence=sentence, advice=advice, evidence=evidence)
