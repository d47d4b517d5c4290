"""Debts between processes: what was recorded comes first, and who idles owes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec.structs import replace

from otel_rl.autopsy.evidence import ConnectionSeen, EndpointSeen, Frame, Kernel, ProcessSeen, Thread
from otel_rl.autopsy.verdict import verdict_of
from otel_rl.recorder.archive.now import MadeNow, Wait
from tests.autopsy.written import AT, S, machine, now, seen, stack, waits_in

if TYPE_CHECKING:
    from otel_rl.export import Outcome

_TAKES = waits_in("multiprocessing/queues", "get")
_READS = Kernel(state="S", syscall="read", target="pipe:[5]")


def of_rollouts(*counts: int) -> tuple[MadeNow, ...]:
    """Return what rollout workers have made, with the numbers of trajectories that each has open."""
    return tuple(
        MadeNow(role="rollout", rank=rank, ended=9, open=count, last="prompt 6", last_unix_nano=AT - 20 * S)
        for rank, count in enumerate(counts)
    )


def test_a_recorded_debt_outranks_a_stack() -> None:
    """The trajectory that is open is named with its worker and its time, and not the child that reads a pipe."""
    tracker = ProcessSeen(pid=9, parent=100, command="python -c from x import main", kernel=_READS, missing="no py-spy")
    wait = Wait(
        waiter="rank 0",
        kind="group",
        subject="prompt 100",
        doing="model policy",
        debtors=("rollout 0",),
        since_unix_nano=AT - 40 * S,
    )
    agent = replace(now((0, "", "wait_for_rollouts"), (0, "rollout", "")), waits=(wait,))
    worker = seen(0, waits_in("asyncio/base_events", "run_forever", "roll.py:8 (run)"), role="rollout")
    found = verdict_of([machine(seen(0, _TAKES), tracker, worker)], [agent], AT)

    assert found.kind == "unfinished"
    assert found.sentence == (
        "Rollout 0 has not finished prompt 100 (model policy) for 40 s: it waits in its event loop at roll.py:8 (run); "
        "rank 0 waits for it."
    )


@pytest.mark.parametrize(
    "command",
    [
        "/venv/bin/python -c from multiprocessing.resource_tracker import main;main(36)",
        "/venv/bin/python -c from multiprocessing.forkserver import main; main(5, 6, [])",
        "/venv/bin/python /x/torch/_inductor/compile_worker/__main__.py --pickler=p --kind=fork",
        "/x/ray/core/src/ray/raylet/raylet --raylet_socket_name=s",
        "/x/wandb/bin/wandb-core --port-filename=p",
        "tail -f train.log",
    ],
)
def test_helpers_are_no_culprits(command: str) -> None:
    """Without any stack of it, a child that serves a library is not what a queue waits for."""
    helper = ProcessSeen(pid=9, parent=100, command=command, kernel=_READS, missing="py-spy is not installed")
    found = verdict_of([machine(seen(0, _TAKES), helper)], [now((0, "", "update"))], AT)

    assert found.who == ("rank 0",)
    assert "child process" not in found.sentence


@pytest.mark.parametrize("kernel", [_READS, Kernel(state="S", syscall="futex"), Kernel(state="S", syscall="poll")])
def test_a_child_without_a_stack_that_waits(kernel: Kernel) -> None:
    """It may wait for work, so it is not accused; one that asks a server is."""
    child = ProcessSeen(pid=9, parent=100, command="python -c spawn_main()", kernel=kernel, missing="no py-spy")
    assert verdict_of([machine(seen(0, _TAKES), child)], [now((0, "", "x"))], AT).who == ("rank 0",)
    asks = replace(child, kernel=Kernel(state="S", syscall="recvfrom", target="socket:[7]"))
    assert verdict_of([machine(seen(0, _TAKES), asks)], [now((0, "", "x"))], AT).who == ("child process 9 of rank 0",)


def test_a_child_that_works_is_one() -> None:
    """The same child is named if its stack has a line of the user's code, or if the rank waits for its end."""
    works = ProcessSeen(pid=9, parent=100, command="python", kernel=Kernel(state="S", syscall="clock_nanosleep"))
    child = replace(works, threads=(stack("load"),))
    rank = seen(0, _TAKES)
    assert verdict_of([machine(rank, child)], [now((0, "", "x"))], AT).who == ("child process 9 of rank 0",)
    ends = seen(0, waits_in("subprocess", "wait"))
    writes = replace(works, kernel=Kernel(state="S", syscall="write", target="pipe:[5]"))
    found = verdict_of([machine(ends, writes)], [now((0, "", "x"))], AT)
    assert found.sentence.startswith("Child process 9 of rank 0 (python) writes to a pipe")


def test_the_end_of_a_child_is_awaited_and_not_that_of_a_helper() -> None:
    """A worker whose queue is not empty cannot end; the resource tracker, which was started before, owes nothing."""
    command = "python -c from multiprocessing.resource_tracker import main;main(36)"
    tracker = ProcessSeen(pid=8, parent=100, command=command, kernel=_READS)
    library = "/usr/lib/python3.11"
    joins = Thread((Frame(f"{library}/threading.py", 9, "join"), Frame(f"{library}/queues.py", 9, "_finalize_join")))
    worker = ProcessSeen(
        pid=9, parent=100, command="python", threads=(joins,), kernel=Kernel(state="S", syscall="futex")
    )
    rank = seen(0, waits_in("multiprocessing/process", "join"), kernel=Kernel(state="S", syscall="wait4"))

    assert verdict_of([machine(rank, tracker, worker)], [now((0, "", "close"))], AT).who == (
        "child process 9 of rank 0",
    )
    alone = verdict_of([machine(rank, tracker)], [now((0, "", "close"))], AT)
    assert alone.who == ("child process 8 of rank 0",)


@pytest.mark.parametrize("outcome", [None, "finished"])
def test_the_end_of_a_child_that_records_is_awaited(outcome: Outcome | None) -> None:
    """It is named whether it still records or has finished, and the resource tracker is not."""
    command = "python -c from multiprocessing.resource_tracker import main;main(36)"
    tracker = ProcessSeen(pid=8, parent=100, command=command, kernel=_READS)
    fills = waits_in("multiprocessing/queues", "_finalize_join")
    worker = seen(0, fills, role="env", parent=100, started_unix_nano=AT - 90 * S)
    agent = now((0, "", "close"), (0, "env", ""), outcome=outcome)
    if outcome is not None:
        worker = replace(worker, rank=-1, role="")
        agent = replace(agent, processes=[agent.processes[0], replace(agent.processes[1], ended_unix_nano=AT - 60 * S)])
    rank = seen(0, waits_in("multiprocessing/process", "join"), kernel=Kernel(state="S", syscall="wait4"))
    found = verdict_of([machine(rank, tracker, worker)], [agent], AT)

    assert found.kind == "not taken"
    assert found.who == ("env 0" if outcome is None else "env 0 (finished)",)


def test_the_number_of_a_finished_process_is_given_again() -> None:
    """A process that started after the end of the recording is another one."""
    worker = ProcessSeen(pid=200, parent=100, kernel=_READS, started_unix_nano=AT - 30 * S)
    agent = now((0, "", "close"), (0, "env", ""), outcome="finished")
    agent = replace(agent, processes=[agent.processes[0], replace(agent.processes[1], ended_unix_nano=AT - 60 * S)])
    rank = seen(0, waits_in("multiprocessing/process", "join"), kernel=Kernel(state="S", syscall="wait4"))

    assert verdict_of([machine(rank, worker)], [agent], AT).who == ("rank 0",)


@pytest.mark.parametrize("phase", ["wait_for_rollouts", "update_actor"])
def test_workers_that_wait_for_work_are_idle(phase: str) -> None:
    """Two rollouts in `Queue.get` with no trajectory open make no circle, whatever the rank does."""
    workers = [seen(rank, _TAKES, role="rollout") for rank in (0, 1)]
    agent = replace(now((0, "", phase), (0, "rollout", ""), (1, "rollout", "")), made=of_rollouts(0, 0))
    found = verdict_of([machine(seen(0, _TAKES), *workers)], [agent], AT)

    assert found.kind == ("none open" if phase == "wait_for_rollouts" else "queue")
    assert found.who == ("rank 0",)
    busy = seen(0, stack("update"), kernel=Kernel(state="R", busy=1.0))
    assert verdict_of([machine(busy, *workers)], [agent], AT).who == ("rank 0",)


def test_a_circle_of_guesses_is_none() -> None:
    """Each of two rollouts may wait for the other, but only proven debts make a circle."""
    workers = [seen(rank, _TAKES, role="rollout") for rank in (0, 1)]
    agent = replace(now((0, "", "x"), (0, "rollout", "a"), (1, "rollout", "b")), made=of_rollouts(1, 1))
    found = verdict_of([machine(seen(0, _TAKES), *workers)], [agent], AT)

    assert found.kind != "circle"
    asks = [
        seen(
            rank,
            waits_in("socket", "recv"),
            role="rollout",
            kernel=Kernel(state="S", syscall="recvfrom", target=f"socket:[{rank}]"),
            connections=(ConnectionSeen(peer="127.0.0.1:1", name=f"socket:[{rank}]", pid=201 - rank),),
        )
        for rank in (0, 1)
    ]
    assert verdict_of([machine(seen(0, _TAKES), *asks)], [agent], AT).kind == "circle"


@pytest.mark.parametrize(("error", "is_child"), [("no answer within 2 s", True), ("no answer within 2 s", False)])
def test_an_endpoint_and_its_process_are_one(error: str, is_child: bool) -> None:
    """The process behind the port says why the endpoint is silent; without one, it is only silent."""
    asks = waits_in("http/client", "getresponse", "train.py:5 (generate)")
    rank = seen(0, asks, connections=(ConnectionSeen(peer="127.0.0.1:8000", pid=9),))
    sleeps = Thread((Frame("/home/me/engine.py", 32, "load_weights", "time.sleep(300)"),))
    process = ProcessSeen(pid=9, parent=100, threads=(sleeps,), kernel=Kernel(state="S", syscall="clock_nanosleep"))
    url = "http://127.0.0.1:8000/metrics"
    endpoint = EndpointSeen(url=url, error=error, pid=9 if is_child else 0)
    seen_here = msgspec.structs.replace(machine(rank, *([process] if is_child else [])), endpoints=(endpoint,))
    found = verdict_of([seen_here], [now((0, "", "generate"))], AT)

    if is_child:
        assert found.kind == "no answer"
        assert f"Engine {url} (child process 9 of rank 0) has not answered: it sleeps at engine.py:32" in found.sentence
        assert "restart" not in found.advice
    else:
        assert found.kind == "silent"


def _server(*threads: Thread) -> ProcessSeen:
    """Return a child of rank 0 that serves requests."""
    accepts = waits_in("selectors", "select", "serve.py:9 (serve)")
    return ProcessSeen(pid=7, parent=100, kernel=Kernel(state="S", syscall="poll"), threads=(accepts, *threads))


def _asked_server(*threads: Thread) -> str:
    asks = seen(0, waits_in("socket", "readinto"), connections=(ConnectionSeen(peer="127.0.0.1:8000", pid=7),))
    return verdict_of([machine(asks, _server(*threads))], [now((0, "", "generate"))], AT).sentence


def test_a_server_that_holds_a_request() -> None:
    """Its thread that works on the request says more than the one that waits for connections; its port is named."""
    handler = Frame("/usr/lib/python3.11/socketserver.py", 691, "process_request_thread")
    waits = waits_in("threading", "wait", "serve.py:5 (wait_until_resumed)")

    assert _asked_server(Thread((*waits.frames, handler))) == (
        "Child process 7 of rank 0 at 127.0.0.1:8000 has not answered: it waits for an event or a condition while it "
        "works on a request, in another thread at serve.py:5 (wait_until_resumed); rank 0 waits for it."
    )


def test_a_server_whose_scheduler_idles() -> None:
    """A thread that works on no request waits by design."""
    idles = waits_in("threading", "wait", "serve.py:3 (schedule)")

    assert "it waits in its event loop at serve.py:9 (serve)" in _asked_server(idles)


def test_a_timer_in_a_sync() -> None:
    """A rank that sleeps while it syncs weights waits for its timer, and not for the engine it is connected to."""
    engine = ProcessSeen(pid=7, kernel=Kernel(state="S", syscall="epoll_wait"), command="vllm serve")
    sleeps = seen(
        0,
        stack("wait_before_update"),
        kernel=Kernel(state="S", syscall="clock_nanosleep"),
        connections=(ConnectionSeen(peer="127.0.0.1:8000", pid=7),),
    )
    found = verdict_of([machine(sleeps, engine)], [now((0, "", "weight_sync"))], AT)

    assert found.sentence.startswith("Rank 0 sleeps at train.py:7 (wait_before_update) in weight_sync")
    assert not {"network", "server"} & {*found.sentence.split(), *found.advice.split()}
