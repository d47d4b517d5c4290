"""Differences from the last run of the project: packages, the commit, machines, hyperparameters."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from otel_rl.archive.reader import open_run
from otel_rl.insight import wording
from otel_rl.insight.facts import Evidence, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from otel_rl.insight.recorded import Recorded

_MOST = 4
_MOST_LOOKED_AT = 2000
_SHORT = 7
_IGNORED = ("command", "launcher", "source.commit", "source.dirty")
_PACKAGE = "package."
_LONGEST = 40


def environment(recorded: Recorded) -> list[Finding]:
    """Return the differences from the run before of the same project; of a resumed run, from the attempt before."""
    found = [*_resumed(recorded)]
    before = _before(recorded.place.path)
    if before is None:
        return found
    with contextlib.suppress(OSError, ValueError):
        earlier = open_run(before)
        starts = earlier.sql("SELECT min(started_unix_nano) AS at_first FROM attempts")["at_first"].tolist()
        began = min((one.started_unix_nano for one in recorded.members), default=0)
        if earlier.place.project != recorded.place.project or starts[0] is None or starts[0] > began:
            return found  # another project, or a copy: its files are older than its run
        hosts = tuple(dict.fromkeys(str(host) for host in earlier.attempts["host"]))
        differences = [
            *_software(earlier.environment, recorded.run.environment),
            *_machines(hosts, recorded.hosts),
            *_parameters(earlier.parameters, recorded.parameters),
        ]
        if differences:
            name = earlier.place.name if earlier.place.name != recorded.place.name else before.name
            found.append(_finding(f"Since the last run of this project ({name}): {_listed(differences)}."))
    return found


def _resumed(recorded: Recorded) -> Iterator[Finding]:
    table = recorded.run.sql("SELECT attempt, environment FROM environment ORDER BY attempt, time_unix_nano")
    if len(set(table["attempt"].tolist())) < 2:
        return
    of_attempt: dict[int, dict[str, Any]] = {}
    for attempt, text in zip(table["attempt"].tolist(), table["environment"].tolist(), strict=True):
        of_attempt.setdefault(attempt, {}).update(json.loads(text))
    before, last = sorted(of_attempt)[-2:]
    hosts = [
        tuple(dict.fromkeys(one.host for one in recorded.members if one.attempt == attempt))
        for attempt in (before, last)
    ]
    differences = [*_software(of_attempt[before], of_attempt[last]), *_machines(*hosts)]
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
    earlier = [one for one in others if one[0] < began and (one[1] / "archive").is_dir()]
    return max(earlier)[1] if earlier else None


def _software(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    if not before or not after:
        return
    commits = before.get("source.commit"), after.get("source.commit")
    is_dirty = after.get("source.dirty") == "true"
    if commits[1] and (commits[0] != commits[1] or (is_dirty and before.get("source.dirty") != "true")):
        changes = " with local changes" if is_dirty else ""
        yield f"commit {str(commits[1])[:_SHORT]}{changes}"
    for name in sorted({**before, **after}):
        old, new = before.get(name), after.get(name)
        if old == new or name in _IGNORED:
            continue
        label = name.removeprefix(_PACKAGE)
        if old is None:
            yield f"{label} {new}, not there before"
        elif new is None:
            yield f"no {label}, {old} before"
        else:
            yield f"{label} {old} → {new}"


def _machines(before: tuple[str, ...], after: tuple[str, ...]) -> Iterator[str]:
    gone, fresh = [one for one in before if one not in after], [one for one in after if one not in before]
    if fresh and gone:
        yield f"{wording.names(fresh)} instead of {wording.names(gone)}"
    elif fresh and before:
        yield f"{wording.names(fresh)} in addition"
    elif gone and after:
        yield f"without {wording.names(gone)}"


def _parameters(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(before.keys() & after.keys()):
        old, new = before[name], after[name]
        if old != new and not _is_of_run(name):
            yield f"{name} {_shown(old)} → {_shown(new)}"


def _is_of_run(name: str) -> bool:
    """Return whether a hyperparameter differs in every run."""
    last = name.replace("/", ".").rpartition(".")[2].lower()
    return last.endswith(("name", "id", "dir", "path", "time", "date")) or "timestamp" in last


def _shown(value: Any) -> str:
    text = wording.number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _listed(differences: list[str]) -> str:
    if len(differences) <= _MOST:
        return ", ".join(differences)
    return f"{', '.join(differences[:_MOST])} and {wording.count(len(differences) - _MOST, 'other difference')}"


def _finding(sentence: str) -> Finding:
    return Finding(kind="environment", severity="note", sentence=sentence, evidence=Evidence(panel="environment"))
