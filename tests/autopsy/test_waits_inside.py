"""Waits inside of a process: its threads, queues, pools, and the trajectories that it made."""

from __future__ import annotations

from msgspec.structs import replace

from otel_rl.autopsy.evidence import ConnectionSeen, Frame, Kernel, Thread
from otel_rl.autopsy.verdict import verdict_of
from otel_rl.recorder.archive.now import MadeNow, Now
from tests.autopsy.written import AT, S, machine, now, seen, stack, waits_in

_POOL = Frame("/usr/lib/python3.11/concurrent/futures/thread.py", 83, "_worker")


def in_pool(thread: Thread) -> Thread:
    """Return a thread that a pool of threads has started."""
    return replace(thread, frames=(*thread.frames, _POOL))


def made(ended: int, *, failed: int = 0, is_open: int = 0, error: str = "") -> MadeNow:
    """Return what rank 0 has made, the last one 20 s ago."""
    return MadeNow(
        role="",
        rank=0,
        ended=ended,
        failed=failed,
        open=is_open,
        last="prompt 25",
        last_unix_nano=AT - 20 * S,
        failure="prompt 24" if error else "",
        failure_unix_nano=AT - 20 * S if error else 0,
        error=error,
    )


def verdict(
    *threads: Thread, trajectories: MadeNow | None = None, phase: str = "generate", kernel: Kernel | None = None
):
    """Return the verdict on a rank with these threads, which is late."""
    agent: Now = replace(now((0, "", phase)), made=(trajectories,) if trajectories else ())
    rank = seen(0, *threads) if kernel is None else seen(0, *threads, kernel=kernel)
    return verdict_of([machine(rank)], [agent], AT)


def test_the_thread_that_is_joined() -> None:
    """Its own wait is the cause, by the kernel's view of it; the sentence says where the main thread waits."""
    asks = replace(
        stack("upload"), name="uploader", number=7, kernel=Kernel(state="S", syscall="recvfrom", target="socket:[5]")
    )
    found = verdict(waits_in("threading", "join", "train.py:24 (finish)"), asks, phase="")

    assert found.kind == "no answer"
    assert found.sentence.startswith("Thread uploader of rank 0 waits for an answer at train.py:7 (upload)")
    assert found.sentence.endswith("; rank 0 waits for it at train.py:24 (finish).")


def test_a_thread_that_spins() -> None:
    """The main thread waits for an event although its process is busy: another thread is."""
    spins = replace(stack("loop"), name="engine", number=7, kernel=Kernel(state="R", busy=0.9))
    waits = Thread((Frame("/usr/lib/python3.11/threading.py", 1, "wait"), Frame("/home/me/train.py", 9, "update")))
    found = verdict(waits, spins, kernel=Kernel(state="S", syscall="futex", busy=0.95))

    assert (found.kind, found.who) == ("busy", ("thread engine of rank 0",))
    assert "train.py:7 (loop)" in found.sentence


def test_idle_threads_are_not_awaited() -> None:
    """A thread that takes from a queue, one that listens, and one of a library are none; who asks is the cause."""
    idle = waits_in("queue", "get", "log.py:3 (write)", "writer")
    listens = waits_in("socket", "accept", "serve.py:3 (serve)", "listener")
    monitor = Thread((Frame("/x/site-packages/tqdm/_monitor.py", 60, "run"),), "monitor")
    asks = waits_in("http/client", "getresponse", "tools.py:8 (call_tool)", "tools")
    found = verdict(waits_in("queue", "get"), idle, listens, monitor, asks)

    assert found.who == ("thread tools of rank 0",)
    assert "call_tool" in found.sentence


def test_a_queue_that_nobody_fills() -> None:
    """No other thread of the user is left, so none can put into a queue of the process."""
    found = verdict(waits_in("queue", "get"), phase="update")

    assert (found.kind, found.sure) == ("alone", "likely")
    assert "no other thread or task of it is left that could put into it" in found.sentence
    others = waits_in("queue", "get", "log.py:3 (write)", "writer")
    assert verdict(waits_in("queue", "get"), others, phase="update").kind == "queue"


def test_a_full_queue() -> None:
    """To put is not to take: with a producer that waits to put too, nothing takes from the queue."""
    found = verdict(waits_in("queue", "put", "train.py:5 (give_back)"), waits_in("queue", "put", name="producer"))

    assert found.kind == "full queue"
    assert found.sentence.startswith(
        "Rank 0 waits to put into a full queue at train.py:5 (give_back), and nothing takes from it, "
        "thread producer of rank 0 waits to put too"
    )


def test_a_full_queue_whose_consumer_waits() -> None:
    """The consumer of a full queue is known: what it waits for is the cause."""
    consumer = waits_in("http/client", "getresponse", "tools.py:8 (score)", "scorer")
    found = verdict(waits_in("queue", "put"), consumer)

    assert (found.kind, found.who) == ("no answer", ("thread scorer of rank 0",))


def test_a_pool_that_waits_for_itself() -> None:
    """All threads of the pool wait for results of pools, and none waits for work."""
    waits = in_pool(waits_in("concurrent/futures/_base", "result", "act.py:9 (plan)"))
    main = waits_in("concurrent/futures/_base", "result")
    found = verdict(main, waits, waits)

    assert found.kind == "full pool"
    assert "all of them wait for results of the same pool" in found.sentence
    idle = Thread((_POOL,))
    assert verdict(main, waits, waits, idle).kind != "full pool"
    works = in_pool(waits_in("http/client", "getresponse", "act.py:3 (call)"))
    assert verdict(main, waits, works).kind == "no answer"


def test_a_trajectory_failed() -> None:
    """No trajectory is open and one of the phase failed: its error is the cause, whatever the event loop waits for."""
    loop = waits_in("asyncio/base_events", "run_forever")
    error = "HTTPError: HTTP Error 500: no worker"
    found = verdict(loop, trajectories=made(27, failed=1, error=error))

    assert (found.kind, found.sure) == ("failed", "likely")
    assert found.sentence.startswith(
        f"A trajectory of rank 0 (prompt 24) failed 20 s ago with {error}, and none is open; "
    )
    assert verdict(loop, trajectories=made(27, failed=1, is_open=1, error=error)).kind == "queue"
    assert verdict(loop, trajectories=made(27, failed=1, error=error), phase="update").kind == "queue"
    earlier = replace(made(27, error=error), failure_unix_nano=AT - 90 * S)
    assert verdict(loop, trajectories=earlier).kind == "none open"


def test_a_trajectory_failed_for_a_thread() -> None:
    """Its error outranks the event that a thread of the rank waits for; not if that thread asks a server."""
    main, error = waits_in("queue", "get"), "PromptTooLongError: 4,097 tokens"
    clears = waits_in("threading", "wait", "roll.py:9 (collect)", "collector")
    found = verdict(main, clears, trajectories=made(27, failed=1, error=error))

    assert (found.kind, found.sure) == ("failed", "likely")
    assert found.sentence.startswith(f"A trajectory of rank 0 (prompt 24) failed 20 s ago with {error}")
    asks = waits_in("http/client", "getresponse", "tools.py:8 (score)", "scorer")
    assert verdict(main, asks, trajectories=made(27, failed=1, error=error)).kind == "no answer"
    assert verdict(main, clears, trajectories=made(27)).kind == "lock"
    assert verdict(main, clears, trajectories=made(27, failed=1, is_open=1, error=error)).kind == "lock"


def test_a_producer_whose_trajectories_all_fail() -> None:
    """Records outrank the stack of the thread, which sleeps between two attempts; one failure does not."""
    producer = replace(stack("answer"), name="producer", number=7, kernel=Kernel(state="S", syscall="clock_nanosleep"))
    main = waits_in("queue", "get")
    found = verdict(main, producer, trajectories=made(40, failed=14, error="ValueError: no backend"))

    assert found.sentence.startswith(
        "The last 14 trajectories of rank 0 failed, the newest one 20 s ago with ValueError"
    )
    assert verdict(main, producer, trajectories=made(40, failed=1, error="ValueError: x")).kind == "sleep"
    assert verdict(main, producer, trajectories=made(40, failed=14, is_open=16, error="ValueError: x")).kind == "sleep"


def test_a_collector_that_has_ended() -> None:
    """Its trajectories have ended, none is open, and no thread of it is left."""
    main = stack("wait_for_buffer")
    found = verdict(main, trajectories=made(26), kernel=Kernel(state="S", syscall="clock_nanosleep"))

    assert found.kind == "none open"
    assert found.sentence.startswith(
        "No trajectory of rank 0 is open, and no thread is left that collects them: 26 have ended, the last one "
        "(prompt 25) 20 s ago, and none has begun since; rank 0 sleeps at train.py:7 (wait_for_buffer)"
    )


def test_a_connection_of_another_thread_is_not_awaited() -> None:
    """A queue of the process has no server: an engine to which the process is connected is not the cause."""
    engine = seen(-1, kernel=Kernel(state="S", syscall="epoll_wait"))
    rank = seen(0, waits_in("queue", "get"), connections=(ConnectionSeen(peer="127.0.0.1:8000", pid=engine.pid),))
    found = verdict_of([machine(rank, engine)], [now((0, "", "update"))], AT)

    assert found.who == ("rank 0",)


def test_a_thread_that_waits_for_an_event() -> None:
    """It is named once: it is not another thread of itself."""
    waits = waits_in("threading", "wait", "roll.py:9 (collect)", "collector")
    found = verdict(waits_in("queue", "get"), waits, phase="update")

    assert found.sentence.startswith(
        "Thread collector of rank 0 waits for an event or a condition at roll.py:9 (collect)"
    )
    assert "in another thread" not in found.sentence
