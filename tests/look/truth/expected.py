"""The facts that all screens have to show of a run, computed from how it was made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from otel_rl.recorder.facts import wording
from tests.look.truth.construction import BEGAN, Attempt, MadeRun, Phase, Step, own_times

_STATES = {
    "nothing": "empty",
    "begun": "live",
    "live": "live",
    "rank hangs": "hung",
    "all hang": "hung",
    "worker hangs": "hung",
    "worker is killed": "live",
    "machine is silent": "hung",
    "finished": "finished",
    "failed": "failed",
    "cancelled": "cancelled",
    "killed idle": "lost",
    "killed in a phase": "lost",
    "killed with the agent": "lost",
}
_DIED_INSIDE = ("failed", "cancelled", "killed in a phase")
"""Endings inside a step, which has a row then, of what its ranks did."""
_RECENT = 20
_GOODPUT = {"": "none", "weight_sync": "sync", "evaluate": "evaluation", "wait_rollouts": "waiting"}
"""The part of goodput that the time of a phase counts as, if it does not train."""


def expected_of(run: MadeRun) -> dict[str, str]:
    """Return the facts that follow from a run, by the names of those that screens say; others must only agree."""
    recipe, steps = run.recipe, run.valid
    facts = {"state": _STATES[recipe.ending]}
    if recipe.only_logs:
        steps = [step for step in steps if step.number % 10 == 0]
    rows = [step.number for step in steps]
    if recipe.only_logs and recipe.ending in ("live", "killed with the agent") and len(rows) == 1:
        rows = []  # the first step that is named is open until another one is, or until its end is known
    if recipe.ending in _DIED_INSIDE and not recipe.only_logs:
        rows.append(recipe.steps)
    facts["steps"] = str(len(rows))
    facts["last_step"] = str(rows[-1]) if rows else "none"
    facts["total_steps"] = str(recipe.steps + 100) if recipe.announces and recipe.ending != "begun" else "none"
    if recipe.announces and recipe.ending == "begun":
        del facts["total_steps"]
    if recipe.only_logs or not steps:
        return facts
    whole = run.valid
    facts["recent_step_seconds"] = wording.seconds(median(step.seconds for step in whole[-_RECENT:]))
    # The time of a step that evaluates is its own: it does not show on which side of the change the step is.
    shows_change = run.changes_at is not None and not (recipe.evaluates and run.changes_at % recipe.evaluates == 0)
    if shows_change and not recipe.slow and not run.hung:
        facts["changed at step"] = wording.integer(run.changes_at or 0)
    if not (run.hung and recipe.where == "apart"):  # an agent knows the hangs of its own machine alone
        recent = shares_of(run, whole[-_RECENT:])
        facts |= {f"recent_shares {name or '(none)'}": share for name, share in _percents(recent)}
    goodput = goodput_of(run)
    if recipe.damaged:  # the spans are lost that say what steps were spent on
        known = {name: part for name, part in goodput.items() if name in ("start", "down", "hung", "repeated")}
        return facts | {f"goodput {name}": share for name, share in _percents(known)}
    facts |= {f"shares {name or '(none)'}": share for name, share in _percents(shares_of(run, run.archived))}
    facts |= {f"goodput {name}": share for name, share in _percents(goodput)}
    facts["trained"] = wording.percent(goodput["trained"])
    return facts


def _percents(parts: Mapping[str, float]) -> list[tuple[str, str]]:
    return [(name, wording.percent(part)) for name, part in parts.items()]


def shares_of(run: MadeRun, steps: Sequence[Step]) -> dict[str, float]:
    """Return the share of each phase in whole steps; a hang that ended is in none, and the rest has no name."""
    own: dict[str, int] = {}
    for step in steps:
        for rank in step.ranks:
            for name, nanoseconds in own_times(_without(rank.phases, run.hung)).items():
                own[name] = own.get(name, 0) + nanoseconds
    whole = run.recipe.ranks * sum(step.ended - step.began for step in steps)
    has_hung = run.hung is not None and any(step.began < run.hung[0] < step.ended for step in steps)
    own["hung"] = run.recipe.ranks * (run.hung[1] - run.hung[0]) if run.hung is not None and has_hung else 0
    own[""] = whole - sum(own.values())
    return {name: nanoseconds / whole for name, nanoseconds in own.items() if nanoseconds > 0}


def hangs_of(run: MadeRun) -> list[tuple[int, int]]:
    """Return the intervals in which the run hung: since a rank that hangs came to the phase."""
    found = [run.hung] if run.hung else []
    if run.recipe.ending in ("rank hangs", "all hang", "worker hangs"):
        open_ = [(rank, phase) for rank in run.attempts[-1].steps[-1].ranks for phase in rank.phases[-1:]]
        stuck = [phase for _, phase in open_ if phase.name == "update_actor"] or [phase for _, phase in open_]
        found.append((min(phase.began for phase in stuck), run.now))
    return found


def _without(phases: tuple[Phase, ...], hung: tuple[int, int] | None) -> tuple[Phase, ...]:
    """Return the phases of a rank without the time of a hang, which no phase has."""
    if hung is None:
        return phases

    def at(moment: int | None) -> int:
        moment = moment or 0
        return moment if moment <= hung[0] else max(hung[0], moment - (hung[1] - hung[0]))

    return tuple(phase._replace(began=at(phase.began), ended=at(phase.ended)) for phase in phases)


def _recorded(attempt: Attempt) -> Iterator[int]:
    """Yield the moments at which ranks and workers recorded something."""
    for step in attempt.steps:
        yield step.began
        for rank in step.ranks:
            yield from (moment for phase in rank.phases for moment in (phase.began, phase.ended or 0))
    for trajectory in attempt.trajectories:
        yield from (trajectory.began, trajectory.ended or 0)


def goodput_of(run: MadeRun) -> dict[str, float]:
    """Return the parts of the wall time: what trained, what hung, what was repeated, between attempts, and so on."""
    spent: defaultdict[str, float] = defaultdict(float)
    spent["hung"] = sum(ended - began for began, ended in hangs_of(run))
    inside = run.hung[1] - run.hung[0] if run.hung else 0
    in_steps = sum(step.ended - step.began for step in run.archived) - inside
    shares = {name: share for name, share in shares_of(run, run.archived).items() if name != "hung"}
    for name, share in shares.items():
        spent[_GOODPUT.get(name, "trained")] += in_steps * share / sum(shares.values())
    valid = {id(step) for step in run.valid}
    until = BEGAN
    for attempt in run.attempts:
        steps = [step for step in attempt.steps if step.is_whole and step.ended <= run.written]
        if attempt is run.attempts[-1] and run.recipe.unsaved:
            steps = [step for step in steps if id(step) in {id(archived) for archived in run.archived}]
        spent["down"] += attempt.started - until
        ends = {end.rank: end.at for end in attempt.ends}
        of_ranks = [ends.get(rank, ends.get(-1, run.written)) for rank in range(run.recipe.ranks)]
        until = max(of_ranks) if ends else run.written
        if run.recipe.ending == "killed with the agent" and not attempt.ends:
            until = max(moment for moment in _recorded(attempt) if moment <= run.written)
        spent["start"] += steps[0].began - attempt.started
        spent["between"] += sum(after.began - before.ended for before, after in pairwise(steps))
        spent["repeated"] += sum(step.ended - step.began for step in steps if id(step) not in valid)
        is_last = attempt is run.attempts[-1]
        goes_on = is_last and _STATES[run.recipe.ending] in ("live", "hung")
        after = "open" if goes_on else "between" if is_last and run.recipe.ending == "finished" else "end"
        spent[after] += until - steps[-1].ended - (spent["hung"] - inside if goes_on else 0)
    whole = sum(spent.values())
    return {key: nanoseconds / whole for key, nanoseconds in spent.items() if nanoseconds > 0}
