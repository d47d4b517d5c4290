"""The activity of a task of asyncio, read from its frames."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from otel_rl.autopsy.activity import Activity, is_of_a_library, place_of, python_frames

if TYPE_CHECKING:
    from otel_rl.autopsy.activity import ActivityKind
    from otel_rl.autopsy.evidence import AsyncTask

_CALLS: tuple[tuple[ActivityKind, str, str, str], ...] = (
    ("request", "waits for an answer", r"((httpx|httpcore|aiohttp|websockets|grpc)/.*|asyncio/streams)", r"\w+"),
    ("child", "waits for a process", r"asyncio/subprocess", r"wait|communicate"),
    ("thread", "waits for the result of a thread", r"asyncio/threads", r"\w+"),
    ("thread", "waits for other tasks", r"asyncio/(tasks|taskgroups)", r"_?wait\w*|__aexit__|as_completed|gather"),
    ("put", "waits to put into a full queue", r"asyncio/queues", "put"),
    ("queue", "waits for a queue", r"asyncio/queues", "get|join"),
    ("lock", "waits for a lock or semaphore", r"asyncio/locks", "acquire|__aenter__"),
    ("lock", "waits for an event or a condition", r"asyncio/locks", "wait|wait_for"),
    ("request", "waits for an answer", r"asyncio/\w*events", r"(sock_|create_connection|getaddrinfo)\w*"),
    ("sleep", "sleeps", r"asyncio/tasks", "sleep"),
)
"""Calls in which tasks of asyncio wait, the most specific ones first."""
_PATTERNS = [
    (kind, says, re.compile(rf"(\A|/)({file})\.py\Z"), re.compile(rf"({function})\Z"))
    for kind, says, file, function in _CALLS
]


def task_activity(task: AsyncTask) -> Activity:
    """Return what a task of asyncio does."""
    place = place_of(task.frames)
    if task.error:
        return Activity("zombie", f"has ended with {task.error}, which nobody has asked for,", place)
    called = list(itertools.takewhile(is_of_a_library, python_frames(task.frames)))
    for kind, says, file, function in _PATTERNS:
        if any(file.search(frame.file) and function.match(frame.function) for frame in called):
            return Activity(kind, says, place)
    if task.awaits:
        return Activity("thread", "waits for other tasks", place)
    return Activity("lock", "waits for a future", place)
