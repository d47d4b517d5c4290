"""Memory: the peak and its limit, and when it will be full."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from otel_rl import semconv
from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.troubles import of_memory
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedEvent, RecordedRun

_PEAK = re.compile(r"memory/([^/]+)/end/[^/]+/max_(allocated|reserved)/(\d+)")
_GIB = 1 << 30
_NEARLY_FULL = 0.95
_FULL_AT = 0.85
"""Peaks below this part of the limit are not worth a line in a run that is well."""
_TREE = " and its children"


class _Peak(NamedTuple):
    """The highest memory: in which phase, of which metric, and its limit; 0 if it is unknown."""

    bytes: float
    limit: float
    phase: str
    name: str
    step: int


def memory(recorded: RecordedRun) -> list[Finding]:
    """Return the forecast of memory that runs out, else the peak if it is near the limit."""
    exhausted = recorded.events_of(semconv.EVENT_MEMORY_EXHAUSTED)
    if exhausted:
        return [_exhausted(recorded, exhausted[0])]
    peak = _peak(recorded)
    forecasts = _latest(recorded)
    ranks = len({forecast.rank for forecast in forecasts if not forecast.role})
    grows = [_growing(recorded, peak, forecast, ranks) for forecast in forecasts]
    growing = [finding for finding in grows if finding is not None][:1]
    if growing or peak is None or not peak.limit or peak.bytes < _FULL_AT * peak.limit:
        return growing
    nearly = peak.bytes >= _NEARLY_FULL * peak.limit
    return [
        Finding(
            kind="memory",
            severity="warning" if nearly else "note",
            sentence=f"Peak {wording.memory_of(peak.bytes, peak.limit)} in {peak.phase}.",
            advice="A longer batch may run out of memory." if nearly else "",
            evidence=Evidence(steps=(peak.step, peak.step), names=(peak.name,), phases=(peak.phase,), panel="memory"),
        )
    ]


def _exhausted(recorded: RecordedRun, event: RecordedEvent) -> Finding:
    phase = str(event.attributes.get(semconv.PHASE, ""))
    largest = str(event.attributes.get(semconv.MEMORY_LARGEST, ""))
    who = recorded.rank_text(event.rank or 0, event.role, event.host)
    where = f" in {phase}" if phase else ""
    when = f" at step {wording.integer(event.step)}" if event.step is not None else ""
    return Finding(
        kind="memory",
        severity="bad",
        sentence=f"{wording.capitalized(who)} ran out of memory{where}{when}.",
        advice="The report in `oom/` of the run directory has what each phase left allocated."
        + (f" Largest: {largest}." if largest else ""),
        evidence=Evidence(
            steps=None if event.step is None else (event.step, event.step),
            ranks=() if event.rank is None else (event.rank,),
            role=event.role,
            phases=(phase,) if phase else (),
            panel="memory",
        ),
        subject=of_memory(event.role, event.rank or 0),
    )


def _latest(recorded: RecordedRun) -> list[RecordedEvent]:
    """Return the latest forecast of each memory of each process, the one that is full first in front."""
    latest: dict[tuple[object, ...], RecordedEvent] = {}
    attempt = max((member.started_unix_nano for member in recorded.members), default=0)
    for event in recorded.events_of(semconv.EVENT_MEMORY_GROWING):
        if event.time_unix_nano >= attempt:
            what = event.attributes.get(semconv.MEMORY_OF), event.attributes.get(semconv.HW_ID)
            latest[event.rank, event.role, *what] = event
    return sorted(latest.values(), key=lambda event: (event.step or 0) + _steps_left(event))


def _steps_left(event: RecordedEvent) -> float:
    return float(event.attributes.get(semconv.MEMORY_EXHAUSTION_STEPS, math.inf))


def _growing(recorded: RecordedRun, peak: _Peak | None, event: RecordedEvent, growing: int) -> Finding | None:
    """Return the finding of a forecast, unless the run has gone on well beyond it; `growing` ranks have one."""
    growth = float(event.attributes.get(semconv.MEMORY_GROWTH, 0.0))
    low = float(event.attributes.get(semconv.MEMORY_GROWTH_LOW, 0.0))
    left, step = _steps_left(event), event.step
    if step is None or growth <= 0 or not math.isfinite(left) or recorded.steps is None:
        return None
    high = 2 * growth - low  # the interval of the slope is symmetric
    room = left * growth
    full, soonest = step + left, step + room / high
    latest = step + room / low if low > 0 else math.inf
    if recorded.steps.last > latest:
        return None
    phase = str(event.attributes.get(semconv.PHASE, ""))
    pool = str(event.attributes.get(semconv.MEMORY_OF, ""))
    who = recorded.rank_text(event.rank or 0, event.role, event.host)
    where = "" if phase in ("", "outside") else f" in {phase}"
    by = f"grows by {wording.memory(growth)} a step{where}"
    until = (
        f"{wording.integer(math.floor(soonest))} to {wording.integer(math.ceil(latest))}"
        if latest < math.inf
        else (f"{wording.integer(math.floor(soonest))} or later")
    )
    when = f"is full at about step {wording.fixed(full, 0)} ({until})"
    on = f" on {who}" if recorded.ranks > 1 and growing < recorded.ranks else ""
    if pool.startswith("device") and peak is not None and peak.limit:
        top = f"Peak {wording.memory_of(peak.bytes, peak.limit)} in {peak.phase}"
        sentence = f"{top}; it {by}{on} and {when}."
    else:
        kind = "Device memory" if pool.startswith("device") else "Host memory"
        sentence = f"{kind} of {who}{_TREE if pool == 'host_tree' else ''} {by} and {when}."
    return Finding(
        kind="memory",
        severity="bad" if latest < math.inf and full - recorded.steps.last < 200 else "warning",
        sentence=sentence,
        advice=f"Look for what {phase or 'a step'} keeps: tensors with their graph, caches, lists of results.",
        sure="likely",
        evidence=Evidence(
            steps=(step, recorded.steps.last),
            ranks=() if event.rank is None else (event.rank,),
            role=event.role,
            names=(peak.name,) if peak else (),
            phases=(phase,) if phase else (),
            panel="memory",
        ),
    )


def _peak(recorded: RecordedRun) -> _Peak | None:
    """Return the highest peak of any phase and device, by the rows."""
    peaks = {name: match for name in recorded.names if (match := _PEAK.fullmatch(name))}
    allocated = [name for name, match in peaks.items() if match[2] == "allocated"]
    if not allocated:
        return None
    fractions = {name: f"{name.rpartition('/')[0]}_frac/{match[3]}" for name, match in peaks.items()}
    recorded.load([*allocated, *(fractions[name] for name in allocated)])
    best: _Peak | None = None
    for name in allocated:
        series = recorded.series(name).finite
        if not series:
            continue
        at = int(series.values.argmax())
        value, step = float(series.values[at]), int(series.steps[at])
        if best is None or value * _GIB > best.bytes:
            share = recorded.series(fractions[name]).between(step, step).median
            limit = value / share * _GIB if share > 0 else 0.0
            best = _Peak(value * _GIB, limit, peaks[name][1], name, step)
    return best
