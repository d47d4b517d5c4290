"""Feeds exporters from the archive of a machine whose part is out of reach."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from typing import TYPE_CHECKING

from otel_rl.recorder.archive import delivered
from otel_rl.recorder.archive.delivered import FRESH_S, Delivered, is_fresh
from otel_rl.recorder.archive.now import Now
from otel_rl.recorder.archive.now import place_of as now_of
from otel_rl.recorder.delivery.progress import Cursor, cursor_file
from otel_rl.recorder.directory.parts import CURSORS
from otel_rl.recorder.files.atomic_files import read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from otel_rl.export import Item, RunInfo
    from otel_rl.recorder.archive.delivered import Counts

_LOOK_S = 1.0
_NOTE_EVERY_S = 5.0
AT_MOST_S = FRESH_S + _LOOK_S
"""Time in seconds until an agent that was killed counts as dead."""


class Nothing:
    """In place of the exporter of the archive, from which the items come."""

    batch_size = 4096

    def __init__(self, run: RunInfo, **options: object) -> None:
        """Ignore the arguments."""

    def export(self, items: Sequence[Item]) -> None:
        """Ignore them."""

    def shutdown(self) -> None:
        """Do nothing."""


class Feed:
    """Says in the archive that this process feeds the exporters, and how far they are, as long as it is entered.

    Args:
        run: The run directory.
        machine: The folder of the machine in the archive.
        work: The part that is made of the archive.
        counts: Numbers of items that an exporter has, by its name.

    Attributes:
        counts: The same, with what an earlier process that was killed had fed from the same part.
        missing: Number of items that the archive lacks, those that an earlier process has missed included.
    """

    def __init__(self, run: Path, machine: str, work: Path, counts: Mapping[str, Counts]) -> None:
        self._run, self._machine, self._work = run, machine, work
        self.counts = dict(counts)
        self.counts = self._reached()
        before = delivered.read(run, machine)
        self.missing = before.missing if before is not None else 0
        self._ended = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="otel-rl-delivered", daemon=True)

    def __enter__(self) -> Feed:
        """Write the first note.

        Raises:
            OSError: The archive cannot be written; another process would feed the exporters again.
        """
        delivered.write(self._run, self._machine, self._state(works=True))
        self._keeper.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        # Before the last note: the thread's own would say again that this process still feeds the exporters.
        self._keeper.join(_NOTE_EVERY_S)
        self._note(works=False)

    def _keep(self) -> None:
        while not self._ended.wait(_NOTE_EVERY_S):
            self._note(works=True)

    def _note(self, *, works: bool) -> None:
        with contextlib.suppress(OSError):  # a full disk: the next one may send some items again
            delivered.write(self._run, self._machine, self._state(works=works))

    def _state(self, *, works: bool) -> Delivered:
        who = f"pid {os.getpid()} on {socket.gethostname()}"
        return Delivered(who=who, exporters=self._reached(), works=works, missing=self.missing)

    def _reached(self) -> dict[str, Counts]:
        return {name: delivered.most(has, self._passed(name)) for name, has in self.counts.items()}

    def _passed(self, exporter: str) -> Counts:
        cursor = read_json(self._work / CURSORS / cursor_file(exporter), Cursor)
        return cursor.passed if cursor is not None else {}


def has_ended(run: Path, machine: str, say: Callable[[], None]) -> bool:
    """Return whether no agent writes the archive of a machine; if one may, call `say`, and wait until it is dead."""
    place = now_of(run, machine)
    until: float | None = None
    while (last := read_json(place, Now)) is not None and last.state != "ended" and is_fresh(place):
        if until is None:
            until = time.monotonic() + AT_MOST_S
            say()
        elif time.monotonic() > until:
            return False
        time.sleep(_LOOK_S)
    return True
