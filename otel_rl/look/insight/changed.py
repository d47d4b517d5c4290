"""Differences between two runs, or two attempts, in words: the commit, packages, machines, hyperparameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from otel_rl.look.insight.recorded import RecordedRun

_SHORT = 7
_IGNORED = ("command", "launcher", "source.commit", "source.dirty")
_PACKAGE = "package."
_LONGEST = 40


def between(before: RecordedRun, after: RecordedRun) -> list[str]:
    """Return what differs between two runs."""
    return [
        *software(before.run.environment, after.run.environment),
        *machines(before.hosts, after.hosts),
        *parameters(before.parameters, after.parameters),
    ]


def software(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs in commit and packages; nothing if one of the environments is unknown."""
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


def machines(before: tuple[str, ...], after: tuple[str, ...]) -> Iterator[str]:
    """Yield which machines came and went."""
    gone, fresh = [host for host in before if host not in after], [host for host in after if host not in before]
    if fresh and gone:
        yield f"{wording.names(fresh)} instead of {wording.names(gone)}"
    elif fresh and before:
        yield f"{wording.names(fresh)} in addition"
    elif gone and after:
        yield f"without {wording.names(gone)}"


def parameters(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield which hyperparameters of both differ, but for those that differ in every run."""
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
