"""The activity of a process, read from the stacks of its threads and from the kernel's view."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.autopsy.evidence import Frame, Kernel, ProcessSeen, Thread

ActivityKind = Literal[
    "stopped",
    "zombie",
    "drops",
    "disk",
    "collective",
    "request",
    "queue",
    "put",
    "data",
    "lock",
    "child",
    "thread",
    "loop",
    "file",
    "sleep",
    "busy",
    "native",
    "unknown",
]
"""The kinds of what a thread does; `collective` to `loop` wait for somebody else."""
WAITS: frozenset[ActivityKind] = frozenset(
    ("collective", "request", "queue", "put", "data", "lock", "child", "thread", "loop")
)
BUSY = 0.5
"""Number of CPUs that a process uses at least if it works."""
_BUSY_AMONG_OTHERS = 0.05
_INNERMOST = 16
_ENTRIES = ("<module>", "main")
"""Functions from which everything is called."""
_OF_OTHERS: tuple[ActivityKind, ...] = ("collective", "request", "data", "child", "file", "sleep", "busy")
"""The activities of another thread that say more than that the main thread waits for it."""
_HANDLES = re.compile(r"(\A|/)(socketserver|http/server|werkzeug/serving|cheroot/server|grpc/_server)\.py\Z")
"""Files of libraries in whose threads a server works on requests."""
_NAMED = re.compile(r"(site-packages|dist-packages|lib/python3\.\d+|<frozen)")
_LOCKED = re.compile(r"^(with\b.*|.*\.acquire\(.*)")
_CALLS: tuple[tuple[ActivityKind, str, str, str], ...] = (
    ("loop", "waits for connections", r"socket|ssl|multiprocessing/connection", "accept"),
    ("put", "waits to put into a full queue", r"queue|multiprocessing/queues", "put"),
    ("put", "waits until what it has put into a queue is taken", r"multiprocessing/queues", "_finalize_join"),
    ("data", "waits for its data loader", r"torch/utils/data/dataloader", "_(try_)?get_data|_next_data|__next__"),
    ("queue", "waits for a Ray object", r"ray/_private/(worker|client_mode_hook)", "get|wait|get_objects"),
    ("request", "waits for an answer", r"http/client|urllib/request", r"\w+"),
    (
        "request",
        "waits for an answer",
        r"((urllib3|requests|httpx|httpcore|zmq|websockets)/.*|aiohttp/client.*|grpc/_channel)",
        r"\w+",
    ),
    ("request", "waits for a manager process", r"multiprocessing/managers", "_callmethod|_create|connect"),
    (
        "queue",
        "waits for a queue",
        r"multiprocessing/(queues|pool|synchronize)",
        "get|wait|next|join|acquire|__enter__",
    ),
    ("queue", "waits for another process", r"multiprocessing/connection", r"_?recv\w*|_?poll|wait|_?send\w*"),
    (
        "child",
        "waits for a process",
        r"subprocess|multiprocessing/(popen_\w+|process)",
        "_?wait|_?communicate|poll|join|_try_wait",
    ),
    ("thread", "waits for the result of a thread", r"concurrent/futures/\w+", "result|wait|as_completed|shutdown"),
    ("thread", "waits for a thread", r"threading", "join|_wait_for_tstate_lock"),
    ("queue", "waits for a queue", r"queue", "get|join"),
    ("request", "waits for an answer", r"socket|ssl", r"readinto|create_connection|recv\w*|send\w*|read"),
    ("loop", "waits in its event loop", r"asyncio/\w+|selectors", r"select|_run_once|run_forever"),
    ("lock", "waits for a lock", r"threading", "acquire|__enter__"),
    ("lock", "waits for an event or a condition", r"threading", "wait|wait_for"),
)
"""Calls that wait, the most specific ones first: kind, words, and patterns of the file and of the function."""
_PATTERNS: list[tuple[ActivityKind, str, re.Pattern[str], re.Pattern[str]]] = [
    (kind, says, re.compile(rf"(\A|/)({file})\.py\Z"), re.compile(rf"({function})\Z"))
    for kind, says, file, function in _CALLS
]
_SYSCALLS: dict[str, tuple[ActivityKind, str]] = {
    **dict.fromkeys(("nanosleep", "clock_nanosleep", "pause"), ("sleep", "sleeps")),
    **dict.fromkeys(("wait4", "waitid"), ("child", "waits for a process")),
    **dict.fromkeys(("read", "readv", "pread64"), ("file", "reads from")),
    **dict.fromkeys(("write", "writev", "pwrite64", "sendfile"), ("file", "writes to")),
    **dict.fromkeys(("fsync", "fdatasync", "close"), ("file", "writes to")),
    **dict.fromkeys(("open", "openat"), ("file", "opens a file")),
    **dict.fromkeys(("flock", "fcntl"), ("file", "waits for the lock of")),
    **dict.fromkeys(("accept", "accept4"), ("loop", "waits for connections")),
    **dict.fromkeys(("recvfrom", "recvmsg", "sendto", "sendmsg", "connect"), ("request", "waits for an answer")),
}


class Activity(NamedTuple):
    """The activity of a thread."""

    kind: ActivityKind  # the kind
    text: str  # the same in words that follow a name
    place: str = ""  # the line of the user's code, such as `train.py:12 (step)`; empty if it is unknown
    call: str = ""  # the operation, of a collective


def activity_of(process: ProcessSeen) -> Activity:
    """Return what the main thread of a process does; of one that does not record, the thread that it waits for.

    The threads of a process that records are known one by one, but all of them can be needed in a collective.
    """
    kernel = process.kernel
    if kernel is None or kernel.state in "ZX":
        return Activity("zombie", "has ended")
    main = process.threads[0] if process.threads else None
    place = place_of(main.frames) if main is not None else ""
    if kernel.state in "Tt":
        how = "is stopped by a debugger" if kernel.state == "t" else "is stopped (SIGSTOP)"
        return Activity("stopped", how, place)
    if kernel.state == "D":
        where = f" ({kernel.wchan})" if kernel.wchan else ""
        return Activity("disk", f"waits for a device or a file system{where}", place)
    own = thread_activity(main, _of_main(process, kernel), moves=process.moves)
    if own.kind == "loop" and process.rank < 0 and (held := _held_request(process)) is not None:
        return held
    if own.kind in ("thread", "queue", "lock", "loop"):
        others = [thread_activity(other, other.kernel, moves=other.moves) for other in process.threads[1:]]
        for kind in ("collective",) if process.rank >= 0 else _OF_OTHERS:
            for other in others:
                if other.kind == kind and not (own.kind == "lock" and kind == "file"):
                    return other._replace(text=f"{other.text}, in another thread")
    return own


def _held_request(process: ProcessSeen) -> Activity | None:
    """Return what a server does that waits while it works on a request; `None` if no thread is seen to do so."""
    for thread in process.threads[1:]:
        if any(_HANDLES.search(frame.file) for frame in thread.frames):
            activity = thread_activity(thread, thread.kernel, moves=thread.moves)
            if activity.kind in ("lock", "queue", "thread"):
                return activity._replace(text=f"{activity.text} while it works on a request, in another thread")
    return None


def _of_main(process: ProcessSeen, kernel: Kernel) -> Kernel:
    """Return the kernel's view of a process without the CPU time of its other Python threads, which are known apart.

    C code works in threads of its own for the main thread, so the time of those stays.
    """
    others = sum(thread.kernel.busy for thread in process.threads[1:] if thread.kernel is not None)
    return msgspec.structs.replace(kernel, busy=max(0.0, kernel.busy - others))


def thread_activity(thread: Thread | None, kernel: Kernel | None, *, moves: bool = False) -> Activity:
    """Return what a thread does; the kernel's view is of the main thread."""
    frames = python_frames(thread.frames)[:_INNERMOST] if thread is not None else []
    place = place_of(frames)
    if kernel is not None and _is_busy(kernel) and moves:
        return Activity("busy", "works", place)
    called = list(itertools.takewhile(is_of_a_library, frames))  # outside of these, a library called the user's code
    # `backward` waits in a collective only if it is idle: on a CPU, the same frames are its own work.
    if (call := _collective(called)) and not (kernel is not None and call == "backward" and _is_busy(kernel)):
        return Activity("collective", f"waits in {call}", place, call)
    # The lock of a handler is made in C: no frame of `threading` shows that the thread waits for it (scenarios.py).
    if frames and "logging/__init__.py" in frames[0].file and frames[0].function in ("acquire", "handle"):
        return Activity("lock", "waits for the lock of a logging handler", place)
    waits = kernel is None or not _is_busy(kernel)
    for kind, says, file, function in _PATTERNS if waits else ():
        # A lock counts only in the innermost frame: queues, pools and loops wait in locks of their own.
        near = called[:1] if kind == "lock" else called
        if any(file.search(frame.file) and function.match(frame.function) for frame in near):
            return Activity(kind, says, place)
    if kernel is None:
        return Activity("unknown", "runs", place)
    return _by_kernel(kernel, frames, place, moves=moves)


def _by_kernel(kernel: Kernel, frames: Sequence[Frame], place: str, *, moves: bool) -> Activity:
    source = frames[0].source if frames else ""
    if _is_busy(kernel):
        how = "works" if moves else "is busy, in the same line at both looks: it works in C code, or spins"
        return Activity("busy", how, place)
    if kernel.syscall == "futex" and _LOCKED.match(source):
        return Activity("lock", "waits for a lock", place)
    if kernel.syscall == "futex" and ".get(" in source:  # `queue.SimpleQueue` is made in C
        return Activity("queue", "waits for a queue", place)
    if kernel.syscall == "futex" and ".wait(" in source:
        return Activity("collective", "waits for a collective that it has started", place, "wait")
    if kernel.target.startswith("socket:"):
        return Activity("request", "waits for an answer", place)
    if (known := _SYSCALLS.get(kernel.syscall)) is not None:
        kind, says = known
        what = f" {_named(kernel.target)}" if kernel.target else ""
        return Activity(kind, f"{says}{what}" if kind == "file" else says, place)
    if kernel.syscall in ("poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait"):
        return Activity("loop", "waits for descriptors", place)
    if kernel.syscall == "futex":
        return Activity("native", "waits in C code", place)
    return Activity("unknown", "does nothing that can be seen" if kernel.state == "S" else "runs", place)


def is_of_a_library(frame: Frame) -> bool:
    """Return whether a frame is of a package, or of the standard library."""
    return _NAMED.search(frame.file) is not None


def is_of_the_user(frame: Frame) -> bool:
    """Return whether a frame is of a file of the user; `python -c` has none."""
    return not frame.file.startswith("<") and not is_of_a_library(frame)


def _is_busy(kernel: Kernel) -> bool:
    """Return whether a process uses a CPU, or would if it got one."""
    return kernel.busy >= BUSY or (kernel.state == "R" and kernel.busy >= _BUSY_AMONG_OTHERS)


def place_of(frames: Sequence[Frame]) -> str:
    """Return the innermost line of the user's own code, such as `train.py:12 (step)`."""
    of_python = python_frames(frames)
    own = next(filter(is_of_the_user, of_python), None)
    frame = own or next((frame for frame in of_python if not frame.file.startswith("<")), None)
    return _place(frame) if frame is not None else ""


def caller_of(frames: Sequence[Frame]) -> str:
    """Return the line that called the file in which `place_of` is, if that is another file of the user; else empty.

    A small helper that sends a request or sleeps says less than who called it.
    """
    own = [*filter(is_of_the_user, python_frames(frames))]
    frame = next((frame for frame in own if frame.file != own[0].file), None)
    return _place(frame) if frame is not None and frame.function not in _ENTRIES else ""


def _place(frame: Frame) -> str:
    return f"{frame.file.rpartition('/')[2]}:{frame.line} ({frame.function})"


def python_frames(frames: Sequence[Frame]) -> list[Frame]:
    """Return the frames without native ones."""
    return [frame for frame in frames if frame.file.endswith(".py") or frame.file.startswith("<")]


def _collective(frames: Sequence[Frame]) -> str:
    """Return the operation of torch.distributed that a thread is in; empty if it is in none."""
    inside = [*_inside(frames, ("torch/distributed/distributed_c10d.py", "torch/distributed/c10d_logger.py"))]
    names = [frame.function for frame in inside if frame.function not in ("wrapper", "_object_to_tensor")]
    if names:
        return names[-1]
    if any(frame.file.endswith("torch/distributed/rendezvous.py") for frame in frames):
        return "init_process_group"
    if any(frame.file.endswith("torch/autograd/graph.py") for frame in frames[:2]):
        return "backward"
    return ""


def _inside(frames: Sequence[Frame], files: tuple[str, ...]) -> Iterator[Frame]:
    begun = False
    for frame in frames:
        if frame.file.endswith(files):
            begun = True
            yield frame
        elif begun:
            return


def _named(target: str) -> str:
    return "a pipe" if target.startswith("pipe:") else target
