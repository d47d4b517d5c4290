"""Hangs of asyncio: the tasks of a process, and which of them an event loop waits for."""

from __future__ import annotations

import asyncio

from otel_rl.autopsy.evidence import AsyncTask, Frame
from otel_rl.autopsy.verdict import verdict_of
from otel_rl.recorder.archive.autopsies import Verdict
from otel_rl.recorder.trainer.async_tasks import seen_tasks
from tests.autopsy.written import AT, machine, now, seen, waits_in

LOOP = waits_in("asyncio/base_events", "run_forever")


def task(name: str, call: str, function: str, *awaits: int, is_main: bool = False, error: str = "") -> AsyncTask:
    """Return a task that waits in a call of asyncio such as `queues.get`, from a function of train.py."""
    module, _, inside = call.partition(".")
    library = (Frame(f"/usr/lib/python3.11/asyncio/{module}.py", 1, inside),) if call else ()
    return AsyncTask(name, (*library, Frame("/home/me/train.py", 7, function)), awaits, is_main, error)


def verdict(*tasks: AsyncTask) -> Verdict:
    """Return the verdict on a rank that waits in its event loop."""
    return verdict_of([machine(seen(0, LOOP, tasks=tasks))], [now((0, "", "generate"))], AT)


def test_the_task_that_is_gathered() -> None:
    """A loop waits for the task that the main one waits for, and not for one that serves something else."""
    main, other = task("Task-1", "", "train", 1, is_main=True), task("Task-3", "locks.wait", "serve")
    found = verdict(main, task("Task-2", "subprocess.wait", "run_tool"), other)

    assert found.who == ("task run_tool of rank 0",)
    assert "train.py:7 (run_tool)" in found.sentence


def test_a_task_that_failed() -> None:
    """Nobody has asked for its result, so that the queue that it would fill stays empty."""
    main = task("Task-1", "queues.get", "train", is_main=True)
    found = verdict(main, task("collector", "", "collect", error="KeyError: 'swe'"))

    assert (found.kind, found.sure) == ("task failed", "likely")
    assert "Task collector of rank 0 has ended with KeyError: 'swe'" in found.sentence


def test_a_task_that_sleeps_is_not_accused() -> None:
    """It may look again and again, as a heartbeat: it is not known who should fill the queue."""
    main = task("Task-1", "queues.get", "train", is_main=True)

    assert verdict(main, task("heartbeat", "tasks.sleep", "beat")).sure == "unknown"


def test_idle_tasks_are_not_accused() -> None:
    """A consumer that waits for work owes nothing to a future that nobody sets."""
    main = task("Task-1", "", "train", is_main=True)

    assert verdict(main, task("writer", "queues.get", "write")).who == ("task train of rank 0",)


def test_tasks_of_this_process() -> None:
    """The tasks that wait are seen with their frames and whom they wait for, and one that failed with its error."""

    async def run_tool() -> None:
        await asyncio.Event().wait()

    async def fail() -> None:
        raise KeyError("swe")

    async def main() -> list[dict[str, object]]:
        tool, failed = asyncio.create_task(run_tool()), asyncio.create_task(fail(), name="failed")
        gathering = asyncio.create_task(_gathers(tool), name="gathering")
        await asyncio.sleep(0.01)
        known = seen_tasks()
        tool.cancel()
        await asyncio.gather(tool, failed, gathering, return_exceptions=True)
        return known

    known = {str(one["name"]): one for one in asyncio.run(main())}

    (tool,) = (place for place, one in enumerate(known.values()) if any("run_tool" in one for one in one["frames"]))
    assert known["gathering"]["awaits"] == [tool]
    assert known["failed"]["error"] == "KeyError: 'swe'"
    mains = [one for one in known.values() if one["is_main"]]
    # Other tests leave loops in threads, which have a main task of their own.
    assert len([one for one in mains if any("test_async_tasks" in str(frame) for frame in one["frames"])]) == 1


async def _gathers(task: asyncio.Task[None]) -> None:
    await asyncio.gather(task)
