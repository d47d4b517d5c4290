"""The facts that an autopsy saw: processes, stacks, the kernel's view, endpoints, devices. Nothing is concluded."""

from __future__ import annotations

import msgspec


class Frame(msgspec.Struct, frozen=True):
    """A frame of Python code: its file, the line that runs, the function, and the text of the line, if it is there."""

    file: str
    line: int
    function: str
    source: str = ""


class Thread(msgspec.Struct, frozen=True):
    """A thread that runs Python code: its frames, the innermost one first."""

    frames: tuple[Frame, ...]
    name: str = ""


class Collective(msgspec.Struct, frozen=True):
    """The last collective that a process has entered of a process group: its number, the operation, and the sizes."""

    group: str
    number: int
    operation: str
    sizes: str = ""


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """A TCP connection of a process.

    Attributes:
        peer: The other end, as `address:port`.
        name: This end, as `Kernel.target` names it.
        pid: The process at the other end, if it is on this machine and this user may see it; 0 otherwise.
        unread: Bytes that have arrived for this process, and that it has not read.
        peer_unread: Bytes that have arrived at the other end, and that nobody has read there.
        is_open: If false, the other end has not answered yet, or it has closed the connection.
    """

    peer: str
    name: str = ""
    pid: int = 0
    unread: int = 0
    peer_unread: int = 0
    is_open: bool = True


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """A process as the kernel sees it; what is about one thread is about the main thread.

    Attributes:
        state: The state of the main thread, such as "S" (sleeps), "R", "D" (waits for a device), "T" (stopped), "Z".
        wchan: The function of the kernel in which it waits; empty if it is unknown.
        syscall: The system call that it is in; empty if there is none, or if it is unknown.
        target: The file, pipe or address that the system call is about.
        busy: Number of CPUs that the process used between two looks.
        resident: Its memory in bytes.
        files: Number of its open files.
        files_limit: How many it may open.
    """

    state: str
    wchan: str = ""
    syscall: str = ""
    target: str = ""
    busy: float = 0.0
    resident: int = 0
    files: int = 0
    files_limit: int = 0


class ProcessSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A process on the machine.

    Attributes:
        pid: Its process id.
        parent: That of its parent.
        role: Its role; empty for a trainer rank.
        rank: Its rank; -1 for a process that records nothing itself.
        command: The beginning of its command line.
        kernel: The kernel's view of it; `None` if it has gone.
        threads: Its threads with their stacks, the main thread first.
        moves: If true, the stack of its main thread changed between two looks.
        missing: Why there are no stacks; empty if there are.
        connections: Its TCP connections.
        collectives: Its last collective of each process group, by PyTorch's Flight Recorder; the last one comes last.
    """

    pid: int
    parent: int = 0
    role: str = ""
    rank: int = -1
    command: str = ""
    kernel: Kernel | None = None
    threads: tuple[Thread, ...] = ()
    moves: bool = False
    missing: str = ""
    connections: tuple[Connection, ...] = ()
    collectives: tuple[Collective, ...] = ()


class EndpointSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics endpoint of an inference server.

    Attributes:
        url: Its address.
        error: Why it gave no answer; empty if it answered.
        running: Number of requests that it works on; `None` if it does not say.
        waiting: Number of requests in its queue.
        cache: Share of its key-value cache that is in use.
        rate: Tokens per second between two looks.
    """

    url: str
    error: str = ""
    running: float | None = None
    waiting: float | None = None
    cache: float | None = None
    rate: float | None = None


class DiskSeen(msgspec.Struct, frozen=True):
    """A file system: a path on it, its free bytes and files, and its size in bytes."""

    path: str
    free: int
    size: int
    free_files: int = 1


class DeviceSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU: its name, its utilization and its used memory as shares of 1."""

    name: str
    utilization: float | None = None
    memory: float | None = None


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one machine.

    Attributes:
        host: Its name.
        time_unix_nano: When.
        cause: Why the autopsy was asked for.
        processes: The processes of the run with their descendants, and the servers that they are connected to.
        endpoints: The inference servers that the settings name.
        disks: The file systems of the run directory and of the working directories.
        devices: Its GPUs.
        memory_free: Share of its memory that is available; `None` if it is unknown.
        oom_kills: Number of processes that the kernel has killed for lack of memory in this cgroup.
        missing: What could not be seen, and why.
        hidden: Ids of processes that live and record, but could not be looked at.
    """

    host: str
    time_unix_nano: int
    cause: str = ""
    processes: tuple[ProcessSeen, ...] = ()
    endpoints: tuple[EndpointSeen, ...] = ()
    disks: tuple[DiskSeen, ...] = ()
    devices: tuple[DeviceSeen, ...] = ()
    memory_free: float | None = None
    oom_kills: int = 0
    missing: tuple[str, ...] = ()
    hidden: tuple[int, ...] = ()
