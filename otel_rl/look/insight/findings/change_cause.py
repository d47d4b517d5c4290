"""The cause of a change of the time of steps: it holds for what became slower, and not for what did not."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.insight.contradictions.of_shares import LONGEST
from otel_rl.look.insight.findings.engine_load import UNEVEN_ADVICE, open_requests, running
from otel_rl.look.insight.findings.step_change import EXPLAINS, Change, ChangeCause, GrownPhase
from otel_rl.look.insight.findings.trajectory_times import part_that_grew
from otel_rl.look.insight.findings.work_amount import amount_with
from otel_rl.look.insight.findings.worker_load import UNEVEN_WORKERS_ADVICE, moved_work
from otel_rl.look.insight.phases import works_of_ranks
from otel_rl.recorder.facts import wording
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from otel_rl.look.insight.facts import Finding
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.look.insight.shifts import Shift

    _Range = tuple[int, int]

_LEAST_PART = 0.5
"""Share of a change that a phase has to have, to be named as its cause."""
_NEAR_STEPS = 10
"""Steps between the beginning of a straggler and the change that it makes, at the most."""
_STEADY = 0.25
"""Part of the growth of the ranks that slowed up to which others did not."""
_COUNTS = 0.05
"""Part of the time of all phases that a phase needs, to count among those that change alike."""
_ALIKE = 0.5
"""Part of the largest growth of a phase, in logarithms, above which all of them grow alike."""
_OF_COMPLETIONS = ("rollout", "training", "reward")
"""Categories of phases that take longer with more tokens."""
_OF_ENGINES = ("rollout", "waiting")
"""Categories of phases in which engines generate."""
_LESS_THAN_LONGEST = 0.6
"""Part of the growth of the longest completions, in logarithms, up to which the mean did not grow as they did."""
_WHOLE = 0.85
"""Part of the whole change that each of two phases has only if one is inside the other."""
_ON_AMOUNT = "See why {} changed at that step: it may be the reason."
_TRAINED = "trajectories/trained"


def cause_of(change: Change, stragglers: Sequence[Finding]) -> ChangeCause:
    """Return what makes up most of a change, and what changed with it."""
    shift, whole = change.shift, change.shift.after - change.shift.before
    phases, inside = _outermost(change.phases(), whole)
    resumed = _resume(change.recorded, shift)
    if not phases or not whole:
        return resumed
    grown = max(phases, key=lambda each: (each.now - each.was) / whole)
    alone = _alone(change, grown)
    is_alike = _are_alike(phases, whole)
    if is_alike and not (more := _more_work(change, phases, grown)).text:
        return _of_machine(change, grown, alone)
    if is_alike:
        return more
    if (grown.now - grown.was) / whole < _LEAST_PART:
        outside = _Outside(shift, phases)
        return resumed if resumed.text or outside.gap / whole < _LEAST_PART else outside.cause
    if alone or len(change.recorded.hosts) > 1:
        of_ranks = _straggler(change, grown, alone, stragglers)
        if of_ranks.text:
            return of_ranks
    reasons: tuple[Callable[[Change, GrownPhase], ChangeCause], ...] = (
        _part,
        _uneven,
        _uneven_workers,
        _fewer_at_once,
        _completions,
        _longest,
        _model,
        _amount,
    )
    for reason in reasons:
        if (cause := reason(change, grown)).text:
            return cause
    inner = max(inside, key=lambda phase: abs(phase.growth), default=grown)
    text = f"{grown.text}, {resumed.text}" if resumed.text else grown.text
    text += "" if inner is grown else f", all of it in {inner.phase} ({inner.times})"
    advice = f"Look at {inner.phase} in the timeline of a step before and after."
    return ChangeCause(text, tuple(dict.fromkeys((grown.phase, inner.phase))), (), advice)


def _outermost(phases: Sequence[GrownPhase], whole: float) -> tuple[list[GrownPhase], list[GrownPhase]]:
    """Return phases without those inside of another one that have the whole change, too; and these.

    Logged times of a phase contain those of its parts; spans have the own time of each.
    """
    with_all = [phase for phase in phases if whole and (phase.now - phase.was) / whole >= _WHOLE]
    outer = max(with_all, key=lambda phase: phase.now, default=None)
    inside = [phase for phase in with_all if phase is not outer]
    return [phase for phase in phases if phase not in inside], inside


class _Outside(NamedTuple):
    """The time of a step outside of phases."""

    shift: Shift
    phases: Sequence[GrownPhase]

    @property
    def was(self) -> float:
        return max(0.0, self.shift.before - sum(phase.was for phase in self.phases))

    @property
    def now(self) -> float:
        return max(0.0, self.shift.after - sum(phase.now for phase in self.phases))

    @property
    def gap(self) -> float:
        return self.now - self.was

    @property
    def cause(self) -> ChangeCause:
        verb = "grew" if self.gap > 0 else "fell"
        text = f"the time outside of phases {verb} from {wording.seconds(self.was)} to {wording.seconds(self.now)}"
        return ChangeCause(text, advice="Give the driver's own work phases with `run.phase`, to see which part grew.")


def _are_alike(phases: Sequence[GrownPhase], whole: float) -> bool:
    """Return whether all phases that count became slower, or faster, by similar factors."""
    total = sum(phase.was for phase in phases)
    counted = [math.copysign(1.0, whole) * phase.growth for phase in phases if phase.was >= _COUNTS * total > 0]
    return len(counted) > 1 and min(counted) >= max(_ALIKE * max(counted), math.log1p(_COUNTS))


def _of_machine(change: Change, grown: GrownPhase, alone: Sequence[int]) -> ChangeCause:
    recorded, is_slower = change.recorded, grown.now > grown.was
    who = wording.names([recorded.rank_text(rank) for rank in alone])
    what = f"all phases take {'longer' if is_slower else 'less'} alike{f' on {who}' if who else ''}"
    machine = "the machines are" if len(recorded.hosts) > 1 and not alone else "the machine is"
    text = f"{what}: {machine} shared or throttled" if is_slower else what
    advice = "Look at other processes on the machine, and at clocks and temperature of its GPUs."
    return ChangeCause(text, advice=advice, ranks=tuple(alone))


def _more_work(change: Change, phases: Sequence[GrownPhase], grown: GrownPhase) -> ChangeCause:
    """Return that a step has more to do, if that explains why all phases take longer; else nothing."""
    total = sum(phase.was for phase in phases)
    counted = [phase for phase in phases if phase.was >= _COUNTS * total]
    if together := change.explains(change.recorded.series(_TRAINED), grown):
        old, new = map(wording.number, together)
        text = f"all phases {grown.verb} with the number of trajectories of a step ({old} → {new})"
        return ChangeCause(text, tuple(phase.phase for phase in counted), (_TRAINED,))
    if all(category_of(phase.phase) in _OF_COMPLETIONS for phase in counted):
        longer = _completions(change, grown)
        if longer.text:
            return longer
    amount = amount_with(change, grown, [phase.phase for phase in counted])
    if amount is None:
        return ChangeCause()
    text = f"all phases {grown.verb} together with {amount.text}"
    return ChangeCause(text, tuple(phase.phase for phase in counted), (amount.name,), _ON_AMOUNT.format(amount.name))


def _alone(change: Change, grown: GrownPhase) -> tuple[int, ...]:
    """Return the ranks, at most half of all, that changed while the others did not; none if all changed."""
    was, now = (works_of_ranks(change.recorded, steps, grown.phase) for steps in (change.before, change.after))
    gaps = {rank: now[rank] - was[rank] for rank in was.keys() & now.keys()}
    return _outstanding(gaps if grown.now > grown.was else {rank: -gap for rank, gap in gaps.items()})


def _outstanding(gaps: Mapping[int, float]) -> tuple[int, ...]:
    most = max(gaps.values(), default=0.0)
    large = sorted(rank for rank, gap in gaps.items() if gap > EXPLAINS * most)
    rest = [gap for gap in gaps.values() if gap <= EXPLAINS * most]
    is_clear = most > 0 and 0 < len(large) <= len(rest) and max(rest) <= _STEADY * most
    return tuple(large) if is_clear else ()


def _straggler(change: Change, grown: GrownPhase, alone: Sequence[int], stragglers: Sequence[Finding]) -> ChangeCause:
    """Return that some ranks changed and the others did not, with the finding that says how much others wait."""
    recorded = change.recorded
    for straggler in stragglers if grown.now > grown.was else ():
        steps, ranks = straggler.evidence.steps, straggler.evidence.ranks
        is_near = steps is not None and abs(steps[0] - change.shift.step) <= _NEAR_STEPS
        if is_near and straggler.evidence.phases == (grown.phase,) and (not alone or ranks == tuple(alone)):
            who = recorded.rank_text(ranks[0])
            text = f"{grown.text} on {who}"
            return ChangeCause(text, (grown.phase,), (), straggler.advice, (straggler.subject,), ranks)
    if not alone:
        return ChangeCause()
    who = wording.names([recorded.rank_text(rank) for rank in alone])
    advice = f"Compare {who} with the others: its samples, clocks and temperature of the GPU, other jobs."
    return ChangeCause(f"{grown.text} on {who} alone", (grown.phase,), (), advice, ranks=tuple(alone))


def _part(change: Change, grown: GrownPhase) -> ChangeCause:
    return part_that_grew(change, grown, of_engines=False)


def _model(change: Change, grown: GrownPhase) -> ChangeCause:
    return part_that_grew(change, grown, of_engines=True)


def _uneven(change: Change, grown: GrownPhase) -> ChangeCause:
    """Return that one engine has the requests of all; nothing if it had them before, or if nothing is known."""
    load = open_requests(change.recorded)
    if category_of(grown.phase) not in _OF_ENGINES or load is None or grown.now < grown.was:
        return ChangeCause()
    was, now = load.between(*change.before), load.between(*change.after)
    if not now.is_uneven or was.is_uneven or now.most <= was.most:
        return ChangeCause()
    text = f"{grown.text} since requests are uneven over engines: {now.text} ({was.text} before)"
    return ChangeCause(text, (grown.phase,), load.names, UNEVEN_ADVICE, ("engines:uneven",))


def _uneven_workers(change: Change, grown: GrownPhase) -> ChangeCause:
    is_of_engines = category_of(grown.phase) in _OF_ENGINES and grown.now > grown.was
    text = moved_work(change.recorded, change.before, change.after) if is_of_engines else ""
    return (
        ChangeCause(f"{grown.text} since {text}", (grown.phase,), (), UNEVEN_WORKERS_ADVICE) if text else ChangeCause()
    )


def _fewer_at_once(change: Change, grown: GrownPhase) -> ChangeCause:
    """Return that fewer requests run at once, if that explains a phase; nothing if they wait in the engines instead."""
    name, series = running(change.recorded)
    reciprocal = series._replace(values=1 / series.values.clip(min=1e-9))
    if category_of(grown.phase) not in _OF_ENGINES or grown.now < grown.was or not name:
        return ChangeCause()
    if (together := change.explains(reciprocal, grown)) is None:
        return ChangeCause()
    old, new = (1 / value for value in together)
    waiting = change.recorded.of_topic("requests_waiting")[1]
    was, now = waiting.between(*change.before).median, waiting.between(*change.after).median
    if now - was > EXPLAINS * (old - new):
        return ChangeCause()
    numbers = f"from {wording.number(old)} to {wording.number(new)}"
    text = f"{grown.text} since the requests that run at once fell {numbers}"
    advice = "Keep as many requests in flight as before: start the next ones before those that run have ended."
    return ChangeCause(text, (grown.phase,), (name,), advice)


def _completions(change: Change, grown: GrownPhase) -> ChangeCause:
    """Return that completions became longer, or shorter, if that explains a phase."""
    name, series = change.recorded.of_topic("completion_length")
    together = change.explains(series, grown) if category_of(grown.phase) in _OF_COMPLETIONS else None
    if together is None:
        return ChangeCause()
    old, new = together
    numbers = f"{wording.number(old)} → {wording.number(new)} tokens"
    text = f"{grown.phase} {grown.verb} with the length of completions ({numbers})"
    advice = "Cap the length of completions, or use a reward that does not pay for length." if new > old else ""
    return ChangeCause(text, (grown.phase,), (name,), advice)


def _longest(change: Change, grown: GrownPhase) -> ChangeCause:
    """Return that the longest completions became longer while the mean did not as much, if that explains a phase."""
    recorded, is_of_completions = change.recorded, category_of(grown.phase) in _OF_COMPLETIONS
    named = [name for shape in LONGEST for name in recorded.names if shape.fits(name)] if is_of_completions else []
    together = change.explains(recorded.series(named[0]), grown) if named else None
    usual, lengths = recorded.of_topic("completion_length")
    if together is None or not usual or usual == named[0] or grown.now < grown.was:
        return ChangeCause()
    was, now = (lengths.between(*steps).median for steps in (change.before, change.after))
    if not now > 0 or not was > 0 or math.log(now / was) > _LESS_THAN_LONGEST * math.log(together[1] / together[0]):
        return ChangeCause()
    longest, mean = (" → ".join(map(wording.number, pair)) for pair in (together, (was, now)))
    text = f"{grown.text} with the longest completions ({named[0]} {longest}; {usual} {mean})"
    advice = "Read the longest completions: cap their length, or do not wait for the last ones."
    return ChangeCause(text, (grown.phase,), (named[0], usual), advice)


def _amount(change: Change, grown: GrownPhase) -> ChangeCause:
    """Return that an amount of work changed at the same steps."""
    if (amount := amount_with(change, grown, [grown.phase])) is None:
        return ChangeCause()
    text = f"{grown.text} together with {amount.text}"
    return ChangeCause(text, (grown.phase,), (amount.name,), _ON_AMOUNT.format(amount.name))


def _resume(recorded: RecordedRun, shift: Shift) -> ChangeCause:
    """Return that the run was resumed there, on other machines perhaps."""
    near = max(2, (shift.last - shift.first) // 50)
    for (attempt, _, _), (later, first, _) in pairwise(recorded.firsts):
        if abs(first - shift.step) > near:
            continue
        hosts = [{*recorded.hosts_of(number)} for number in (attempt, later)]
        moved = hosts[0] != hosts[1]
        machines = f" on {wording.names(sorted(hosts[1] - hosts[0] or hosts[1]))}" if moved else ""
        return ChangeCause(f"since the resume at step {wording.integer(first)}{machines}")
    return ChangeCause()
