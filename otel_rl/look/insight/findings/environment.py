"""Differences from the last run of the project: packages, the commit, machines, hyperparameters."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from otel_rl.look.insight.changed import between, machines, software
from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.look.reader.runs import open_run
from otel_rl.recorder.archive.json_texts import decoded
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST = 4
_MOST_LOOKED_AT = 2000


def environment(recorded: RecordedRun) -> list[Finding]:
    """Return the differences from the run before of the same project; of a resumed run, from the attempt before."""
    changes = [*_resumed(recorded)]
    before = _before(recorded.place.path)
    if before is None:
        return changes
    with contextlib.suppress(OSError, ValueError):
        earlier = open_run(before)
        starts = earlier.sql("SELECT min(started_unix_nano) AS at_first FROM attempts")["at_first"].tolist()
        began = min((member.started_unix_nano for member in recorded.members), default=0)
        if earlier.place.project != recorded.place.project or starts[0] is None or starts[0] > began:
            return changes  # another project, or a copy: its files are older than its run
        if differences := between(RecordedRun(earlier), recorded):
            name = earlier.place.name if earlier.place.name != recorded.place.name else before.name
            changes.append(_finding(f"Since the last run of this project ({name}): {_listed(differences)}."))
    return changes


def _resumed(recorded: RecordedRun) -> Iterator[Finding]:
    table = recorded.run.sql("SELECT attempt, environment FROM environment ORDER BY attempt, time_unix_nano")
    if len(set(table["attempt"].tolist())) < 2:
        return
    of_attempt: dict[int, dict[str, Any]] = {}
    for attempt, text in zip(table["attempt"].tolist(), table["environment"].tolist(), strict=True):
        of_attempt.setdefault(attempt, {}).update(decoded(text) or {})
    before, last = sorted(of_attempt)[-2:]
    differences = [
        *software(of_attempt[before], of_attempt[last]),
        *machines(recorded.hosts_of(before), recorded.hosts_of(last)),
    ]
    if differences:
        yield _finding(f"Since the resume: {_listed(differences)}.")


def _before(run: Path) -> Path | None:
    """Return the run of the same project that began last before this one, by the times of their manifests."""
    try:
        began = (run / "run.json").stat().st_mtime_ns
        others = [
            (manifest.stat().st_mtime_ns, manifest.parent)
            for manifest, _ in zip(run.resolve().parent.glob("*/run.json"), range(_MOST_LOOKED_AT), strict=False)
            if manifest.parent.name != run.resolve().name and not manifest.parent.is_symlink()
        ]
    except OSError:
        return None
    earlier = [other for other in others if other[0] < began and (other[1] / "archive").is_dir()]
    return max(earlier)[1] if earlier else None


def _listed(differences: list[str]) -> str:
    if len(differences) <= _MOST:
        return ", ".join(differences)
    return f"{', '.join(differences[:_MOST])} and {wording.count(len(differences) - _MOST, 'other difference')}"


def _finding(sentence: str) -> Finding:
    return Finding(kind="environment", severity="note", sentence=sentence, evidence=Evidence(panel="environment"))
