"""Messages that end trainings: what each means, and one thing to do.

A message is read in the last lines of a process that ended badly, and nowhere else: a training that goes on prints
tracebacks and retries too. One that `follows` is printed by those who lose a peer, and says nothing of the peer.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class KnownMessage(NamedTuple):
    """A message, by a pattern."""

    pattern: str
    means: str
    advice: str
    follows: bool = False


KNOWN_MESSAGES = (
    KnownMessage(
        r"CUDA out of memory|OutOfMemoryError|HIP out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation",
        "the memory of the GPU is full",
        advice="Lower the micro-batch, the length of completions, or the memory that the engine reserves.",
    ),
    KnownMessage(
        r"CUDA error: (an illegal memory access|device-side assert|unspecified launch failure|misaligned address)",
        "a kernel failed, maybe long before the line that says so",
        advice="Run it with CUDA_LAUNCH_BLOCKING=1: the traceback then names the call whose kernel fails.",
    ),
    KnownMessage(
        r"No space left on device|Disk quota exceeded|\[Errno (28|122)\]",
        "a disk or a quota is full",
        advice="Free space, or write checkpoints and caches to another disk.",
    ),
    KnownMessage(
        r"Too many open files|\[Errno 24\]",
        "the process has as many files open as it may",
        advice="Raise `ulimit -n`, or see what does not close its files and sockets.",
    ),
    KnownMessage(
        r"Cannot allocate memory|\[Errno 12\]|\bMemoryError\b",
        "the memory of the host is full",
        advice="Give the job more host memory, or use fewer workers and smaller caches.",
    ),
    KnownMessage(
        r"DataLoader worker .*killed by signal: Bus error|insufficient shared memory|bus error.*shared memory",
        "the shared memory is full",
        advice="Give the container more shared memory (`--shm-size`), or use fewer workers of data loaders.",
    ),
    KnownMessage(
        r"ModuleNotFoundError: No module named|ImportError: cannot import name",
        "a package is missing or of another version",
        advice="Install it in the environment of this process, with the version that the trainer asks for.",
    ),
    KnownMessage(
        r"Connection refused|ConnectionRefusedError|\[Errno 111\]",
        "nothing listens at the address",
        advice="See whether the server at that address runs, and listens on that port.",
    ),
    KnownMessage(
        r"\b429\b.*Too Many Requests|\bRateLimitError\b|rate limit (?:reached|exceeded)",
        "a service refuses requests, as there are too many",
        advice="Send fewer requests at once, and wait between tries for as long as the answer asks.",
    ),
    KnownMessage(
        r"EOF when reading a line",
        "a program waited for input, and there is none",
        advice="Start it without a question: with its option for batch jobs, or its answer in the settings.",
    ),
    KnownMessage(
        r"EngineDeadError|Engine core (?:proc|process).*(?:died|failed)|EngineCore (?:encountered|failed)",
        "the inference engine has ended",
        advice="Read what the engine itself printed before: its own first error says why.",
        follows=True,
    ),
    KnownMessage(
        r"Connection (?:closed|reset) by peer|remote process exited|NCCL watchdog|Watchdog caught collective"
        r"|unhandled system error.*NCCL|NCCL.*unhandled system error|socketProgress|Broken pipe|BrokenPipeError"
        r"|ActorDiedError|The actor died|WorkerCrashedError|ChildFailedError|DistNetworkError",
        "another process is gone",
        advice="Look at the process that ended first: this one only lost its peer.",
        follows=True,
    ),
)
"""The first one whose pattern is in a line counts."""
_ERROR = re.compile(
    r"(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure)\b(?::|$)|Fatal Python error:"
)
"""The line of a traceback that names the exception; other lines are of its frames."""


def known(line: str) -> KnownMessage | None:
    """Return what a line is known to mean; `None` if it is not known."""
    return next((message for message in KNOWN_MESSAGES if re.search(message.pattern, line)), None)


def names_an_error(line: str) -> bool:
    """Return whether a line names an exception or a fault, as the last line of a traceback does."""
    return _ERROR.match(line.lstrip("[]0123456789rank: ")) is not None
