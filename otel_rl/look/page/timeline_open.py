"""Adds the phases that are open, which the archive does not have yet: they show where a run is, or where it hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from otel_rl.look.page.timeline_spans import SpanName, TimelineProcess
from otel_rl.semconv import registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from otel_rl.look.page.timeline_spans import TimelineSpans
    from otel_rl.recorder.archive.now import Now, ProcessNow


class UnfinishedStep(NamedTuple):
    """A step that has not ended, and from when to when it is known to be open."""

    number: int
    start: int
    end: int


def with_open(spans: TimelineSpans, nows: Iterable[Now]) -> tuple[TimelineSpans, list[UnfinishedStep]]:
    """Return the spans and the open phases, which last until they were seen last, and the open steps."""
    processes, names = list(spans.processes), list(spans.names)
    places = {(who.role, who.rank): number for number, who in enumerate(processes) if not who.resource}
    kinds = {what: number for number, what in enumerate(names)}
    lines: list[tuple[int, int, int, int, int]] = []
    steps: dict[int, UnfinishedStep] = {}
    for process, seen in _running(nows):
        who = places.setdefault((process.role, process.rank), len(processes))
        if who == len(processes):
            processes.append(TimelineProcess(process.role, process.rank, "", process.host))
        if process.step is not None and process.step_started_unix_nano is not None:
            before = steps.get(process.step, UnfinishedStep(process.step, process.step_started_unix_nano, seen))
            start = min(before.start, process.step_started_unix_nano)
            steps[process.step] = UnfinishedStep(process.step, start, max(before.end, seen))
        for phase in process.phases:
            stage = registry.stages().get(phase.name)
            own = f"rl.{stage}" if stage else phase.name
            what = SpanName(f"{own}.{phase.part}" if phase.part else own, phase.name, "")
            number = kinds.setdefault(what, len(names))
            if number == len(names):
                names.append(what)
            step = -1 if process.step is None else process.step
            lines.append((phase.started_unix_nano, max(0, seen - phase.started_unix_nano), step, who, number))
    if not lines:
        return spans._replace(processes=processes), list(steps.values())
    start, duration, step, who, what = np.array(lines, np.int64).T
    no, yes, none = np.zeros(len(lines), np.bool_), np.ones(len(lines), np.bool_), np.zeros(len(lines), np.uint64)
    new = (start, duration, step, no, yes, who, what, none, none, duration)
    old: tuple[Any, ...] = spans[: len(new)]
    columns: Any = (np.concatenate(pair) for pair in zip(old, new, strict=True))
    replaced: Any = (*columns, processes, names, spans.thinned)
    return type(spans)._make(replaced), list(steps.values())


def _running(nows: Iterable[Now]) -> Iterator[tuple[ProcessNow, int]]:
    """Yield the processes that had not ended when their agent wrote last, with that time; each once."""
    known: set[tuple[str, int]] = set()
    for now in nows:  # the newest first
        for process in now.processes:
            if (process.role, process.rank) not in known and process.outcome is None and now.state != "ended":
                yield process, now.time_unix_nano
            known.add((process.role, process.rank))
