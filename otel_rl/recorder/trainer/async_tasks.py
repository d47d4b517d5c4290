"""The tasks of asyncio in this process, for an autopsy: their stacks are in no thread while they wait.

It only reads, under the GIL. A task is left as it is: to ask one for its exception would silence asyncio's own report
of it. Python 3.14 keeps tasks where no other thread can list them, so none are seen there.
"""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from otel_rl.recorder.errors.texts import encodable_text, text_of, type_of
from otel_rl.recorder.secrets import redacted

if TYPE_CHECKING:
    from collections.abc import Iterator

_MODULE = "asyncio.tasks"
_SETS = ("_all_tasks", "_scheduled_tasks", "_eager_tasks")
"""The names that the sets of tasks have in versions of Python."""
_MOST, _MOST_FRAMES, _MOST_TEXT, _TRIES = 512, 16, 200, 10
_RUNS = "_run_until_complete_cb"
"""The callback of the task that `asyncio.run` runs."""


def seen_tasks() -> list[dict[str, Any]]:
    """Return the tasks that wait, and those that failed and that nobody asked for their result.

    Each has its name, its frames from the innermost one on, the places in this list of the tasks that it waits for,
    whether `asyncio.run` runs it, and its error.
    """
    tasks = [task for task in _every() if not task.done() or _has_failed(task)][:_MOST]
    places = {id(task): place for place, task in enumerate(tasks)}
    return [
        {
            "name": encodable_text(redacted(task.get_name())),
            "frames": [*_frames(task)][:_MOST_FRAMES],
            "awaits": sorted({places[id(other)] for other in _awaited(task) if id(other) in places}),
            "is_main": any(_RUNS in repr(call) for call, *_ in getattr(task, "_callbacks", None) or ()),
            "error": _error(task) if task.done() else "",
        }
        for task in tasks
    ]


def _every() -> list[Any]:
    module = sys.modules.get(_MODULE)
    for _ in range(_TRIES):
        with suppress(RuntimeError):  # another thread has made or ended a task meanwhile
            known = {id(task): task for name in _SETS for task in getattr(module, name, ())}
            return sorted(known.values(), key=lambda task: (len(task.get_name()), task.get_name()))
    return []


def _has_failed(task: Any) -> bool:
    return not task.cancelled() and task._exception is not None and task._log_traceback


def _frames(task: Any) -> Iterator[tuple[str, int, str]]:
    if task.done():
        summary = traceback.extract_tb(task._exception.__traceback__, limit=-_MOST_FRAMES)
        yield from ((frame.filename, frame.lineno or 0, frame.name) for frame in reversed(summary))
        return
    frames: list[tuple[str, int, str]] = []
    waiting = task.get_coro()
    while waiting is not None and len(frames) < 8 * _MOST_FRAMES:
        frame = _first(waiting, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None:
            frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        waiting = _first(waiting, "cr_await", "gi_yieldfrom", "ag_await")
    yield from reversed(frames)


def _first(value: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(value, name, None)) is not None), None)


def _awaited(task: Any) -> Iterator[Any]:
    """Yield the tasks that a task waits for, also by `gather` and inside of `shield`."""
    waiter = getattr(task, "_fut_waiter", None)
    yield waiter
    yield from getattr(waiter, "_children", ())


def _error(task: Any) -> str:
    error = task._exception
    return encodable_text(redacted(f"{type_of(error)}: {text_of(error)}"[:_MOST_TEXT]))
