"""How a process ended that left no record of it, as far as the kernel says: its exit status, and kills for memory.

Only a parent may wait for a process. But Linux keeps the exit status for others too: in `/proc` until the parent has
waited for the process, and from 6.15 on for whoever holds a descriptor of it (`PIDFD_GET_INFO`). Kills for memory are
counted in the cgroup of a process, and named in the kernel's log, which only some users may read.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from otel_rl.recorder.agent.hardware.processes import process_of
from otel_rl.recorder.agent.steps.state import is_remote
from otel_rl.recorder.files.processes import stat_fields
from otel_rl.recorder.journal.ending import BY_SIGNAL, ending_by_status
from otel_rl.recorder.journal.record_events import Lost
from otel_rl.recorder.journal.records import Finished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from otel_rl.recorder.agent.input.follow import NewRecord
    from otel_rl.recorder.agent.steps.state import Journal
    from otel_rl.recorder.journal.records import Record

_MOST_HELD = 512
"""Descriptors of processes that are held."""
_INFO = struct.Struct("=QQ11Ii")
"""`struct pidfd_info` of linux/pidfd.h: what is asked for, what is known, and the exit status at its end."""
_GET_INFO = (3 << 30) | (_INFO.size << 16) | (0xFF << 8) | 11
_EXIT = 1 << 3
_RECENT_S = 30.0
"""Seconds between a kill for memory and the end of the process, whose memory the kernel frees in between."""
_ENDS_WITHIN_S = 90
"""Seconds around the end of a Slurm job in which its processes are ended."""
_ROOT_OF_PIDS = 0xEFFFFFFC
"""Inode of the PID namespace of the machine, in whose numbers the kernel's log is."""
_CGROUPS = Path("/sys/fs/cgroup")


_SLURM = {
    "slurm_time_limit": "Slurm job {} reached its time limit",
    "slurm": "Slurm job {} was canceled or preempted",
}


class MemoryKills:
    """The number of processes of a cgroup that the kernel killed for memory, and when it rose."""

    def __init__(self, path: Path, now: float) -> None:
        self.path = path
        self._count: int | None = None
        self._rose_at = float("-inf")
        self.update(now)

    def update(self, now: float) -> None:
        """Read the number."""
        with contextlib.suppress(OSError, ValueError):  # the cgroup is gone
            fields = dict(line.split() for line in self.path.read_text().splitlines())
            count = int(fields["oom_kill"]) if "oom_kill" in fields else 0
            if self._count is not None and count > self._count:
                self._rose_at = now
            self._count = count

    def are_recent(self, now: float) -> bool:
        """Return whether there was one within the last 30 s."""
        self.update(now)
        return now - self._rose_at < _RECENT_S


class _LivingProcess(msgspec.Struct):
    """A descriptor of a process, and the kills in its cgroup."""

    descriptor: int | None = None
    kills: MemoryKills | None = None

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


class Deaths:
    """Adds what the kernel knows to the ends of processes of this machine.

    Args:
        environ: The environment of the job.
        is_stopped: Whether a signal has stopped this agent; Slurm sends it to the whole job.
    """

    def __init__(self, environ: Mapping[str, str], is_stopped: Callable[[], bool]) -> None:
        self._environ, self._is_stopped = environ, is_stopped
        self._held: dict[str, _LivingProcess] = {}
        self._cgroups: dict[Path, MemoryKills] = {}
        self._looked_at = 0.0

    def watch(self, journals: Mapping[str, Journal]) -> None:
        """Note what can be known only while processes live; release what is held of those that ended."""
        now = time.monotonic()
        for name in [name for name in self._held if name not in journals or journals[name].over]:
            self._held.pop(name).close()
        for name, journal in journals.items():
            if name not in self._held and not journal.over and not is_remote(name) and len(self._held) < _MOST_HELD:
                self._hold(name, journal)
        if now - self._looked_at >= 1:
            self._looked_at = now
            for cgroup in self._cgroups.values():
                cgroup.update(now)

    def explained(self, records: Iterable[NewRecord], journals: Mapping[str, Journal]) -> Iterator[NewRecord]:
        """Yield records; the end of a process is replaced by what is known of it."""
        for new in records:
            journal = journals.get(new.journal)
            if journal is not None and not is_remote(new.journal) and isinstance(new.record, Lost | Finished):
                yield new._replace(record=self._explained(new.journal, journal, new.record))
            else:
                yield new

    def _hold(self, name: str, journal: Journal) -> None:
        held = self._held[name] = _LivingProcess()
        process = process_of(journal.started.pid, journal.started.time)
        if process is None:
            return
        with contextlib.suppress(OSError, AttributeError):  # it has just ended; or this is not Linux
            # A descriptor of the process, not its number: the number may be that of another process when the end is
            # explained.
            held.descriptor = os.pidfd_open(process.pid)
        with contextlib.suppress(OSError, ValueError):
            if (place := kills_of(process.pid)) is not None:
                held.kills = self._cgroups.setdefault(place, MemoryKills(place, time.monotonic()))

    def _explained(self, name: str, journal: Journal, record: Lost | Finished) -> Record:
        if isinstance(record, Finished):
            by_slurm = record.error is not None and record.error[0] == signal.SIGTERM.name and self._slurm()
            if not by_slurm or record.error is None:
                return record
            why = _SLURM[by_slurm].format(self._environ["SLURM_JOB_ID"])
            return replace(record, error=(record.error[0], why))
        held = self._held.get(name, _LivingProcess())
        status = exit_status(journal.started.pid, held.descriptor)
        if status is not None and not os.WIFSIGNALED(status):
            return Lost(record.time, "exit", os.WEXITSTATUS(status))
        number = None if status is None else os.WTERMSIG(status)
        if number not in (None, signal.SIGKILL):
            return Finished(record.time, *ending_by_status(BY_SIGNAL + number))
        kills = held.kills is not None and held.kills.are_recent(time.monotonic())
        if kills or was_killed_for_memory(journal.started.pid):
            return Lost(record.time, "oom_kill", BY_SIGNAL + signal.SIGKILL)
        if number is not None:
            return Lost(record.time, self._slurm() or "signal", BY_SIGNAL + number)
        is_there = process_of(journal.started.pid, journal.started.time) is not None
        return Lost(record.time, self._slurm() or ("exec" if is_there else None))

    def _slurm(self) -> str:
        """Return why Slurm ends the job now; empty if it does not, as far as it shows."""
        if "SLURM_JOB_ID" not in self._environ:
            return ""
        end = self._environ.get("SLURM_JOB_END_TIME", "")
        if end.isdecimal() and abs(time.time() - int(end)) < _ENDS_WITHIN_S:
            return "slurm_time_limit"
        return "slurm" if self._is_stopped() else ""


def kills_of(pid: int, root: Path = _CGROUPS) -> Path | None:
    """Return the file with the kills for memory in the cgroup of a process, of version 2 or 1.

    In a container the path in /proc may be the host's; the container's own cgroup is then the root that it sees.
    """
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base, file = (root / "memory", "memory.oom_control") if controllers else (root, "memory.events")
        for directory in (base / place.lstrip("/"), base):
            if (directory / file).is_file():
                return directory / file
    return None


def exit_status(pid: int, descriptor: int | None) -> int | None:
    """Return the status of a process that has ended, as `os.wait` does; `None` if the kernel does not say it."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        fields = stat_fields(pid)
        # `Z` waits for its parent, and only then the last field is the exit status; in a living process it is 0
        # (proc_pid_stat(5)).
        if fields[0] in ("Z", "X"):
            return int(fields[-1])
    if descriptor is not None:
        import fcntl

        content = bytearray(_INFO.pack(_EXIT, *[0] * 13))
        with contextlib.suppress(OSError):  # an older kernel
            fcntl.ioctl(descriptor, _GET_INFO, content)
            known, *_, status = _INFO.unpack(content)
            if known & _EXIT:
                return int(status)
    return None


def was_killed_for_memory(pid: int) -> bool:
    """Return whether the kernel's log says so; false if this user may not read it."""
    try:
        # In a container, the log has the numbers of the machine: another process of this number may have been killed.
        if os.stat("/proc/self/ns/pid").st_ino != _ROOT_OF_PIDS:  # noqa: PTH116 - it follows the link
            return False
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    killed = re.compile(rb"\d+,\d+,(\d+),[^;]*;.*Killed process %d \(" % pid)
    try:
        while True:
            with contextlib.suppress(BrokenPipeError):  # messages were overwritten in between
                kill = killed.match(os.read(descriptor, 8192))
                if kill and time.monotonic() - int(kill[1]) / 1e6 < _RECENT_S:
                    return True
    except OSError:  # there are no more
        return False
    finally:
        os.close(descriptor)
