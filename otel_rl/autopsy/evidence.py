"""The facts that an autopsy saw: processes, stacks, the kernel's view, endpoints, devices. Nothing is concluded."""

from __future__ import annotations

import msgspec

_MOST_SHOWN = 60
"""Characters of a command in a sentence."""


class Frame(msgspec.Struct, frozen=True):
    """A frame of Python code: its file, the line that runs, the function, and the text of the line, if it is there."""

    file: str
    line: int
    function: str
    source: str = ""


class Collective(msgspec.Struct, frozen=True):
    """The last collective that a process has entered of a process group: its number, the operation, and the sizes."""

    group: str
    number: int
    operation: str
    sizes: str = ""


class ConnectionSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A TCP connection of a process."""

    peer: str  # the other end, as `address:port`
    name: str = ""  # this end, as `Kernel.target` names it
    pid: int = 0  # the process at the other end, if it is on this machine and this user may see it; 0 otherwise
    unread: int = 0  # bytes that have arrived for this process, and that it has not read
    peer_unread: int = 0  # bytes that have arrived at the other end, and that nobody has read there
    is_open: bool = True  # if false, the other end has not answered yet, or it has closed the connection


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """A process as the kernel sees it; what is about one thread is about the main thread."""

    state: str  # the state of the main thread, such as "S" (sleeps), "R", "D" (waits for a device), "T" (stopped), "Z"
    wchan: str = ""  # the function of the kernel in which it waits; empty if it is unknown
    syscall: str = ""  # the system call that it is in; empty if there is none, or if it is unknown
    target: str = ""  # the file, pipe or address that the system call is about
    busy: float = 0.0  # number of CPUs that the process used between two looks
    resident: int = 0  # its memory in bytes
    files: int = 0  # number of its open files
    files_limit: int = 0  # how many it may open


class Thread(msgspec.Struct, frozen=True):
    """A thread that runs Python code: its frames, the innermost one first."""

    frames: tuple[Frame, ...]
    name: str = ""  # its name; empty if it is unknown
    number: int = 0  # its number in the kernel; 0 if it is unknown
    kernel: Kernel | None = None  # the kernel's view of it; `None` if its number is unknown
    moves: bool = False  # if true, its stack changed between two looks


class AsyncTask(msgspec.Struct, frozen=True):
    """A task of asyncio that waits, or that failed without that anybody asked for its result."""

    name: str  # its name
    frames: tuple[Frame, ...] = ()  # its frames, the innermost one first; of one that failed, where it did
    awaits: tuple[int, ...] = ()  # the places, among the tasks of its process, of those that it waits for
    is_main: bool = False  # if true, `asyncio.run` runs it
    error: str = ""  # the exception of one that failed


class ProcessSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A process on the machine."""

    pid: int  # its process id
    parent: int = 0  # that of its parent
    role: str = ""  # its role; empty for a trainer rank
    rank: int = -1  # its rank; -1 for a process that records nothing itself
    command: str = ""  # the beginning of its command line
    started_unix_nano: int = 0  # when it was started; 0 if that is unknown
    kernel: Kernel | None = None  # the kernel's view of it; `None` if it has gone
    threads: tuple[Thread, ...] = ()  # its threads with their stacks, the main thread first
    tasks: tuple[AsyncTask, ...] = ()  # its tasks of asyncio
    moves: bool = False  # if true, the stack of its main thread changed between two looks, or it moved many bytes
    missing: str = ""  # why there are no stacks; empty if there are
    connections: tuple[ConnectionSeen, ...] = ()  # its TCP connections
    collectives: tuple[Collective, ...] = ()
    """Its last collective of each process group, by PyTorch's Flight Recorder; the last one comes last."""

    @property
    def shown_command(self) -> str:
        """The beginning of its command line in sentences, without the folder of its program."""
        program, space, rest = self.command.partition(" ")
        return f"{program.rpartition('/')[2]}{space}{rest}"[:_MOST_SHOWN].strip()


class EndpointSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics endpoint of an inference server."""

    url: str  # its address
    pid: int = 0  # the process that listens there, if it is on this machine and this user may see it; 0 otherwise
    error: str = ""  # why it gave no answer; empty if it answered
    running: float | None = None  # number of requests that it works on; `None` if it does not say
    waiting: float | None = None  # number of requests in its queue
    cache: float | None = None  # share of its key-value cache that is in use
    rate: float | None = None  # tokens per second between two looks


class DiskSeen(msgspec.Struct, frozen=True):
    """A file system: a path on it, its free bytes and files, and its size in bytes."""

    path: str
    free: int
    size: int
    free_files: int = 1


class GpuSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU: its name, its utilization and its used memory as shares of 1."""

    name: str
    utilization: float | None = None
    memory: float | None = None


class MachineSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one machine."""

    host: str  # its name
    time_unix_nano: int  # when
    cause: str = ""  # why the autopsy was asked for
    processes: tuple[ProcessSeen, ...] = ()
    """The processes of the run with their descendants, and the servers that they are connected to."""
    endpoints: tuple[EndpointSeen, ...] = ()  # the inference servers that the settings name
    disks: tuple[DiskSeen, ...] = ()  # the file systems of the run directory and of the working directories
    devices: tuple[GpuSeen, ...] = ()  # its GPUs
    memory_free: float | None = None  # share of its memory that is available; `None` if it is unknown
    oom_kills: int = 0  # number of processes that the kernel has killed for lack of memory in this cgroup
    missing: tuple[str, ...] = ()  # what could not be seen, and why
    hidden: tuple[int, ...] = ()  # ids of processes that live and record, but could not be looked at
