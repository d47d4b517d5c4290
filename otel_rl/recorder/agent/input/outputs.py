"""The files that processes print into: their standard output and error, as far as these are regular files.

A thread reads them: a file on a server that is gone holds whoever reads it, and the agent has to say then what hangs.
Where reading continues is in the agent's checkpoint, so that each line becomes one record, also after a kill.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.recorder.agent.hardware.processes import process_of
from otel_rl.recorder.agent.input.follow import NewRecord
from otel_rl.recorder.agent.steps.state import is_remote
from otel_rl.recorder.convert.printed import Assembler, Transcript
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.own_files import open_regular
from otel_rl.recorder.files.processes import file_of
from otel_rl.recorder.journal.records import Printed
from otel_rl.recorder.secrets import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import BinaryIO

    from otel_rl.recorder.agent.steps.state import Journal
    from otel_rl.recorder.convert.printed import Line
    from otel_rl.recorder.settings.settings import PrintedOutput

logger = log_of(__name__)
_PAUSE_S = 0.25
_LOOK_S = 1.0
"""Seconds between two looks at the descriptors of a process, which may be replaced."""
_AT_ONCE = 1 << 18
"""Bytes of a file that are read at once."""
_LONGEST_OPEN = 1 << 16
"""Bytes of a line without an end, such as a bar that is redrawn, behind which reading goes on."""
_MOST_WAITING = 64
"""Parts of files that wait for the loop."""
_MOST_FILES = 256
_APPENDS = 0o2000
"""`O_APPEND` in /proc/PID/fdinfo, which has octal numbers on all machines of Linux."""
_PREFIXES = (
    (re.compile(r"\[rank(\d+)\]: ?"), "rank"),  # torch's traceback of a rank
    (re.compile(r"\[\w+?(\d+)\]: ?"), "local_rank"),  # torchrun --tee: [default3]:
    (re.compile(r"\[\d+,(\d+)\]<std(?:out|err)>: ?"), "rank"),  # mpirun --tag-output
    (re.compile(r"\((?:\S+ )?pid=(\d+)(?:, ip=[^)]*)?\) ?"), "pid"),  # Ray
)
_BY_SRUN = re.compile(r" *(\d+): ?")
"""The prefix of `srun -l`, which is read in a Slurm job alone: other lines begin with a number, too."""


class _Writer(NamedTuple):
    """A process that prints into a file, and as what."""

    journal: str
    stream: str
    rank: int
    local_rank: int
    pid: int
    role: str


class _Part(NamedTuple):
    """The records of a part of a file."""

    records: list[NewRecord]
    file: str
    offset: int


class Outputs:
    """Follows what the processes of this machine print into files.

    Args:
        settings: What is wanted.
        places: The bytes of each file behind which an earlier agent continues.
        in_slurm: Whether the processes belong to a Slurm job.
    """

    def __init__(self, settings: PrintedOutput, places: Mapping[str, int], *, in_slurm: bool = False) -> None:
        self._settings, self._in_slurm = settings, in_slurm
        self.places = dict(places)
        self._processes: dict[str, Journal] = {}
        self._files: dict[str, _File] = {}
        self._looked_at: dict[str, float] = {}
        self._parts: deque[_Part] = deque()
        self._wake, self._has_looked = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._has_failed = self._is_closed = False

    def watch(self, journals: Mapping[str, Journal]) -> None:
        """Follow the processes of this machine that have not ended."""
        if not self._settings.enabled or self._is_closed:
            return
        self._processes = {name: one for name, one in journals.items() if not (one.over or is_remote(name))}
        if self._processes and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="otel-rl-outputs", daemon=True)
            self._thread.start()

    def take(self) -> list[NewRecord]:
        """Return the records of lines that were read since the last call; reading continues behind them."""
        records: list[NewRecord] = []
        for _ in range(len(self._parts)):
            part = self._parts.popleft()
            records += part.records
            self.places[part.file] = part.offset
        return records

    def settle(self, timeout: float = 0.5) -> None:
        """Wait until everything that is in the files now has been read, but no longer than some seconds."""
        if self._thread is not None and not self._is_closed:
            self._has_looked.clear()
            self._wake.set()
            self._has_looked.wait(timeout)

    def close(self) -> None:
        """Follow nothing any more."""
        self._is_closed = True
        self._wake.set()

    def _run(self) -> None:
        while not self._is_closed:
            self._wake.wait(_PAUSE_S)
            is_asked = self._wake.is_set()
            self._wake.clear()
            try:
                self._look(time.monotonic())
            except Exception as error:
                if not self._has_failed:
                    logger.warning("what processes print cannot be read, retrying: %s", error)
                self._has_failed = True
            if is_asked:
                self._has_looked.set()

    def _look(self, now: float) -> None:
        processes = self._processes
        for name, journal in processes.items():
            if now - self._looked_at.get(name, -_LOOK_S) >= _LOOK_S:
                self._looked_at[name] = now
                self._find(name, journal)
        self._looked_at = {name: at for name, at in self._looked_at.items() if name in processes}
        for key, file in [*self._files.items()]:
            is_over = not any(writer.journal in processes for writer in file.writers)
            while len(self._parts) < _MOST_WAITING and (part := file.read(now, is_over=is_over)) is not None:
                self._parts.append(_Part(part, key, file.offset))
            if is_over and file.has_ended:
                file.close()
                del self._files[key]

    def _find(self, name: str, journal: Journal) -> None:
        """Find the files of a process: by its descriptors while it lives, otherwise where they were at its start."""
        started = journal.started
        lives = process_of(started.pid, started.time) is not None
        begun = {number: (key, size, os.fsdecode(path)) for number, key, size, path in started.outputs}
        opened: dict[str, str] = {}
        for number, stream in ((1, "stdout"), (2, "stderr")):
            path = f"/proc/{started.pid}/fd/{number}" if lives else begun.get(number, ("", 0, ""))[2]
            with contextlib.suppress(OSError):  # it is a pipe, or it was removed
                status = os.stat(path)  # noqa: PTH116 - it follows the link
                key = file_of(status)
                if not lives and key != begun[number][0]:
                    continue  # another file has its name by now
                opened[key] = "output" if key in opened else stream
                if key not in self._files and len(self._files) < _MOST_FILES:
                    at = self._begin_at(key, {known: size for known, size, _ in begun.values()}, path, lives=lives)
                    self._files[key] = _File(open_regular(Path(path)), at, self._settings, in_slurm=self._in_slurm)
        for key, stream in opened.items():
            if key in self._files:
                place = started.rank % max(1, started.local_world_size)
                writer = _Writer(name, stream, started.rank, place, started.pid, started.role)
                self._files[key].add(writer)

    def _begin_at(self, key: str, sizes: Mapping[str, int], path: str, *, lives: bool) -> int:
        """Return where to begin in a file: what was there before the process is not its own."""
        if key in self.places:
            return self.places[key]
        if key in sizes:
            return sizes[key]
        flags = Path(path.replace("/fd/", "/fdinfo/")).read_text() if lives else ""
        appends = bool(int((re.search(r"flags:\s*(\d+)", flags) or ["", "0"])[1], 8) & _APPENDS)
        return os.stat(path).st_size if appends else 0  # noqa: PTH116 - it follows the link


class _File:
    """A file that processes print into.

    Attributes:
        offset: Behind the last line that was read.
        writers: The processes that print into it.
        has_ended: Whether the last part of it has been read.
    """

    def __init__(self, file: BinaryIO, offset: int, settings: PrintedOutput, *, in_slurm: bool) -> None:
        self._file, self.offset = file, offset
        self.writers: set[_Writer] = set()
        self.has_ended = False
        self._prefixes = (*_PREFIXES, (_BY_SRUN, "rank")) if in_slurm else _PREFIXES
        self._assembler, self._transcript = Assembler(), Transcript(settings.per_second, settings.limit)
        self._read_to = -1  # the size of the file when it was read last

    def add(self, writer: _Writer) -> None:
        """Note a process that prints into it; one that has both streams in it has one entry."""
        self.writers = {one for one in self.writers if one.journal != writer.journal} | {writer}
        self._transcript.share(len(self.writers))

    def read(self, now: float, *, is_over: bool) -> list[NewRecord] | None:
        """Return the records of the next part of the file; `None` if there is nothing new."""
        size = os.fstat(self._file.fileno()).st_size
        if size < self.offset:  # it was emptied, as `logrotate` with `copytruncate` does
            self.offset = 0
        if size == self._read_to and not is_over:
            return None
        self._file.seek(self.offset)
        content = self._file.read(_AT_ONCE)
        end = content.rfind(b"\n") + 1
        is_last = self.offset + len(content) >= size
        if is_last:
            self._read_to = size
        if (is_over and is_last) or len(content) - end > _LONGEST_OPEN:
            end = len(content)
        if not end:
            if not is_over or self.has_ended:
                return None
            self.has_ended = True
            lines = [self._assembler.end()] if self._assembler.has_open else []
            return self._records([*self._transcript.add(lines, now), *self._transcript.end()])
        self.offset += end
        text = redacted(content[:end].decode(errors="replace"))
        return self._records(self._transcript.add(self._assembler.add(text), now))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _records(self, lines: list[Line]) -> list[NewRecord]:
        at = time.time_ns()
        return [self._record(line, at) for line in lines]

    def _record(self, line: Line, at: int) -> NewRecord:
        writers = sorted(self.writers)
        writer, text = writers[0], line.text
        is_shared = len(writers) > 1
        for pattern, kind in self._prefixes if is_shared else ():
            if prefix := pattern.match(text):
                named = [
                    one for one in writers if getattr(one, kind) == int(prefix[1]) and (kind == "pid" or not one.role)
                ]
                if len(named) == 1:
                    writer, text, is_shared = named[0], text[prefix.end() :], False
                    break
        stream = writer.stream if len({one.stream for one in writers}) == 1 else "output"
        return NewRecord(
            writer.journal,
            Printed(
                at,
                stream,
                text,
                repeated=line.repeated,
                cut=line.cut,
                left_out=line.left_out,
                is_shared=is_shared,
            ),
        )
