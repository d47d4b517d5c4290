"""Questions of an autopsy, which a thread of the trainer answers: its stacks, and PyTorch's Flight Recorder.

The thread waits in `read` of a pipe, which the autopsy opens in `/proc`, and never wakes by itself. It holds the GIL
while it answers, so no other thread changes its frames meanwhile: who reads them without the GIL can read what has just
been freed, and end the process. While C code holds the GIL, the thread cannot answer. Then no frame changes, and a
signal is safe.
"""

from __future__ import annotations

import _thread
import json
import os
import sys
import threading
from contextlib import suppress
from types import BuiltinFunctionType
from typing import TYPE_CHECKING

from otel_rl.recorder.files import descriptors
from otel_rl.recorder.files.atomic_files import number_in, write_atomically
from otel_rl.recorder.files.signals import FLIGHT, FLIGHT_ANSWER, QUESTIONS, STACKS, TASKS, THREADS
from otel_rl.recorder.interrupts import let_pass
from otel_rl.recorder.secrets import redacted
from otel_rl.recorder.trainer.async_tasks import seen_tasks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SWITCHES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_MODULE = "torch._C._distributed_c10d"
_END = b"."


class Questions:
    """The thread of a process that answers, until `close`."""

    def __init__(self) -> None:
        self._pipe: tuple[descriptors.KeptDescriptor, descriptors.KeptDescriptor] | None = None
        self._begun_with: tuple[Path, Callable[[], None]] | None = None

    def begin(self, journal: Path, write_stacks: Callable[[], None]) -> None:
        """Wait for questions; a file in the journal says where."""
        self._begun_with = journal, write_stacks
        if type(_thread.start_new_thread) is not BuiltinFunctionType:
            return  # threads are greenlets, as those of gevent: one that waits in `read` stops all of them
        with suppress(OSError, RuntimeError):  # no descriptor or no thread is left
            if any(number_in(os.environ.get(name, "")) for name in _SWITCHES):
                write_atomically(journal / FLIGHT_ANSWER, b"{}")  # it can be asked for
            pipe, into = map(descriptors.raised, os.pipe())
            self._pipe = descriptors.kept(pipe), descriptors.kept(into)

            def write_threads_and_stacks() -> None:
                _write_threads(journal)
                write_stacks()

            answers = {STACKS: write_threads_and_stacks, FLIGHT: lambda: _write_flight(journal)}
            threading.Thread(
                target=_answer, args=(self._pipe[0], answers), name="otel-rl-questions", daemon=True
            ).start()
            # With the inode: after `close`, another file may get the number, and an autopsy must not write into that
            # one.
            write_atomically(journal / QUESTIONS, f"{into} {self._pipe[1].inode}".encode())

    def keep(self) -> bool:
        """Begin again if the trainer has closed the pipe; return whether it had."""
        if self._pipe is None or self._begun_with is None or all(end.is_same for end in self._pipe):
            return False
        self.close()
        self.begin(*self._begun_with)
        return True

    def close(self) -> None:
        """End the thread; a second call is harmless."""
        pipe, self._pipe = self._pipe, None
        if pipe is not None and pipe[1].is_same:  # otherwise somebody has closed it
            with suppress(OSError):
                os.write(pipe[1].number, _END)  # a forked child may hold the pipe open
            pipe[1].close()


def _answer(pipe: descriptors.KeptDescriptor, answers: dict[bytes, Callable[[], None]]) -> None:
    while pipe.is_same and (question := os.read(pipe.number, 1)) not in (_END, b""):
        try:
            answers.get(question, int)()
        except Exception as error:  # another version of PyTorch, or a full disk
            let_pass(error)
    pipe.close()


def _write_threads(journal: Path) -> None:
    """Write the identities, numbers and names of the threads, which their stacks lack, and the tasks of asyncio."""
    try:
        threads = [(f"{thread.ident:#x}", thread.native_id, redacted(thread.name)) for thread in threading.enumerate()]
        write_atomically(journal / THREADS, json.dumps(threads).encode())
        write_atomically(journal / TASKS, json.dumps(seen_tasks()).encode())
    except Exception as error:  # a full disk, or any names of threads and tasks: the stacks say more
        let_pass(error)


def _write_flight(journal: Path) -> None:
    """Write the last collectives of each process group."""
    if (module := sys.modules.get(_MODULE)) is not None:
        write_atomically(journal / FLIGHT_ANSWER, module._dump_fr_trace_json(True, False))
