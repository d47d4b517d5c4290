"""How far a run is, and the sentence that says how it ended or how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.standing import how_down
from otel_rl.recorder.facts.states import goes_on
from otel_rl.recorder.facts.step_time import RECENT_STEPS

if TYPE_CHECKING:
    from otel_rl.recorder.facts.signs import KnownProcess
    from otel_rl.recorder.facts.standing import Standing
    from otel_rl.recorder.facts.states import State

_VERBS: dict[State, str] = {
    "failed": "Failed",
    "cancelled": "Cancelled",
    "crashed": "Crashed",
    "lost": "Died",
    "hung": "Hangs",
}


class RunExtent(NamedTuple):
    """How far a run is."""

    started_unix_nano: int = 0  # when its first process started; 0 if that is unknown
    last_unix_nano: int = 0  # its last sign of life; 0 if there is none
    first_step: int | None = None  # the first step of the valid history
    last_step: int | None = None  # the last step of the valid history
    steps: int = 0  # number of steps of the valid history
    total_steps: int | None = None  # number of steps that the run is to have; `None` if that is unknown
    resumed_at: tuple[int, ...] = ()  # the first step of each attempt with steps but the first
    recent_step_seconds: float | None = None  # median time of the last 20 steps; `None` if it is unknown
    hosts: tuple[str, ...] = ()  # the machines of the last attempt
    before: KnownProcess | None = None
    """The first process that ended badly in the last attempt before this one in which one did."""

    def seconds(self, standing: Standing, at: int) -> float:
        """Return how long the run has lasted at a time in Unix nanoseconds, or did until its end."""
        until = at if goes_on(standing.state) else self.last_unix_nano
        return max(0, until - self.started_unix_nano) / 1e9 if self.started_unix_nano else 0.0


def plausible_total(total: int | None, last_step: int | None) -> int | None:
    """Return the number of steps that parameters announce, unless the run went beyond it; steps can begin at 1."""
    return total if total is not None and (last_step is None or total >= last_step) else None


def outcome_sentence(standing: Standing, extent: RunExtent, at: int) -> str:
    """Return how a run ended, or how far it is at a time in Unix nanoseconds."""
    lasted = extent.seconds(standing, at)
    steps, took = wording.count(extent.steps, "step"), wording.seconds(lasted)
    reason = f": {standing.reason}" if standing.reason else ""
    match standing.state:
        case "finished":
            died = f"; {standing.reason}" if standing.reason else ""
            after = f" after {took}" if extent.started_unix_nano else ""
            known = f": {steps}" if extent.steps or after else ""
            return f"Finished{after}{known}{_resumed(extent)}{died}."
        case "live":
            return _so_far(standing, extent, took)
        case "empty":
            return "Nothing was recorded yet."
    verb = _VERBS[standing.state]
    if standing.step is None:
        where = f"after {steps}" if extent.steps else "before its first step"
        return f"{verb} {where}{f' in {took}' if lasted and extent.steps else ''}{reason}."
    after = f" after {took}" if lasted and standing.state != "hung" else ""
    return f"{verb} at step {wording.integer(standing.step)}{after}{reason}."


def _so_far(standing: Standing, extent: RunExtent, took: str) -> str:
    """Return how far a live run is, and what it lacks."""
    if standing.lacks == "report":
        return f"{'Resumes' if extent.steps else 'Starts'}: {standing.reason}."
    steps = wording.count(extent.steps, "step")
    of_all = f" of {wording.integer(extent.total_steps)}" if extent.total_steps else ""
    if standing.reason:
        back = ", and has not come back" if standing.lacks == "process" else ""
        return f"{wording.capitalized(standing.reason)}{back}: {steps}{of_all} in {took}."
    if not extent.steps:
        return f"Running for {took}, before its first step."
    seconds = extent.recent_step_seconds
    pace = "" if seconds is None else f", {wording.seconds(seconds)} each in the last {RECENT_STEPS} steps"
    return f"Running for {took}: {steps}{of_all}{pace}{_resumed(extent)}."


def _resumed(extent: RunExtent) -> str:
    if not extent.resumed_at:
        return ""
    at = wording.names([wording.integer(step) for step in extent.resumed_at])
    count = len(extent.resumed_at)
    times = "once" if count == 1 else "twice" if count == 2 else f"{count:,} times"
    resumed = f", resumed {times} at step {at}" if count == 1 else f", resumed {times}, at steps {at}"
    if (before := extent.before) is None:
        return resumed
    parts = ["the last time"] if count > 1 else []
    parts += [f"at step {wording.integer(before.step)}"] if before.step is not None else []
    return f"{resumed} ({', '.join([*parts, how_down(before, {*extent.hosts, before.host})])})"
