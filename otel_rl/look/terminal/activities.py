"""The activity of each process of a run now: what it does, or waits for and who owes it, or how it ended."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.insight.owed import awaited, why_endless
from otel_rl.look.terminal.scene import label
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.processes import ended_badly, how_it_ended
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_rl.cli.lines import Style
    from otel_rl.look.terminal.scene import Who
    from otel_rl.recorder.archive.now import ProcessNow, Wait
    from otel_rl.recorder.archive.present import RunPresent
    from otel_rl.recorder.facts.signs import Stalled


class ProcessActivity(NamedTuple):
    """The activity of a process, and since when, or at what time; a sentence takes the place of the last step too."""

    what: str
    style: Style
    when: str
    is_sentence: bool = False


class Activities:
    """The activities of the processes of a run now."""

    def __init__(self, present: RunPresent) -> None:
        self._present = present
        self._stalled = {(stall.role, stall.rank): stall for stall in present.stalled}
        self._waits: dict[str, Wait] = {}  # for each process by name the wait that can never end, else its oldest one
        for wait in present.waits:
            for name in (wait.waiter, *wait.others):
                self._waits.setdefault(name, wait)

    def of(self, process: ProcessNow) -> ProcessActivity:
        """Return what a process does and since when, what it waits for, or how and when it ended."""
        who = process.role, process.rank
        return _doing(self._present, process, self._waits.get(name_of(who)), self._stalled.get(who))


def name_of(who: Who) -> str:
    """Return the name of a process in sentences and places: `rank 3`, `rollout 0`."""
    return label(who) if who[0] else f"rank {who[1]}"


def troubled_first(present: RunPresent, processes: Iterable[ProcessNow]) -> list[ProcessNow]:
    """Return processes in their order, but first those that died or do not go on, the earliest first."""
    stalled = {(stall.role, stall.rank): stall.since_unix_nano for stall in present.stalled if stall.kind != "slow"}
    return sorted(processes, key=lambda process: _trouble_since(process, stalled))


def groups_of(processes: Sequence[ProcessNow]) -> str:
    """Return how many processes are in which phase, in words, where there are too many to show."""
    counts = Counter(process.phases[-1].name if process.phases else "no phase" for process in processes)
    named = ", ".join(f"{count:,} in {name}" for name, count in counts.most_common(3))
    return f"{len(processes):,} processes: {named}"


def _trouble_since(process: ProcessNow, stalled: Mapping[Who, int]) -> float:
    """Return since when a process is dead or does not go on; what comes after the first one can be its consequence."""
    if ended_badly(process.outcome):
        return process.ended_unix_nano or process.last_unix_nano
    return stalled.get((process.role, process.rank), math.inf)


def _doing(present: RunPresent, process: ProcessNow, wait: Wait | None, stall: Stalled | None) -> ProcessActivity:
    at = present.at
    if process.outcome is not None:
        return _ended(process)
    phase = process.phases[-1] if process.phases else None
    inside = f"{phase.name} {phase.part}".rstrip() if phase else ""
    is_waiting = phase is None or category_of(phase.name) == "waiting" or present.state == "hung"
    if wait is not None and (wait.cause or stall is not None or is_waiting):
        where = f"{inside}: " if phase and phase.name != wait.subject else ""
        text = f"{where}waits for {awaited(wait)}{_why_endless(wait)}"
        is_bad = wait.cause or stall is not None
        return ProcessActivity(text, "bad" if is_bad else "", wording.age(wait.since_unix_nano, at), is_sentence=True)
    if stall is not None and stall.kind != "slow":
        where = f"in {stall.phase}" if stall.phase else "outside of any phase"
        usual = f", usually {wording.seconds(stall.usual_s)}" if stall.usual_s is not None else ""
        text = f"{stall.kind} {where}{usual}: {stall.evidence}"
        return ProcessActivity(text, "bad", wording.age(stall.since_unix_nano, at), is_sentence=True)
    if phase is not None:
        return ProcessActivity(inside, _category(process, phase.name), wording.age(phase.started_unix_nano, at))
    is_in_step = process.step is not None and process.step_started_unix_nano is not None
    since_unix_nano = process.step_started_unix_nano if is_in_step else process.last_unix_nano
    between = "between two steps" if process.step is None and not process.role else "in no phase"
    return ProcessActivity(between, "dim", wording.age(since_unix_nano or 0, at))


def _ended(process: ProcessNow) -> ProcessActivity:
    """Return how and when a process ended."""
    assert process.outcome is not None
    when = wording.clock(process.ended_unix_nano or process.last_unix_nano)
    if not ended_badly(process.outcome):
        return ProcessActivity(process.outcome, "dim", when)
    where = f" in {process.ended_phase}" if process.ended_phase else ""
    where += f" of step {process.ended_step:,}" if process.ended_step is not None else ""
    text = f"{how_it_ended(process.outcome, process.error, process.cause)}{where}"
    return ProcessActivity(text, "bad", when, is_sentence=True)


def _why_endless(wait: Wait) -> str:
    """Return why a wait can never end, in as few words as a row has room for."""
    if wait.cause in ("dead", "ended") and {*wait.culprits} <= {*wait.debtors}:
        return f" — {wait.cause}"
    return f" — {why_endless(wait)}" if wait.cause else ""


def _category(process: ProcessNow, phase: str) -> Style:
    return next((span.category for span in process.last if span.name == phase), None) or category_of(phase)
