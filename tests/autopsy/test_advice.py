"""Advice of verdicts: each where it helps, which ends its cause, and where another one is right."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from otel_rl.autopsy.causes import KINDS
from otel_rl.autopsy.evidence import (
    AsyncTask,
    ConnectionSeen,
    DiskSeen,
    EndpointSeen,
    Frame,
    Kernel,
    MachineSeen,
    ProcessSeen,
    Thread,
)
from otel_rl.autopsy.verdict import verdict_of
from otel_rl.recorder.archive.now import MadeNow, Now, Wait
from tests.autopsy.written import AT, S, machine, now, seen, stack, waits_in

WORKS = Kernel(state="R", busy=1.0)
SLEEPS = Kernel(state="S", syscall="clock_nanosleep")
TAKES = waits_in("multiprocessing/queues", "get")
OWN = waits_in("queue", "get")
PUTS = waits_in("queue", "put")
ASKS = waits_in("http/client", "getresponse")
LOOP = waits_in("asyncio/base_events", "run_forever")
RESULT = waits_in("concurrent/futures/_base", "result")
JOINED = stack("step", call="all_reduce")
POOL = Frame("/usr/lib/python3.11/concurrent/futures/thread.py", 83, "_worker")
PLANS = replace(RESULT, frames=(*RESULT.frames, POOL))
MAPS = waits_in("multiprocessing/pool", "get")
FAILED = AsyncTask("collector", stack("collect").frames, error="KeyError: 'swe'")
URL = "http://127.0.0.1:8000/metrics"


class Evidence(NamedTuple):
    """The facts of a machine, and of its agent."""

    machine: MachineSeen
    now: Now


class Case(NamedTuple):
    """Evidence for which an advice is given, and the same after somebody followed it."""

    given: Evidence
    followed: Evidence


def of(*processes: ProcessSeen, phase: str = "generate", ranks: int = 1, **more: object) -> Evidence:
    """Return the evidence of ranks in a phase that is late."""
    agent = now(*((rank, "", phase) for rank in range(ranks)))
    facts = {name: value for name, value in more.items() if name in MachineSeen.__struct_fields__}
    rest = {name: value for name, value in more.items() if name not in facts}
    return Evidence(replace(machine(*processes), **facts), replace(agent, **rest))


def asking(**load: object) -> Evidence:
    """Return the evidence of a rank that asks an engine with this load."""
    phase = str(load.pop("phase", "generate"))
    rank = seen(0, ASKS, connections=(ConnectionSeen(peer="127.0.0.1:8000"),))
    return of(rank, phase=phase, endpoints=(EndpointSeen(url=URL, **load),))  # type: ignore[arg-type]


def child(kernel: Kernel, *functions: str) -> ProcessSeen:
    """Return a child of rank 0, which is connected to it."""
    return ProcessSeen(pid=9, parent=100, kernel=kernel, threads=(stack(*functions),) if functions else ())


def idle_worker(started: int) -> ProcessSeen:
    """Return a worker of a pool that waits for work."""
    return replace(child(Kernel(state="S", syscall="read", target="pipe:[5]")), started_unix_nano=started)


def served(kernel: Kernel) -> Evidence:
    """Return the evidence of a rank that asks a child."""
    return of(seen(0, ASKS, connections=(ConnectionSeen(peer="127.0.0.1:80", pid=9),)), child(kernel, "serve"))


def made(**counts: object) -> tuple[MadeNow, ...]:
    """Return the trajectories of rank 0."""
    known = {"ended": 9, "last": "prompt 1", "last_unix_nano": AT - 20 * S} | counts
    return (MadeNow(role="", rank=0, **known),)  # type: ignore[arg-type]


def waiting(**wait: object) -> tuple[Wait, ...]:
    """Return a wait of rank 0 for rollout 0."""
    known = {"subject": "prompt 7", "debtors": ("rollout 0",), "since_unix_nano": AT - 40 * S} | wait
    return (Wait(waiter="rank 0", **known),)  # type: ignore[arg-type]


def beside_a_rollout(rollout: ProcessSeen, *waits: Wait) -> Evidence:
    """Return the evidence of a rank that takes from a queue, and of a rollout."""
    return Evidence(
        machine(seen(0, TAKES), rollout), replace(now((0, "", "generate"), (0, "rollout", "")), waits=waits)
    )


def ended(outcome: str, *others: ProcessSeen) -> Evidence:
    """Return the evidence of two ranks, of which the second one has ended so, unless it is seen again."""
    agent = now((0, "", "update"), (1, "", "update"), outcome=None if others else outcome)  # type: ignore[arg-type]
    return Evidence(machine(seen(0, JOINED), *others), agent)


def dropping(seconds_ago: int) -> Evidence:
    """Return the evidence of a rank that dropped trajectories last so long ago."""
    found = of(seen(0, stack("take")), phase="dequeue")
    process = replace(found.now.processes[0], dropped={"stale": 9}, dropped_unix_nano=AT - seconds_ago * S)
    return found._replace(now=replace(found.now, processes=[process]))


ALIVE = of(seen(0, stack("work"), kernel=WORKS))
FAILURE = {"failure": "prompt 1", "failure_unix_nano": AT - 20 * S}
ROLLS = seen(0, LOOP, role="rollout")
FULL, ROOM = (DiskSeen("/data", 0, 1 << 40),), (DiskSeen("/data", 1 << 39, 1 << 40),)
WRITES = Kernel(state="S", syscall="write", target="/data/x")
LOCKS = waits_in("threading", "acquire")

CLOSES = waits_in("multiprocessing/process", "join")
FILLS = replace(
    child(Kernel(state="S", syscall="futex")), threads=(waits_in("multiprocessing/queues", "_finalize_join"),)
)
HELD = waiting(kind="ticket", debtors=("rollout 0",), cause="circle")
OWES = (Wait(waiter="rollout 0", kind="ticket", subject="x", debtors=("rank 0",), since_unix_nano=AT, cause="circle"),)

CASES = {
    "died": Case(ended("failed"), ended("failed", seen(1, JOINED))),
    "stopped": Case(of(seen(0, stack("work"), kernel=Kernel(state="T"))), ALIVE),
    "worker died": Case(of(seen(0, TAKES), child(Kernel(state="Z"))), of(seen(0, TAKES), child(WORKS, "load"))),
    "silent": Case(asking(error="no answer within 2 s"), asking(running=3, rate=9.0)),
    "stuck": Case(asking(running=3, rate=0.0), asking(running=3, rate=9.0)),
    "circle": Case(beside_a_rollout(ROLLS, *HELD, *OWES), beside_a_rollout(ROLLS)),
    "disk full": Case(of(seen(0, stack("save"), kernel=WRITES), disks=FULL), of(seen(0, JOINED), disks=ROOM)),
    "disk": Case(of(seen(0, stack("save"), kernel=Kernel(state="D", wchan="nfs_wait"))), ALIVE),
    "mismatch": Case(
        of(seen(0, JOINED), seen(1, JOINED, stack("sync", call="broadcast", line=9)), ranks=2),
        of(seen(0, JOINED), seen(1, JOINED), ranks=2),
    ),
    "left": Case(ended("finished"), ended("finished", seen(1, JOINED))),
    "drops": Case(dropping(1), dropping(50)),
    "failed": Case(of(seen(0, LOOP), made=made(failed=1, error="E", **FAILURE)), of(seen(0, LOOP), made=made(open=1))),
    "task failed": Case(
        of(seen(0, LOOP, tasks=(AsyncTask("Task-1", OWN.frames, is_main=True), FAILED))),
        of(seen(0, LOOP, tasks=(AsyncTask("Task-1", OWN.frames, is_main=True),))),
    ),
    "lost result": Case(of(seen(0, MAPS), idle_worker(AT - S)), of(seen(0, MAPS), idle_worker(AT - 90 * S))),
    "none open": Case(of(seen(0, LOOP), made=made()), of(seen(0, LOOP), made=made(open=1))),
    "full pool": Case(of(seen(0, RESULT, PLANS, PLANS)), of(seen(0, RESULT, PLANS, Thread((POOL,))))),
    "full queue": Case(of(seen(0, PUTS)), of(seen(0, PUTS, ASKS))),
    "not taken": Case(of(seen(0, CLOSES), FILLS), of(seen(0, CLOSES), child(WORKS, "load"))),
    "no taker": Case(of(seen(0, OWN, PUTS)), of(seen(0, OWN, PUTS, ASKS))),
    "alone": Case(of(seen(0, OWN)), of(seen(0, OWN, waits_in("http/client", "getresponse", name="filler")))),
    "file": Case(of(seen(0, stack("save"), kernel=WRITES), disks=ROOM), ALIVE),
    "lock": Case(of(seen(0, LOCKS)), of(seen(0, LOCKS, waits_in("http/client", "getresponse", name="holder")))),
    "no answer": Case(served(SLEEPS), served(WORKS)),
    "behind": Case(
        asking(phase="weight_sync", running=16, rate=9.0), asking(phase="weight_sync", running=0, waiting=0)
    ),
    "unfinished": Case(beside_a_rollout(ROLLS, *waiting(kind="group")), beside_a_rollout(ROLLS)),
    "sleep": Case(of(seen(0, stack("poll"), kernel=SLEEPS)), ALIVE),
    "data": Case(of(seen(0, waits_in("torch/utils/data/dataloader", "_next_data"))), ALIVE),
    "child": Case(of(seen(0, waits_in("subprocess", "wait"))), ALIVE),
    "queue": Case(of(seen(0, TAKES)), ALIVE),
    "native": Case(of(seen(0, stack("work"))), of(seen(0, JOINED))),
    "busy": Case(ALIVE, of(seen(0, TAKES))),
    "full": Case(asking(running=64, waiting=200), asking(running=64, waiting=0, rate=9.0)),
    "idle": Case(asking(running=0, waiting=0), asking(running=1, waiting=0, rate=9.0)),
    "network": Case(of(seen(0, JOINED), seen(1, JOINED), ranks=2), of(seen(0, JOINED), seen(1, TAKES), ranks=2)),
    "unknown": Case(of(seen(0, kernel=Kernel(state="S"))), of(seen(0, TAKES, kernel=Kernel(state="S")))),
}


def test_each_cause_has_a_case() -> None:
    """So each sentence that gives advice is tried where it is right, and where it is not."""
    assert CASES.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", CASES)
def test_advice_that_helps(kind: str) -> None:
    """It is given, and no longer after somebody followed it."""
    given, followed = (verdict_of([one.machine], [one.now], AT, is_suspected=True) for one in CASES[kind])

    assert given.kind == kind
    assert given.advice.partition("`")[0] == KINDS[kind].advice.partition("`")[0]
    assert followed.kind != kind


@pytest.mark.parametrize("kind", CASES)
def test_advice_for_another_cause(kind: str) -> None:
    """The evidence of a cause gets its own advice alone."""
    case = CASES[kind].given
    advice = verdict_of([case.machine], [case.now], AT, is_suspected=True).advice

    others = {KINDS[other].advice.partition("`")[0] for other in KINDS if other != kind} - {"Run "}
    assert advice.partition("`")[0] not in others
