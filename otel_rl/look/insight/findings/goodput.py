"""How much of the wall time of a run trained, and what the rest was lost to."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.troubles import DIVERGED, NONFINITE
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.goodput import HUNG, TRAINED
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.look.insight.recorded import RecordedRun

_LEAST_STEPS = 5
_LEAST = 0.01
_WELL, _BAD = 0.7, 0.5
_MOST = 0.5
"""Part of the time of a category above which a single phase is most of it."""
_METRIC = "perf/goodput"


class _Loss(NamedTuple):
    """Wall time that did not train: in words, and what to do."""

    name: str
    advice: str = ""


_START, _OPEN = "start", "open"
_LOSSES: dict[str, _Loss] = {
    HUNG: _Loss("hung"),
    "repeated": _Loss("repeated after a resume", "Write checkpoints more often."),
    "down": _Loss("down between attempts", "Restart failed jobs automatically."),
    _START: _Loss("before the first step"),  # no advice: a start is paid once, however long a run is
    "between": _Loss("between steps", "Look at what the trainer does between two steps."),
    "end": _Loss("after the last whole step"),
    "sync": _Loss(
        "synchronizing weights",
        "Look at what the sync waits for: a timer, busy engines, or the transfer of tensors.",
    ),
    "waiting": _Loss("waiting", "Balance rollout workers and trainers: one waits for the other."),
    "evaluation": _Loss("evaluation", "Evaluate less often, or on fewer prompts."),
    "checkpoint": _Loss("checkpoints", "Write checkpoints asynchronously."),
    "none": _Loss("outside of phases", "Mark the rest of the step with `run.phase`."),
    "other": _Loss("in other phases"),
}


def goodput(recorded: RecordedRun, parts: Mapping[str, float]) -> list[Finding]:
    """Return the share of the wall time that trained, and the largest losses; all add up to 1.

    How much of the step that is open trains is known when it ends: until then its time is neither trained nor lost.
    Something that happened once, such as a first checkpoint or one long evaluation, says nothing of the time that it
    will cost.
    """
    steps = recorded.steps
    if not parts or steps is None or steps.number < _LEAST_STEPS:
        return []
    costs = {_LOSSES[key]: part for key, part in parts.items() if key in _LOSSES}
    large = sorted((loss for loss in costs if costs[loss] >= _LEAST), key=lambda loss: (-costs[loss], loss.name))
    lost = ", ".join(f"{wording.percent(costs[loss])} {loss.name}" for loss in large)
    costly = f" Lost: {lost}." if lost else ""
    trained = parts.get(TRAINED, 0.0)
    begun = parts.get(_OPEN, 0.0)
    once = {_START, *_categories_once(recorded)}
    known = trained / max(1 - sum(parts.get(key, 0.0) for key in once) - begun, trained, 1e-9)
    in_step = f" The step that is open has {wording.percent(begun)}." if begun >= _LEAST else ""
    advice = next((loss.advice for loss in large if loss not in [_LOSSES.get(key) for key in once]), "")
    return [
        Finding(
            kind="goodput",
            severity="good" if known >= _WELL else "note" if known >= _BAD else "warning",
            sentence=wording.capitalized(f"{wording.percent(trained)} of the time trained.{costly}{in_step}"),
            advice=advice if known < _WELL else "",
            evidence=Evidence(
                steps=(steps.first, steps.last),
                names=(_METRIC,) if _METRIC in recorded.names else (),
                panel="goodput",
            ),
            needs=(NONFINITE, DIVERGED),
        )
    ]


def _categories_once(recorded: RecordedRun) -> set[str]:
    """Return what phases are for of which, in each process, one single phase took most of the time."""
    seconds: dict[tuple[str, str, int], float] = defaultdict(float)
    longest: dict[tuple[str, str, int], float] = defaultdict(float)
    for total in recorded.spans:
        if total.kind == "phase" and total.phase:
            key = category_of(total.phase), total.role, total.rank
            seconds[key] += total.seconds
            longest[key] = max(longest[key], total.longest)
    often = {key[0] for key in seconds if longest[key] <= _MOST * seconds[key]}
    return {key[0] for key in seconds} - often
