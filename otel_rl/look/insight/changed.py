"""Differences between two runs, or two attempts, in words: the commit, packages, machines, hyperparameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_rl.look.insight.quantities import quantities
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from otel_rl.look.insight.recorded import RecordedRun

_SHORT = 7
_IGNORED = ("command", "launcher", "source.commit", "source.dirty")
_PACKAGE = "package."
_LONGEST = 40
_ABSENT = "not set"
_LIKE = 1.1
"""The ratio of a measured quantity of two runs up to which it does not differ."""


def between(before: RecordedRun, after: RecordedRun) -> list[str]:
    """Return what differs between two runs."""
    return [
        *software(before.run.environment, after.run.environment),
        *machines(before.hosts, after.hosts),
        *parameters(before.parameters, after.parameters),
    ]


def labels(runs: Sequence[RecordedRun]) -> list[str]:
    """Return the names of runs; of runs that share one, their ids."""
    names = [run.place.name or run.place.path.name for run in runs]
    return names if len(set(names)) == len(names) else [run.place.id or run.place.path.name for run in runs]


def among_runs(runs: Sequence[RecordedRun]) -> list[str]:
    """Return what differs among runs of a comparison: also in what was measured, whatever the parameters are called."""
    named = labels(runs)
    settings = [
        *(software(runs[0].run.environment, runs[-1].run.environment) if len(runs) == 2 else ()),
        *(machines(runs[0].hosts, runs[-1].hosts) if len(runs) == 2 else ()),
        *among(list(zip(named, (run.parameters for run in runs), strict=True))),
    ]
    measured = [quantities(run) for run in runs]
    for name in {name for values in measured for name in values}:
        values = [values.get(name, 0.0) for values in measured]
        if max(values) <= _LIKE * min(values):  # medians of runs of one program are not quite equal
            for of_run in measured:
                of_run.pop(name, None)
    return [*settings, *among(list(zip(named, measured, strict=True)))]


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
    """Yield which hyperparameters differ, those that one run alone has too; none if one of them recorded none."""
    if before and after:
        yield from among([("before", before), ("after", after)])


def among(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield which values differ among runs, given the name and the values of each, but for those that differ always."""
    for name in sorted({name for _, values in runs for name in values}):
        shown = [_shown(values[name]) if name in values else _ABSENT for _, values in runs]
        if len(set(shown)) == 1 or _is_of_run(name):
            continue
        if len(runs) == 2:
            yield f"{name} {shown[0]} → {shown[1]}"
            continue
        whose = {value: [run for (run, _), own in zip(runs, shown, strict=True) if own == value] for value in shown}
        yield f"{name}: {', '.join(f'{value} ({wording.names(names)})' for value, names in whose.items())}"


def _is_of_run(name: str) -> bool:
    """Return whether a hyperparameter differs in every run."""
    last = name.replace("/", ".").rpartition(".")[2].lower()
    return last.endswith(("name", "id", "dir", "path", "time", "date")) or "timestamp" in last


def _shown(value: Any) -> str:
    text = wording.number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
