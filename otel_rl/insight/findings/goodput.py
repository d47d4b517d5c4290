"""How much of the time of the ranks trained, and what the rest was lost to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from otel_rl.insight import wording
from otel_rl.insight.facts import Evidence, Finding
from otel_rl.insight.phases import by_category
from otel_rl.semconv.main_metrics import STEP_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.insight.facts import PhaseShare, Summary
    from otel_rl.insight.recorded import Recorded

_LEAST_STEPS = 5
_LEAST = 0.01
_WELL, _BAD = 0.7, 0.5
_LOSSES = {
    "sync": "synchronizing weights",
    "waiting": "waiting",
    "evaluation": "evaluation",
    "checkpoint": "checkpoints",
    "none": "outside of phases",
}
"""Categories of phases whose time does not train, in words."""


def goodput(recorded: Recorded, summary: Summary, shares: Sequence[PhaseShare]) -> list[Finding]:
    """Return the share of the wall time that trained, and the largest losses; all add up to 1."""
    name, fractions = recorded.of("goodput")
    times = recorded.series(STEP_TIME)
    if len(fractions.steps) < _LEAST_STEPS or not times or summary.duration_s <= 0:
        return []
    common, of_times, of_fractions = np.intersect1d(times.steps, fractions.steps, return_indices=True)
    took = times.values[of_times]
    in_steps = float(np.nansum(took))
    trained = float(np.nansum(took * fractions.values[of_fractions]))
    repeated, down = _repeated(recorded, in_steps), _down(recorded)
    wall_s = summary.duration_s
    hung = 0.0
    if summary.state in ("live", "hung", "lost") and recorded.steps is not None:  # the open step is not known yet
        wall_s = max(0, recorded.steps.last_unix_nano - summary.started_unix_nano) / 1e9
        hung = summary.duration_s - wall_s if summary.state == "hung" else 0.0
    rest = max(0.0, wall_s - in_steps - repeated - down)
    whole, start = in_steps + repeated + down + rest + hung, min(rest, _start_up(recorded))
    cut = 0.0
    if summary.state in ("failed", "crashed", "lost") and len(common):
        cut = min(rest - start, max(0.0, summary.started_unix_nano / 1e9 + wall_s - _left(recorded, int(common[-1]))))
    losses = {"repeated after a resume": repeated, "down between attempts": down, "between steps": rest - start - cut}
    losses["after the last whole step"] = cut
    losses["hung"] = hung
    categories = by_category(shares)
    lost_in_steps = max(0.0, in_steps - trained)
    for category, words in _LOSSES.items():
        spent = min(lost_in_steps, categories.get(category, 0.0) * in_steps)
        losses[words] = spent
        lost_in_steps -= spent
    losses["elsewhere in steps"] = lost_in_steps
    large = sorted(((cost / whole, what) for what, cost in losses.items() if cost / whole >= _LEAST), reverse=True)
    told = sorted([*large, (start / whole, "before the first step")], reverse=True)
    parts = ", ".join(f"{wording.percent(cost)} {what}" for cost, what in told if cost >= _LEAST)
    share, once = trained / whole, trained / max(whole - start, in_steps)  # a start is paid once, however long a run is
    return [
        Finding(
            kind="goodput",
            severity="good" if once >= _WELL else "note" if once >= _BAD else "warning",
            sentence=f"{wording.percent(share)} of the time trained.{f' Lost: {parts}.' if parts else ''}",
            advice=_advice(large[0][1]) if large and once < _WELL else "",
            evidence=Evidence(
                steps=(int(common[0]), int(common[-1])) if len(common) else None, names=(name,), panel="goodput"
            ),
        )
    ]


def _start_up(recorded: Recorded) -> float:
    """Return the seconds between the start of each attempt and its first step."""
    begins = {one.attempt: one.began_unix_nano for one in recorded.spans if one.kind == "step"}
    starts: dict[int, int] = {}
    for one in recorded.members:
        starts[one.attempt] = min(one.started_unix_nano, starts.get(one.attempt, one.started_unix_nano))
    return sum(max(0, begins[attempt] - start) / 1e9 for attempt, start in starts.items() if attempt in begins)


def _left(recorded: Recorded, step: int) -> float:
    """Return when the ranks left a step, in Unix seconds; infinity if no span says it."""
    left = f"SELECT max(start_unix_nano + duration_ns) / 1e9 AS s FROM spans WHERE step = {step} AND role IS NULL"
    return float(recorded.run.sql(f"SELECT coalesce(s, 'infinity'::DOUBLE) AS s FROM ({left})")["s"][0])


def _repeated(recorded: Recorded, valid_s: float) -> float:
    """Return the seconds of steps that a later attempt repeated."""
    if len(recorded.firsts) < 2:
        return 0.0
    query = f"SELECT coalesce(sum(value), 0) AS s FROM rows WHERE name = '{STEP_TIME}' AND isfinite(value)"
    found = recorded.every.sql(query)
    return max(0.0, float(found["s"][0]) - valid_s)


def _down(recorded: Recorded) -> float:
    """Return the seconds between the end of an attempt and the start of the next one."""
    down = 0.0
    for end in recorded.ends:
        starts = [one.started_unix_nano for one in recorded.members if one.attempt == end.attempt + 1]
        later = [one for one in recorded.ends if one.attempt == end.attempt and one is not end]
        if starts and not any(one.time_unix_nano > end.time_unix_nano for one in later):
            down += max(0, min(starts) - end.time_unix_nano) / 1e9
    return down


def _advice(loss: str) -> str:
    return {
        "repeated after a resume": "Write checkpoints more often.",
        "down between attempts": "Restart failed jobs automatically.",
        "between steps": "Look at what the trainer does between two steps.",
        "synchronizing weights": "Look at the way of the weights to the engines: group them, or send them over NCCL.",
        "waiting": "Balance rollout workers and trainers: one waits for the other.",
        "evaluation": "Evaluate less often, or on fewer prompts.",
        "checkpoints": "Write checkpoints asynchronously.",
        "outside of phases": "Mark the rest of the step with `run.phase`.",
    }.get(loss, "")
