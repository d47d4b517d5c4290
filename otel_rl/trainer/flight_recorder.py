"""PyTorch's Flight Recorder on request: the last collectives of each process group, written into the journal.

Only where a variable of PyTorch switches it on. A thread waits in `read` of a pipe until an autopsy writes into it, and
never wakes by itself. It needs the GIL then, so a process whose GIL is held does not answer.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from otel_rl.errors.interrupts import let_pass
from otel_rl.journal.atomic_files import number_in, write_atomically
from otel_rl.journal.signals import FLIGHT_ANSWER, FLIGHT_QUESTION

if TYPE_CHECKING:
    from pathlib import Path

_SWITCHES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_MODULE = "torch._C._distributed_c10d"
_END = b"."


class FlightRecorder:
    """The thread of a process that answers, until `close`."""

    def __init__(self) -> None:
        self._pipe: int | None = None

    def begin(self, journal: Path) -> None:
        """Wait for questions, if PyTorch records."""
        if not any(number_in(os.environ.get(name, "")) for name in _SWITCHES):
            return
        with suppress(OSError, RuntimeError):  # no pipes, as on some network file systems, or no thread
            os.mkfifo(journal / FLIGHT_QUESTION, 0o600)
            self._pipe = os.open(journal / FLIGHT_QUESTION, os.O_RDWR | os.O_CLOEXEC)
            arguments = (self._pipe, journal)
            threading.Thread(target=_answer, args=arguments, name="otel-rl-flight-recorder", daemon=True).start()

    def close(self) -> None:
        """End the thread; a second call is harmless."""
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            with suppress(OSError):
                os.write(pipe, _END)


def _answer(pipe: int, journal: Path) -> None:
    while os.read(pipe, 1) != _END:
        try:
            module = sys.modules.get(_MODULE)
            if module is not None:
                write_atomically(journal / FLIGHT_ANSWER, module._dump_fr_trace_json(True, False))
        except Exception as error:  # another version of PyTorch, or a full disk
            let_pass(error)
    os.close(pipe)
