"""Inference engines: load, queues and preemptions, workers that get no work; and a step time that leaves time out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.findings.engine_load import UNEVEN_ADVICE, open_requests
from otel_rl.look.insight.recorded import RECENT_MEANS
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.recorder.facts.order import Severity

_LEAST_STEPS = 5
_STEP_TIME = ("rl.phase.time", 1.0, {semconv.PHASE: "step"})
_FULL = 0.95
_LEAST_PREEMPTIONS = 1.0
_WAITING = 1.0
"""Requests that wait for each one that runs, from which on the engines are the bottleneck."""
_LEFT_OUT, _MUCH_LEFT_OUT = 0.05, 0.3
_IDLE = 0.33
"""Part of its fair share of the work below which a worker is idle."""
_LEAST_SPANS = 20
_BUSY, _NOT_BUSY = 0.8, 0.5
"""Share of the time from which on a worker is busy, and the part of it up to which the others are not."""


def engines(recorded: RecordedRun) -> list[Finding]:
    """Return what is wrong with engines and workers, and how much the framework's step time leaves out."""
    return [*_load(recorded), *(_workers(recorded) or _busy(recorded)), *_left_out(recorded)]


def _load(recorded: RecordedRun) -> list[Finding]:
    cache, preempted = recorded.main.name("kv_cache"), recorded.main.name("preemptions")
    waiting, running = recorded.main.name("requests_waiting"), recorded.main.name("requests_running")
    full, lost = recorded.recent_mean(cache), recorded.recent_mean(preempted)
    findings = []
    if lost >= _LEAST_PREEMPTIONS:
        at = f" with a KV cache that is {wording.percent(full)} full" if full >= _FULL else ""
        findings.append(
            _finding(
                f"The engines preempted {wording.number(lost)} requests a step{at}.",
                "Send fewer requests at once, or give the engine more memory: a preempted request starts again.",
                (preempted, cache) if cache else (preempted,),
                "warning" if full >= _FULL else "note",
            )
        )
    queue, busy = recorded.recent_mean(waiting), recorded.recent_mean(running)
    load = open_requests(recorded)
    assert recorded.steps is not None
    spread = load and load.between(recorded.steps.last - RECENT_MEANS + 1, recorded.steps.last)
    if load and spread and spread.is_uneven and len(load.most.steps) >= _LEAST_STEPS:
        findings.append(
            replace(
                _finding(
                    f"Open requests are uneven over engines: {spread.text}.", UNEVEN_ADVICE, load.names, "warning"
                ),
                sure="likely",
                subject="engines:uneven",
            )
        )
    elif busy > 0 and queue >= _WAITING * busy:
        findings.append(
            _finding(
                f"{wording.number(queue)} requests waited in the engines while {wording.number(busy)} ran.",
                "More engines, or more requests that run at once, would shorten the rollout.",
                (waiting, running),
            )
        )
    return findings


def _workers(recorded: RecordedRun) -> list[Finding]:
    """Return the worker of a role that generates much less than the others, by the spans of its trajectories."""
    lines = [span for span in recorded.spans if span.kind == "trajectory"]
    findings = []
    for role in dict.fromkeys(line.role for line in lines):
        members = {
            member.rank
            for member in recorded.members
            if member.role == role and member.attempt == recorded.last_attempt
        }
        counts = dict.fromkeys(sorted(members), 0) | {line.rank: line.number for line in lines if line.role == role}
        total = sum(counts.values())
        if len(counts) < 2 or total < _LEAST_SPANS * len(counts):
            continue
        rank = min(counts, key=counts.__getitem__)
        fair = total / len(counts)
        if counts[rank] >= _IDLE * fair:
            continue
        busiest = max(counts, key=counts.__getitem__)
        seconds = {line.rank: line.seconds for line in lines if line.role == role}
        if seconds.get(rank, 0.0) > _NOT_BUSY * seconds[busiest]:
            continue  # it works as long for less: it is slow itself
        few = "none" if not counts[rank] else wording.integer(counts[rank])
        many = wording.count(counts[busiest], "trajectory", "trajectories")
        text = f"{role} {busiest} generated {many}, {role} {rank} {few}"
        findings.append(
            Finding(
                kind="engines",
                severity="warning",
                sentence=f"{wording.capitalized(text)}: routing.",
                advice="Look at how requests are spread over workers.",
                sure="likely",
                evidence=Evidence(ranks=(rank, busiest), role=role, panel="engines"),
            )
        )
    return findings


def _busy(recorded: RecordedRun) -> list[Finding]:
    """Return the worker of a role that works nearly all the time while the others do not, by its phases."""
    wall = sum(span.seconds for span in recorded.spans if span.kind == "step")
    lines = [span for span in recorded.spans if span.kind == "phase" and span.role]
    findings = []
    for role in dict.fromkeys(line.role for line in lines):
        shares: dict[int, float] = {}
        for line in lines:
            if line.role == role:
                shares[line.rank] = shares.get(line.rank, 0.0) + line.seconds / wall if wall else 0.0
        rank = max(shares, key=shares.__getitem__)
        others = [share for other, share in shares.items() if other != rank]
        if not others or not _BUSY <= shares[rank] <= 1 or max(others) > _NOT_BUSY * shares[rank]:
            continue
        rest = f"{role} {min(shares.keys() - {rank})}" if len(others) == 1 else f"the other {len(others)}"
        text = f"{role} {rank} worked for {wording.percent(shares[rank])} of the time of steps"
        findings.append(
            Finding(
                kind="engines",
                severity="note",
                sentence=f"{wording.capitalized(text)}, {rest} for {wording.percent(float(np.median(others)))}.",
                advice="Look at how requests are spread over workers, and at the longest completions.",
                sure="likely",
                evidence=Evidence(ranks=(rank,), role=role, panel="engines"),
            )
        )
    return findings


def _left_out(recorded: RecordedRun) -> list[Finding]:
    """Return how much less the framework's own time of a step is than its wall time."""
    name = _own_step_time(recorded)
    if not name:
        return []
    own, walls = recorded.series(name).finite, recorded.step_times.finite
    _, at, of_wall = np.intersect1d(own.steps, walls.steps, return_indices=True)
    values, seconds = own.values[at], walls.values[of_wall]
    is_known = (values > 0) & (seconds > 0)
    if len(at) < _LEAST_STEPS or not is_known.any():
        return []
    share = float(np.median(1 - values[is_known] / seconds[is_known]))
    if share < _LEFT_OUT:
        return []
    return [
        _finding(
            f"The framework's own step time ({name}) leaves out {wording.percent(share)} of the wall.",
            "Compare with the time in no phase: sleep and wake-up of the engine, weight updates, evaluation.",
            (name,),
            "warning" if share >= _MUCH_LEFT_OUT else "note",
        )
    ]


def _own_step_time(recorded: RecordedRun) -> str:
    """Return the name of the step time that the framework logged; empty if it logged none."""
    read = recorded.main.vocabulary.read
    for name, measured in recorded.names.items():
        reading = None if measured else read(name)
        if reading is not None and (reading.metric, reading.factor, dict(reading.attributes)) == _STEP_TIME:
            return name
    return ""


def _finding(sentence: str, advice: str, names: tuple[str, ...], severity: Severity = "note") -> Finding:
    return Finding(
        kind="engines",
        severity=severity,
        sentence=sentence,
        advice=advice,
        evidence=Evidence(names=names, panel="engines"),
    )
