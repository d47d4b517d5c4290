"""Evidence that is written down: what was seen on machines, and what agents wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.autopsy.evidence import Frame, Kernel, MachineSeen, ProcessSeen, Thread
from otel_rl.recorder.archive.now import Now, PhaseNow, ProcessNow
from otel_rl.recorder.facts.signs import Stalled

if TYPE_CHECKING:
    from otel_rl.export import Outcome

S = 1_000_000_000
AT = 1_800_000_000 * S
_TORCH = "/x/site-packages/torch/distributed/distributed_c10d.py"
WAITS = Kernel(state="S", syscall="futex")


def stack(*functions: str, call: str = "", line: int = 7) -> Thread:
    """Return a thread in functions of train.py, in a collective if `call` is given."""
    inner = (Frame(_TORCH, 1, call),) if call else ()
    return Thread((*inner, *(Frame("/home/me/train.py", line, one) for one in functions)))


def seen(rank: int, *threads: Thread, kernel: Kernel = WAITS, role: str = "", **more: object) -> ProcessSeen:
    """Return a process of a rank; its process id is 100 and the rank, that of a role 200 and the rank."""
    pid = (200 if role else 100) + rank
    return ProcessSeen(pid=pid, rank=rank, role=role, threads=threads, kernel=kernel, **more)  # type: ignore[arg-type]


def now(
    *processes: tuple[int, str, str], host: str = "a", age: int = 60, outcome: Outcome | None = None, step: int = 3
) -> Now:
    """Return what an agent wrote: ranks, their roles and phases; of the last one also the outcome."""
    made = [
        ProcessNow(
            attempt=0,
            role=role,
            rank=rank,
            host=host,
            pid=(200 if role else 100) + rank,
            step=step,
            step_started_unix_nano=AT - age * S,
            phases=(PhaseNow(phase, AT - age * S),) if phase else (),
            last_unix_nano=AT - age * S,
            outcome=outcome if number == len(processes) else None,
        )
        for number, (rank, role, phase) in enumerate(processes, 1)
    ]
    first = made[0]
    late = Stalled(
        kind="hung", scope="job", rank=first.rank, host=host, since_unix_nano=first.last_unix_nano, deadline_s=10.0
    )
    return Now(
        time_unix_nano=AT,
        id="r",
        project="p",
        name="n",
        pid=1,
        state="ready",
        processes=made,
        exporters=[],
        stalled=(late,) if age > 10 else (),
    )


def machine(*processes: ProcessSeen, host: str = "a") -> MachineSeen:
    """Return what was seen on a machine."""
    return MachineSeen(host=host, time_unix_nano=AT, processes=processes)


def waits_in(file: str, function: str, place: str = "train.py:5 (take)", name: str = "") -> Thread:
    """Return a thread in a function of a library, which a line of the user's code has called."""
    where, _, called = place.partition(" ")
    user, _, line = where.partition(":")
    frames = (
        Frame(f"/usr/lib/python3.11/{file}.py", 1, function),
        Frame(f"/home/me/{user}", int(line), called.strip("()")),
    )
    return Thread(frames, name)
