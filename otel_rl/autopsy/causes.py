"""The causes that a verdict can name, with how sure each is and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from otel_rl.recorder.facts.order import Evidence
    from otel_rl.recorder.facts.states import Sure


class CauseKind(NamedTuple):
    """A cause: how sure it is, what to do, and how it is known."""

    sure: Sure
    advice: str
    by: Evidence = "kernel"


KINDS: dict[str, CauseKind] = {
    "died": CauseKind(
        "certain", "Look at its last lines and at the kernel's log (`dmesg`), then start the run again.", "recorded"
    ),
    "stopped": CauseKind("certain", "Run `kill -CONT {pid}` on {host}, or look for the debugger or the batch system."),
    "worker died": CauseKind(
        "certain", "Look for its error or an OOM kill; use fewer workers, or less memory in each."
    ),
    "silent": CauseKind("certain", "Look at the log of the server and restart it; set a time limit for requests."),
    "stuck": CauseKind(
        "likely", "Look at the log of the engine: a request may be longer than its cache, or it is paused."
    ),
    "circle": CauseKind("likely", "Break the circle: let one of them send first, or set a time limit."),
    "disk full": CauseKind("likely", "Free space on that file system."),
    "disk": CauseKind("likely", "Look at the file server or the disk: `dmesg`, `mount`, and `nfsstat` on {host}."),
    "mismatch": CauseKind(
        "likely", "Let all ranks call the same collectives in the same order, from one thread.", "stack"
    ),
    "left": CauseKind(
        "certain", "Look at why it ended first. Ranks need equally many steps, or `Join` for uneven data.", "recorded"
    ),
    "drops": CauseKind(
        "likely", "Look at the reason. If samples are too old: allow older ones, make fewer, sync weights.", "recorded"
    ),
    "failed": CauseKind(
        "likely",
        "Look at that error. Whoever fails gives nothing, so put errors into the queue too.",
        "recorded",
    ),
    "task failed": CauseKind(
        "likely", "Look at that error. Keep tasks, and await them, so that it is raised where it matters.", "stack"
    ),
    "lost result": CauseKind(
        "likely",
        "Look for an OOM kill (`dmesg`). `concurrent.futures.ProcessPoolExecutor` raises an error where a worker dies.",
    ),
    "none open": CauseKind(
        "likely",
        "Look at who begins trajectories: it has ended, or has no work. Signal the end of data to those who wait.",
        "recorded",
    ),
    "full pool": CauseKind(
        "likely",
        "Use another pool for calls that a worker waits for, or one with more threads than such workers.",
        "stack",
    ),
    "full queue": CauseKind(
        "likely",
        "Do not put from where the queue is emptied: use a larger queue, `put_nowait`, or another thread.",
        "stack",
    ),
    "not taken": CauseKind(
        "likely",
        "Empty the queue before you wait for the end of who fills it, or call `cancel_join_thread()` there.",
        "stack",
    ),
    "no taker": CauseKind(
        "likely",
        "Look at why the thread ended that takes from this queue; let it pass its error on to those that wait.",
        "stack",
    ),
    "alone": CauseKind(
        "likely", "Look at why the threads ended that fill this queue; let each put a last item that says so.", "stack"
    ),
    "file": CauseKind("likely", "Look at who should read or write the other end, or at the file server."),
    "lock": CauseKind("likely", "Look below for the thread that holds the lock, or would set the event.", "stack"),
    "no answer": CauseKind("likely", "Look at the server: its log, its queue; set a time limit for requests."),
    "behind": CauseKind("likely", "Pause or abort the requests of the engine before you control it."),
    "unfinished": CauseKind(
        "likely", "Look at what it waits for there; set a time limit for each trajectory and its parts.", "recorded"
    ),
    "sleep": CauseKind(
        "likely", "Look at the line that sleeps: what does it wait for, and who would end that?", "stack"
    ),
    "data": CauseKind("likely", "Look at the data loader: its source may be slow, empty or locked.", "stack"),
    "child": CauseKind("likely", "Look at the child process: set a time limit for tools and environments."),
    "queue": CauseKind("unknown", "Look at who fills this queue, and whether it still does.", "stack"),
    "native": CauseKind("unknown", "Install py-spy for its native frames: pip install 'otel-rl[autopsy]'.", "stack"),
    "busy": CauseKind(
        "likely", "It may only be slow: look again in a minute. Equal stacks then mean that it spins.", "stack"
    ),
    "full": CauseKind("likely", "It is only slow: add engines, or send fewer requests at once."),
    "idle": CauseKind("likely", "Look at the way between trainer and engine: the request or its answer was lost."),
    "network": CauseKind("unknown", "Look at the network between the ranks, and at ranks that were not seen.", "stack"),
    "unknown": CauseKind("unknown", "Look at the stacks below.", "stack"),
}
"""All causes; of several that are equally sure, the first one in this order is named."""
