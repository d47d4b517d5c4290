"""The kernel's view of processes, from /proc: state, system call, CPU time, memory, files, and the tree."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from otel_rl.autopsy.evidence import Kernel
from otel_rl.recorder.secrets import without_secret_options

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST_COMMAND = 200
_X86 = (
    "read:0 write:1 open:2 close:3 poll:7 pread64:17 pwrite64:18 readv:19 writev:20 select:23 pause:34 nanosleep:35"
    " sendfile:40 connect:42 accept:43 sendto:44 recvfrom:45 sendmsg:46 recvmsg:47 wait4:61 fcntl:72 flock:73 fsync:74"
    " fdatasync:75 futex:202 clock_nanosleep:230 epoll_wait:232 waitid:247 openat:257 pselect6:270 ppoll:271"
    " epoll_pwait:281 accept4:288"
)
_ARM = (
    "epoll_pwait:22 fcntl:25 flock:32 openat:56 close:57 read:63 write:64 readv:65 writev:66 pread64:67 pwrite64:68"
    " sendfile:71 pselect6:72 ppoll:73 fsync:82 fdatasync:83 waitid:95 futex:98 nanosleep:101 clock_nanosleep:115"
    " accept:202 connect:203 sendto:206 recvfrom:207 sendmsg:211 recvmsg:212 accept4:242 wait4:260"
)
_NAMES = {
    int(number): name
    for table in [{"x86_64": _X86, "aarch64": _ARM}.get(platform.machine(), "")]
    for name, number in (entry.split(":") for entry in table.split())
}
_BY_WCHAN = {
    "futex_": "futex",
    "hrtimer_nanosleep": "clock_nanosleep",
    "do_nanosleep": "clock_nanosleep",
    "do_wait": "wait4",
    "pipe_read": "read",
    "pipe_write": "write",
    "anon_pipe_read": "read",
    "anon_pipe_write": "write",
    "sock_alloc_send_pskb": "sendto",
    "sk_stream_wait_memory": "sendto",
    "wait_woken": "recvfrom",
    "poll_schedule_timeout": "poll",
    "do_sys_poll": "poll",
    "do_select": "select",
    "ep_poll": "epoll_wait",
    "locks_lock_inode_wait": "flock",
    "flock_lock": "flock",
    "wait_for_partner": "openat",
}
"""System calls by the beginning of the kernel's function that waits."""
_OF_FILES = (
    *("read", "write", "close", "pread64", "pwrite64", "readv", "writev", "connect", "accept", "sendto", "recvfrom"),
    *("sendmsg", "recvmsg", "fcntl", "flock", "fsync", "fdatasync", "accept4"),
)
"""System calls whose first argument is a descriptor."""


class Stat(NamedTuple):
    """Fields of /proc/PID/stat: name, state, parent, CPU time in seconds, start in ticks since the boot."""

    name: str
    state: str
    parent: int
    cpu: float
    started: int


def stat_of(pid: int, thread: int = 0) -> Stat | None:
    """Return the state of a process, or of one of its threads; `None` if it has gone."""
    text = _text(f"/proc/{pid}/task/{thread}/stat" if thread else f"/proc/{pid}/stat")
    # A process names itself, with spaces and parentheses if it likes: the fields begin behind the last `)`.
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    if len(fields) < 20:
        return None
    return Stat(name, fields[0], int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[19]))


def age_of(stat: Stat) -> float:
    """Return how many seconds ago a process started."""
    up = _text("/proc/uptime").partition(" ")[0]
    return float(up) - stat.started / _TICKS if up else 0.0


def all_pids() -> list[int]:
    """Return the ids of all processes that are visible here."""
    with suppress(OSError):
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - of the kernel
    return []


def threads_of(pid: int) -> list[int]:
    """Return the ids of the threads of a process, the main thread first."""
    with suppress(OSError):
        return sorted(map(int, os.listdir(f"/proc/{pid}/task")))  # noqa: PTH208 - of the kernel
    return []


def syscall_of(pid: int, thread: int = 0) -> tuple[str, int]:
    """Return the system call that a thread is in, and its first argument; an empty name if there is none."""
    fields = _text(f"/proc/{pid}/task/{thread or pid}/syscall").split()
    if not fields:  # only a process that may use ptrace can read it
        wchan = _text(f"/proc/{pid}/task/{thread or pid}/wchan")
        return next((name for start, name in _BY_WCHAN.items() if wchan.startswith(start)), ""), -1
    # "running" on a CPU; -1 if it is stopped outside of a system call.
    if len(fields) < 2 or not fields[0].isdecimal():
        return "", -1
    number = int(fields[0])
    return _NAMES.get(number, f"syscall {number}"), int(fields[1], 16)


def catches(pid: int, number: int, thread: int = 0) -> bool:
    """Return whether a process has a handler for a signal, and a thread does not block it."""
    fields = dict(
        line.split(":", 1) for line in _text(f"/proc/{pid}/task/{thread or pid}/status").splitlines() if ":" in line
    )
    bit = 1 << (number - 1)
    with suppress(ValueError, KeyError):
        return bool(int(fields["SigCgt"], 16) & bit) and not int(fields["SigBlk"], 16) & bit
    return False


def cpu_of_threads(pid: int) -> dict[int, float]:
    """Return the CPU time in seconds of each thread of a process."""
    stats = ((thread, stat_of(pid, thread)) for thread in threads_of(pid))
    return {thread: stat.cpu for thread, stat in stats if stat is not None}


def moved_by(pid: int) -> int:
    """Return the bytes that a process has read and written, files and pipes; 0 if that is unknown."""
    fields = dict(line.split(": ", 1) for line in _text(f"/proc/{pid}/io").splitlines() if ": " in line)
    return int(fields.get("rchar", 0)) + int(fields.get("wchar", 0))


def view_of_thread(pid: int, thread: int, busy: float) -> Kernel | None:
    """Return the kernel's view of a thread that used so many CPUs; `None` if it has gone."""
    stat = stat_of(pid, thread)
    if stat is None:
        return None
    syscall, argument = syscall_of(pid, thread)
    wchan = _text(f"/proc/{pid}/task/{thread}/wchan")
    return Kernel(
        state=stat.state,
        wchan="" if wchan == "0" else wchan,
        syscall=syscall,
        target=link_of(pid, argument) if syscall in _OF_FILES else "",
        busy=busy,
    )


def view_of(pid: int, busy: float) -> Kernel | None:
    """Return the kernel's view of a process that used so many CPUs; `None` if it has gone."""
    main = view_of_thread(pid, pid, busy)
    if main is None:
        return None
    memory = _text(f"/proc/{pid}/statm").split()
    return msgspec.structs.replace(
        main,
        resident=int(memory[1]) * _PAGE if len(memory) > 1 else 0,
        files=len(files_of(pid)),
        files_limit=_files_limit(pid),
    )


def files_of(pid: int) -> dict[int, str]:
    """Return the open files of a process, by descriptor; none of another user's process."""
    links: dict[int, str] = {}
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - of the kernel
            links[int(name)] = link_of(pid, int(name))
    return links


def link_of(pid: int, descriptor: int) -> str:
    """Return what a descriptor of a process is; empty if it is unknown."""
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH115 - it need not be a path
    return ""


def working_directory(pid: int) -> str:
    """Return the working directory of a process; empty if it is unknown."""
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115
    return ""


def command_of(pid: int) -> str:
    """Return the beginning of the command line of a process, or its name."""
    words = _text(f"/proc/{pid}/cmdline").split("\0")
    if text := " ".join(" ".join(map(str, without_secret_options(words))).split()):
        return text[:_MOST_COMMAND]
    stat = stat_of(pid)
    return stat.name if stat is not None else ""


def _files_limit(pid: int) -> int:
    for line in _text(f"/proc/{pid}/limits").splitlines():
        if line.startswith("Max open files"):
            soft = line.split()[3]
            return int(soft) if soft.isdecimal() else 0
    return 0


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace").strip()
    except OSError:
        return ""
