"""Which processes hang, which are slow and which wait: over simulated runs, with a clock that is an argument."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_rl.analyses.hang_watch.usual_times import UsualTimes
from otel_rl.analyses.hang_watch.verdicts import HangWatch, LiveProcess, ProcessPlace, VerdictChange
from otel_rl.analyses.hang_watch.work import Work

S = 1_000_000_000
BUSY, IDLE, STOPPED = "busy", "idle", "stopped"


class Stay(NamedTuple):
    """A process in a phase of a step, from a time to a time in seconds; after a step it is outside of any phase."""

    step: int
    phase: str
    begin: float
    end: float


def played(
    schedules: dict[str, list[Stay]],
    until: float,
    *,
    every: float = 1.0,
    fixed: float = 0.0,
    doing: dict[str, str] | None = None,
) -> list[tuple[float, VerdictChange]]:
    """Play what processes do; return the changes of verdicts, each with its time.

    Args:
        schedules: The stays of each process, in order; a name is a role or `rank`, and a number.
        until: The last second.
        every: Seconds between two looks.
        fixed: The setting.
        doing: What a process does: by default, it is busy.
    """
    usual = UsualTimes()
    watch = HangWatch(usual, fixed)
    at = dict.fromkeys(schedules, 0)
    found: list[tuple[float, VerdictChange]] = []
    begun: dict[tuple[str, int], float] = {}
    now = 0.0
    while now < until:
        now += every
        processes = []
        for name, stays in schedules.items():
            role = name.rstrip("0123456789").replace("rank", "")
            while at[name] < len(stays) and stays[at[name]].end <= now:
                stay = stays[at[name]]
                usual.learn((role, stay.phase, ""), stay.end - stay.begin)
                first = begun.setdefault((name, stay.step), stay.begin)
                at[name] += 1
                if at[name] == len(stays) or stays[at[name]].step > stay.step:
                    usual.learn((role, "", ""), stay.end - first)
            if at[name] < len(stays):
                stay = stays[at[name]]
                if stay.begin <= now:
                    place = ProcessPlace((stay.step, 0), stay.phase, "", int(stay.begin * S))
                    processes.append(LiveProcess(name, role, place, place.since))
                elif not role:
                    since = int((stays[at[name] - 1].end if at[name] else 0) * S)
                    processes.append(LiveProcess(name, role, ProcessPlace((stay.step, 0), "", "", since), since))
        works = {}
        for name in watch.suspects(now):
            does = (doing or {}).get(name, BUSY)
            works[name] = Work(now if does == BUSY else 0.0, is_stopped=does == STOPPED)
        found += [(now, change) for change in watch.look(processes, works, now)]
    return found


def healthy(seed: int) -> dict[str, list[Stay]]:
    """Return 500 steps of four ranks that wait for each other, and two workers that run ahead.

    Lengths grow, times have heavy tails, rank 0 saves a checkpoint every 100 steps, which takes ten minutes at first,
    and every 50 steps an evaluation takes 30 times as long as other phases.
    """
    noise = random.Random(seed)
    stays: dict[str, list[Stay]] = {f"rank{rank}": [] for rank in range(4)}
    now = 120.0  # models load
    for step in range(500):
        grown = 1 + step / 250
        ends = []
        for name, own in stays.items():
            time = now
            phases = {"generate": 6 * grown * noise.lognormvariate(0, 0.4), "update_actor": 4 * noise.uniform(0.8, 1.3)}
            if step % 50 == 49:
                phases["evaluate"] = 180 * noise.lognormvariate(0, 0.3)
            if step % 100 == 99 and name == "rank0":
                phases["save_checkpoint"] = 600 * noise.uniform(0.7, 1.3)
            for phase, seconds in phases.items():
                own.append(Stay(step, phase, time, time + seconds))
                time += seconds
            ends.append(time)
        now = max(ends) + 0.2
        for own, end in zip(stays.values(), ends, strict=True):
            own.append(Stay(step, "weight_sync", end, now))
        now += noise.uniform(0.05, 0.5)
    for worker in range(2):
        own = stays[f"rollout{worker}"] = []
        time = 150.0
        for number in range(400):
            time += noise.expovariate(1 / 5) + (900 if number % 90 == 89 else 0)  # it waits for work by design
            own.append(Stay(number, "generate", time, time := time + 12 * noise.lognormvariate(0, 0.6)))
    return stays


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_run_has_no_verdict(seed: int) -> None:
    """Nothing in 500 noisy steps is slow or hung, whether the processes use their CPUs or wait for other ones."""
    stays = healthy(seed)
    doing = dict.fromkeys(stays, IDLE if seed % 2 else BUSY)

    assert played(stays, stays["rank0"][-1].end, every=7.0, doing=doing) == []


def steady(ranks: int, steps: int = 30) -> dict[str, list[Stay]]:
    """Return ranks that generate for 9 s of each step, and synchronize for 1 s."""
    one = [
        stay
        for step in range(steps)
        for stay in (
            Stay(step, "generate", step * 10, step * 10 + 9),
            Stay(step, "weight_sync", step * 10 + 9, step * 10 + 10),
        )
    ]
    return {f"rank{rank}": list(one) for rank in range(ranks)}


def said(found: Sequence[tuple[float, VerdictChange]]) -> Iterator[tuple[float, str, str, str, str]]:
    for time, (verdict, is_withdrawn) in found:
        yield time, verdict.name, "withdrawn" if is_withdrawn else verdict.kind, verdict.scope, verdict.place.phase


@pytest.mark.parametrize(("doing", "kind"), [(BUSY, "slow"), (IDLE, "hung"), (STOPPED, "hung")])
def test_a_phase_that_takes_too_long(doing: str, kind: str) -> None:
    """It is slow if the process works; the verdict comes once, and is withdrawn when the phase ends."""
    stays = steady(1)
    stays["rank0"] += [Stay(30, "generate", 300, 370), Stay(30, "weight_sync", 370, 371)]

    assert list(said(played(stays, 371, doing={"rank0": doing}))) == [
        (360, "rank0", kind, "job", "generate"),
        (370, "rank0", "withdrawn", "job", "generate"),
    ]


def test_five_times_slower_by_real_work() -> None:
    """Such a phase is slow, not hung, from its deadline to its end."""
    stays = {"rank0": [Stay(n, "update_actor", n * 20, n * 20 + 19) for n in range(30)]}
    stays["rank0"].append(Stay(30, "update_actor", 600, 600 + 5 * 19 + 5))

    assert [one[2] for one in said(played(stays, 700))] == ["slow", "withdrawn"]


def test_a_busy_wait_is_not_work_for_ever() -> None:
    """A rank that spins in a collective looks busy; after four deadlines it hangs."""
    stays = steady(1)
    stays["rank0"].append(Stay(30, "weight_sync", 300, 9999))

    assert list(said(played(stays, 700))) == [
        (360, "rank0", "slow", "job", "weight_sync"),
        (540, "rank0", "hung", "job", "weight_sync"),
    ]


def test_the_rank_that_the_others_wait_for() -> None:
    """Two ranks wait in a collective for one that hangs before: it is named alone, for the whole job."""
    stays = steady(3)
    for rank in range(3):
        stays[f"rank{rank}"].append(Stay(30, "generate", 300, 9999 if rank == 1 else 309))
        stays[f"rank{rank}"].append(Stay(30, "weight_sync", 309, 9999))

    assert list(said(played(stays, 600, doing=dict.fromkeys(stays, IDLE)))) == [
        (369, "rank1", "hung", "job", "generate")
    ]


def test_the_stopped_one_of_ranks_at_one_place() -> None:
    """All are in the same phase; a signal has stopped one of them."""
    stays = steady(3)
    for own in stays.values():
        own.append(Stay(30, "weight_sync", 300, 9999))

    found = played(stays, 600, doing={"rank0": IDLE, "rank1": IDLE, "rank2": STOPPED})

    assert list(said(found)) == [(360, "rank2", "hung", "job", "weight_sync")]


def test_ranks_that_do_not_wait() -> None:
    """Of ranks that go on without it, a hung one is a matter of one process."""
    stays = steady(3, 60)
    stays["rank1"] = [*steady(1)["rank0"], Stay(30, "generate", 300, 9999)]

    assert list(said(played(stays, 590, doing=dict.fromkeys(stays, IDLE)))) == [
        (360, "rank1", "hung", "process", "generate")
    ]


def test_a_first_checkpoint() -> None:
    """While rank 0 saves for ten minutes, the others wait in a collective that takes a second otherwise."""
    stays = steady(3)
    for name, own in stays.items():
        own.append(Stay(30, "save_checkpoint" if name == "rank0" else "weight_sync", 300, 900))

    assert played(stays, 900, doing=dict.fromkeys(stays, IDLE)) == []


def looked(records: Sequence[int], busy: range, until: int) -> list[tuple[float, str]]:
    """Return the verdicts on a rank in one phase, which records at some times and uses a core in a range of them."""
    watch = HangWatch(UsualTimes(), 10)
    cpu, found = 0.0, []
    for now in range(until):
        cpu += now in busy
        progressed = max([one for one in records if one <= now], default=0)
        process = LiveProcess("rank0", "", ProcessPlace((0, 0), "generate", "", 0), progressed)
        works = {name: Work(cpu) for name in watch.suspects(now)}
        found += [(float(now), one) for one in watch.look([process], works, now)]
    return [(time, kind) for time, _, kind, *_ in said(found)]


def test_cpu_time_ends_no_hang() -> None:
    """It may be a child's, or that of an autopsy; a record of the process ends it, and the phase has its time again."""
    assert looked([], range(20, 200), 200) == [(10, "hung")]
    assert looked([30], range(20, 35), 200) == [(10, "hung"), (30, "withdrawn"), (40, "hung")]


def test_a_thread_that_records() -> None:
    """A process that records within each deadline is slow and does not hang, however long the phase takes."""
    assert looked(range(0, 200, 8), range(0), 200) == [(10, "slow")]
    assert looked(range(0, 100, 8), range(0), 200) == [(10, "slow"), (106, "hung")]


def spinning(demand: float, cpu: float, given: float) -> str:
    """Return the first verdict on a rank with a thread that wants a part of a core, and gets another part of it."""
    watch = HangWatch(UsualTimes(), 60)
    process = LiveProcess("rank0", "", ProcessPlace((0, 0), "generate", "", 0), 0)
    for now in range(100):
        works = {name: Work(cpu * now, demands={7: demand * now}, given=given) for name in watch.suspects(now)}
        if changes := watch.look([process], works, now):
            return f"{changes[0].verdict.kind}: {changes[0].verdict.evidence}"
    return ""


def test_cpu_time_on_a_busy_machine() -> None:
    """It is measured against what the machine gives: a thread that polls is idle at any load, one that works is not."""
    assert spinning(0.9, 0.1, 0.25) == "slow: busy without progress: 0.10 CPU cores, 0 B/s"
    assert spinning(0.3, 0.1, 0.25) == "slow: busy without progress: 0.10 CPU cores, 0 B/s"
    assert spinning(0.9, 0.04, 0.25) == "slow: busy without progress: 0.04 CPU cores, 0 B/s"
    assert spinning(0.3, 0.04, 0.25) == "hung: 0.04 CPU cores, 0 B/s"
    assert spinning(0.1, 0.1, 1.0) == "hung: 0.10 CPU cores, 0 B/s"


def test_a_process_that_is_stopped_for_a_moment() -> None:
    """An autopsy does that. A process that works does not hang by it."""
    watch, found = HangWatch(UsualTimes(), 10), []
    process = LiveProcess("rank0", "", ProcessPlace((0, 0), "generate", "", 0), 0)
    for now in range(30):
        works = {name: Work(now, is_stopped=now in (9, 14, 20)) for name in watch.suspects(now)}
        found += [(float(now), one) for one in watch.look([process], works, now)]

    assert [one[:3] for one in said(found)] == [(10, "rank0", "slow")]


def test_a_silent_machine_after_a_restart() -> None:
    """The watch that continues waits for the machine, too."""
    process = LiveProcess("rank0@b", "", ProcessPlace((0, 0), "generate", "", 0), 0, arrived=1)
    first = HangWatch(UsualTimes(), 10)
    for now in range(50):
        first.look([process], {}, now)
    watch = HangWatch(UsualTimes(), 10)
    watch.restore(first.verdicts)

    assert [one.kind for one in first.verdicts] == ["silent"]
    assert [change for now in range(100) for change in watch.look([process], {}, now)] == []
    (withdrawn,) = watch.look([process._replace(arrived=2)], {}, 100)
    assert withdrawn == VerdictChange(first.verdicts[0], is_withdrawn=True)


class History(NamedTuple):
    """A rank that hangs in a phase: the times in seconds from its begin."""

    deadline: int
    records: list[int]  # when it records, before it hangs
    ends: int  # when it leaves the phase, or records again
    leaves: bool
    bursts: list[tuple[int, int]]  # when its processes use a core
    restarts: list[int]  # when another agent takes over


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Return a hang of up to nine deadlines, in a process that is busy at times, as is the machine."""
    deadline = draw(st.sampled_from([10, 25, 60]))
    records = sorted(draw(st.lists(st.integers(0, 3 * deadline), max_size=6)))
    hangs = records[-1] if records else 0
    bursts = st.tuples(st.integers(0, 12 * deadline), st.integers(1, 2 * deadline))
    return History(
        deadline,
        records,
        hangs + draw(st.integers(6 * deadline, 9 * deadline)),
        draw(st.booleans()),
        draw(st.lists(bursts, max_size=8)),
        draw(st.lists(st.integers(hangs, 12 * deadline), max_size=2)),
    )


@given(histories())
@settings(max_examples=400, deadline=None)
def test_a_hang_begins_once_and_ends_once(history: History) -> None:
    """From its last progress on, the rank hangs once, and goes on once, at its progress, whoever uses the CPU."""
    watch = HangWatch(UsualTimes(), history.deadline)
    hangs, cpu, found = (history.records or [0])[-1], 0.0, []
    for now in range(max(12 * history.deadline, history.ends + 1)):
        if now in history.restarts:
            earlier, watch = watch.verdicts, HangWatch(UsualTimes(), history.deadline)
            watch.restore(earlier)
        cpu += any(begin <= now < begin + length for begin, length in history.bursts)
        is_over = now >= history.ends
        place = ProcessPlace((0, 0), "reward" if is_over and history.leaves else "generate", "", 0)
        recorded = [one for one in history.records if one <= now] + [history.ends] * is_over
        process = LiveProcess("rank0", "", place, max(recorded, default=0))
        works = {name: Work(cpu) for name in watch.suspects(now)}
        found += [(now, one) for one in watch.look([process], works, now)]
    of_hang = [(time, kind) for time, _, kind, *_ in said(found) if hangs < time <= history.ends and kind != "slow"]

    assert [kind for _, kind in of_hang] == ["hung", "withdrawn"]
    assert of_hang[0][0] >= hangs + history.deadline
    assert of_hang[1][0] == history.ends


def remote(heard: Sequence[range], until: int, moves_at: int = 1 << 30) -> list[tuple[float, str, str]]:
    """Return the verdicts on two ranks in one phase; the second one's machine sends every 10 s in some ranges.

    At a time the second rank begins another phase, as records say that its machine sends after a silence.
    """
    watch = HangWatch(UsualTimes(), 20)
    found, arrived = [], 1
    for now in range(until):
        arrived = now * S + 1 if now % 10 == 0 and any(now in one for one in heard) else arrived
        phase = "update" if now >= moves_at else "generate"
        ranks = [
            LiveProcess("rank0", "", ProcessPlace((0, 0), "generate", "", 0), 0),
            LiveProcess("rank1@b", "", ProcessPlace((0, 0), phase, "", 0), 0, arrived=arrived),
        ]
        works = {name: Work(0.0 if name == "rank0" else math.nan) for name in watch.suspects(now)}
        found += [(float(now), one) for one in watch.look(ranks, works, now)]
    return [one[:3] for one in said(found)]


def test_a_machine_that_is_silent() -> None:
    """It is named alone, and the rank that may wait for it is not; a rank of a machine that sends hangs at once."""
    assert remote([range(11)], 90) == [(40, "rank1@b", "silent")]
    assert remote([range(90)], 90) == [(20, "rank0", "hung"), (20, "rank1@b", "hung")]


def test_a_machine_that_is_heard_again() -> None:
    """The verdict is withdrawn: the rank has gone on meanwhile, or it has its time again before it hangs."""
    went_on = remote([range(11), range(60, 200)], 79, moves_at=60)
    stands = remote([range(11), range(60, 200)], 90)

    assert went_on[:2] == [(40, "rank1@b", "silent"), (60, "rank1@b", "withdrawn")]
    assert stands == [
        (40, "rank1@b", "silent"),
        (60, "rank1@b", "withdrawn"),
        (80, "rank0", "hung"),
        (80, "rank1@b", "hung"),
    ]


def test_a_hang_before_the_silence() -> None:
    """A process that was seen to hang is not said to be well because its machine is silent later."""
    assert remote([range(31)], 200) == [(20, "rank0", "hung"), (20, "rank1@b", "hung")]


def test_a_hang_teaches_little() -> None:
    """A phase that took an hour because it hung counts as if it had ended at its deadline."""
    usual = UsualTimes()
    for _ in range(30):
        usual.learn(("", "generate", ""), 10)
    before = usual.of(("", "generate", "")).deadline
    usual.learn(("", "generate", ""), 3600)

    assert (before, usual.of(("", "generate", ""))[0]) == (60, 300)


def test_the_first_time_compiles() -> None:
    """It counts as long as there are few times of the phase."""
    usual = UsualTimes()
    key = ("", "update_actor", "")
    usual.learn(key, 200)
    for _ in range(10):
        usual.learn(key, 1)
    early = usual.of(key).deadline
    for _ in range(10):
        usual.learn(key, 1)

    assert (early, usual.of(key).deadline) == (1000, 60)
