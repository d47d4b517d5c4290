"""The events of a drawn run, in plain numbers, before anything of otel-rl has seen them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from tests.look.truth.drawn import Recipe

S = 1_000_000_000
BEGAN = 1_764_000_000 * S
DEADLINE_S = 60
"""Seconds in a phase after which a process counts as hung, which the runs set."""
WORKER = -2
TURN_NS = S // 4
"""Time between two turns of an agent."""
UNSAVED_NS = 8 * S
"""Time by which an archive that lacks the last seconds is behind."""
_HANGS_FOR, _WENT_ON_AFTER = 200 * S, 150 * S
_BETWEEN, _STARTS, _DOWN = S // 5, 7 * S, 30 * S
"""Nanoseconds between two steps, from the start of an attempt to its first step, and between two attempts."""
_PHASES = {"generate": 8.0, "reward": 1.0, "update_actor": 4.0, "weight_sync": 1.0}
_NOISE = 0.02
_LONG = 4.0


class Phase(NamedTuple):
    """A phase of a rank: its name, when it began and ended (`None` if it never did), and the place of its parent."""

    name: str
    began: int
    ended: int | None
    parent: int = -1


class RankStep(NamedTuple):
    """A step of one rank; `left` is `None` if it never left the step."""

    phases: tuple[Phase, ...]
    left: int | None


class Step(NamedTuple):
    """A step of all ranks, which enter it together."""

    number: int
    began: int
    ranks: tuple[RankStep, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all ranks left it."""
        return all(rank.left is not None for rank in self.ranks)

    @property
    def ended(self) -> int:
        """When the last rank left it."""
        return max(rank.left or 0 for rank in self.ranks)

    @property
    def seconds(self) -> float:
        """How long it took: until the slowest rank left it."""
        return (self.ended - self.began) / S


class End(NamedTuple):
    """How a process ended, and when; `rank` is -1 for all that have no other end, and `WORKER` for the first worker."""

    rank: int
    at: int
    how: str  # "finished", "failed", "SIGTERM" or "killed"


class Trajectory(NamedTuple):
    """A trajectory of a rollout worker, and the version of the policy; `ended` is `None` if it never did."""

    worker: int
    began: int
    ended: int | None
    version: int


class Attempt(NamedTuple):
    """A start of the training."""

    started: int
    trajectories: tuple[Trajectory, ...]
    steps: tuple[Step, ...]
    ends: tuple[End, ...]


class MadeRun(NamedTuple):
    """A run, from its first start to the moment at which it is looked at."""

    recipe: Recipe
    attempts: tuple[Attempt, ...]
    hosts: tuple[str, ...]  # the machine of each rank
    now: int  # the moment
    written: int  # when its agents wrote last
    silent_since: int | None = None  # since when nothing arrives from the second machine
    hung: tuple[int, int] | None = None  # the first moment of a hang in the middle of the run, and its last one
    changes_at: int | None = None  # the first step that takes `factor` times as long

    @property
    def valid(self) -> list[Step]:
        """The steps that all ranks left, without those that a later attempt repeats."""
        steps: dict[int, Step] = {}
        for attempt in self.attempts:
            first = attempt.steps[0].number if attempt.steps else 0
            steps = {number: step for number, step in steps.items() if number < first}
            steps |= {step.number: step for step in attempt.steps if step.is_whole and step.ended <= self.written}
        return [*steps.values()]

    @property
    def archived(self) -> list[Step]:
        """Those of them that the archive has: a step closes when the ranks begin the next one."""
        if not self.recipe.unsaved:
            return self.valid
        return [step for step in self.valid if self._closes(step) <= self.written - UNSAVED_NS]

    def _closes(self, step: Step) -> int:
        return BEGAN - (BEGAN - step.ended - _BETWEEN) // TURN_NS * TURN_NS


def made(recipe: Recipe) -> MadeRun:
    """Return the run of a recipe."""
    return _Maker(recipe).run()


class _Maker:
    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._dice = random.Random(recipe.seed)
        self._now = BEGAN
        steps = recipe.steps
        self._slow = {self._dice.randrange(3, steps) for _ in range(recipe.slow)} if steps > 3 else set()
        self._changes_at = 2 * steps // 3 if recipe.factor != 1 else None
        self._hangs_at = steps // 3 if recipe.went_on else None
        self._who = self._dice.randrange(recipe.ranks)
        self._hung: tuple[int, int] | None = None

    def run(self) -> MadeRun:
        recipe = self._recipe
        half = -(-recipe.ranks // 2)
        second = "node1" if recipe.where == "one machine" else "node2"
        hosts = tuple("node1" if rank < half else second for rank in range(recipe.ranks))
        if recipe.ending == "machine is silent":
            self._who = recipe.ranks - 1
        if recipe.ending == "nothing":
            return MadeRun(recipe, (), hosts, BEGAN + 60 * S, BEGAN)
        attempts = []
        first = 0
        if recipe.repeats is not None:
            middle = recipe.steps // 2
            attempts.append(self._attempt(0, middle, "killed in a phase"))
            first = middle - recipe.repeats
            self._now += _DOWN
        attempts.append(self._attempt(first, recipe.steps, recipe.ending))
        now = self._now
        written = now
        silent = None
        if recipe.ending == "killed with the agent":
            now += 300 * S
        elif recipe.ending == "machine is silent":
            silent = now - _HANGS_FOR
        return MadeRun(recipe, tuple(attempts), hosts, now, written, silent, self._hung, self._changes_at)

    def _attempt(self, first: int, end: int, ending: str) -> Attempt:
        """Make an attempt that does the steps from `first` to below `end`, and then ends or not."""
        started = self._now
        self._now += _STARTS
        steps = []
        for number in range(first, end):
            step = self._step(number)
            steps.append(step)
            self._now = step.ended + _BETWEEN
        ends: list[End] = []
        match ending:
            case "begun":
                self._now = started + 20 * S
            case "finished":
                ends = [End(-1, self._now, "finished")]
                self._now += 100 * S
            case "killed idle":
                ends = [End(self._who, self._now, "killed"), End(-1, self._now + S, "killed")]
                self._now += 100 * S
            case _:
                step, ends = self._broken(self._step(end), ending)
                steps.append(step)
        return Attempt(started, tuple(self._trajectories(started, steps, ending)), tuple(steps), tuple(ends))

    def _trajectories(self, started: int, steps: list[Step], ending: str) -> Iterator[Trajectory]:
        """Yield one trajectory after the other of each worker, until the last step begins."""
        until = steps[-1].began if steps else started
        for worker in range(self._recipe.workers):
            at = started + 2 * S
            while at < until:
                takes = round(3 * S * self._dice.lognormvariate(0.0, _NOISE))
                version = max((step.number for step in steps if step.began <= at), default=0)
                is_last = at + takes + S >= until
                hangs = is_last and ending == "worker hangs" and worker == 0
                yield Trajectory(worker, at, None if hangs else at + takes, version)
                at += takes + S

    def _broken(self, step: Step, ending: str) -> tuple[Step, list[End]]:
        """Return a step in which something happens; what would come behind that is left out."""
        who = self._who
        if ending in ("rank hangs", "machine is silent", "all hang", "worker hangs"):
            ranks = []
            for number, rank in enumerate(step.ranks):
                stops = {"all hang": "weight_sync", "worker hangs": rank.phases[0].name}.get(ending, "")
                stops = stops or ("update_actor" if number == who else "weight_sync")
                if ending == "machine is silent" and number >= -(-self._recipe.ranks // 2):
                    stops = "update_actor"
                ranks.append(_stuck(rank, stops))
            arrived = max(phase.began for rank in ranks for phase in rank.phases)
            self._now = arrived + _HANGS_FOR
            return step._replace(ranks=tuple(ranks)), []
        phase = next(phase for phase in step.ranks[who].phases if phase.name == "update_actor")
        assert phase.ended is not None
        at = (phase.began + phase.ended) // 2
        ends = {
            "failed": [End(who, at, "failed"), End(-1, at + S, "SIGTERM")],
            "cancelled": [End(-1, at, "SIGTERM")],
            "killed in a phase": [End(who, at, "killed"), End(-1, at + S, "killed")],
            "worker is killed": [End(WORKER, at - S, "killed")],
        }.get(ending, [])
        is_over = any(end.rank == -1 for end in ends)
        self._now = at + 100 * S if is_over else at
        last = max([at, *(end.at for end in ends)])
        return step._replace(
            ranks=tuple(_cut(rank, at if n == who else last) for n, rank in enumerate(step.ranks))
        ), ends

    def _step(self, number: int) -> Step:
        recipe, began = self._recipe, self._now
        factor = recipe.factor if self._changes_at is not None and number >= self._changes_at else 1.0
        ranks = [self._phases(number, rank, began, factor) for rank in range(recipe.ranks)]
        if number == self._hangs_at:
            phases = ranks[self._who]
            place = next(place for place, phase in enumerate(phases) if phase.name == "update_actor")
            arrived = max(phase.began for phase in phases[place:] if phase.began < (phases[place].ended or 0))
            self._hung = arrived, (phases[place].ended or 0) + _WENT_ON_AFTER
            ranks[self._who] = [
                _later(phase, _WENT_ON_AFTER, begins=n > place and phase.began >= (phases[place].ended or 0))
                if n >= place
                else phase
                for n, phase in enumerate(phases)
            ]
        left = [max(phase.ended or 0 for phase in phases) for phases in ranks]
        if recipe.waits:
            last = max(left)
            ranks = [[*phases[:-1], phases[-1]._replace(ended=last)] for phases in ranks]
            left = [last] * len(ranks)
        outside = S // 10
        return Step(number, began, tuple(RankStep(tuple(p), at + outside) for p, at in zip(ranks, left, strict=True)))

    def _phases(self, number: int, rank: int, began: int, factor: float) -> list[Phase]:
        """Return the phases of a rank; the last one is that in which ranks meet."""
        recipe = self._recipe
        takes = {name: round(value * factor * S) for name, value in self._durations(number)}
        at = began + S // 20
        first = "wait_rollouts" if recipe.workers else "generate"
        phases = [Phase(first, at, at + takes["generate"])]
        at += takes["generate"]
        if recipe.form == "parallel":
            phases.append(Phase("reward", phases[0].began + takes["generate"] // 2, at + takes["reward"]))
        else:
            phases.append(Phase("reward", at, at + takes["reward"]))
        at += takes["reward"]
        phases.append(Phase("update_actor", at, at + takes["update_actor"]))
        if recipe.form == "nested":
            phases.append(Phase("optimizer_step", at + takes["update_actor"] // 2, at + takes["update_actor"], 2))
        at += takes["update_actor"]
        if recipe.evaluates and number % recipe.evaluates == 0:
            phases.append(Phase("evaluate", at, at + takes["evaluate"]))
            at += takes["evaluate"]
        phases.append(Phase("weight_sync", at, at + takes["weight_sync"]))
        return phases

    def _durations(self, number: int) -> Iterator[tuple[str, float]]:
        for name, seconds in {**_PHASES, "evaluate": 5.0}.items():
            noise = self._dice.lognormvariate(0.0, 0.0 if self._recipe.only_logs else _NOISE)
            yield name, seconds * noise * (_LONG if name == "generate" and number in self._slow else 1)


def _stuck(rank: RankStep, name: str) -> RankStep:
    """Return a step of a rank that stays in a phase."""
    place = next(n for n, phase in enumerate(rank.phases) if phase.name == name)
    stays = rank.phases[place]
    before = [phase for phase in rank.phases[:place] if phase.began < stays.began]
    return RankStep((*before, stays._replace(ended=None)), None)


def _cut(rank: RankStep, at: int) -> RankStep:
    """Return a step of a rank of which nothing comes after a moment."""
    phases = [
        phase._replace(ended=None if phase.ended is not None and phase.ended > at else phase.ended)
        for phase in rank.phases
        if phase.began < at
    ]
    return RankStep(tuple(phases), None)


def _later(phase: Phase, by: int, *, begins: bool) -> Phase:
    assert phase.ended is not None
    return phase._replace(began=phase.began + (by if begins else 0), ended=phase.ended + by)


def own_times(phases: tuple[Phase, ...]) -> Mapping[str, int]:
    """Return the nanoseconds of phases that all ended; each moment counts for the phase that began last."""
    moments = sorted({moment for phase in phases for moment in (phase.began, phase.ended or 0)})
    own: dict[str, int] = {}
    for begins, ends in pairwise(moments):
        inside = [phase for phase in phases if phase.began <= begins and (phase.ended or 0) >= ends]
        if inside:
            name = max(inside, key=lambda phase: phase.began).name
            own[name] = own.get(name, 0) + ends - begins
    return own
