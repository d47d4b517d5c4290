"""The runs that come in: each with an outbox of its own, and destinations that read it."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from otel_rl import plugins
from otel_rl.delivery import Destination
from otel_rl.directory import RunDirectory, write_atomically
from otel_rl.export import RunInfo
from otel_rl.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.export import Item

logger = logging.getLogger(__name__)
_REMEMBERED = 1024
_CLOSE_WITHIN_S = 30.0
_INFO = "bridge.json"  # in the directory of a run that is not delivered yet
_encode = msgspec.msgpack.Encoder().encode

Exporters = list[tuple[str, dict[str, object]]]


class BridgedRun:
    """One run: what comes is durable before it is answered, and goes to every destination once.

    A sender that got no answer sends again; what is the same to the last bit as one of the last 1,024 items is not
    taken twice. They are remembered beside the items, so that it holds over a restart of the bridge.

    Args:
        run: The run.
        exporters: Where its items go.
        limit_bytes: Bytes that its outbox keeps.
    """

    def __init__(self, run: RunInfo, exporters: Exporters, limit_bytes: int) -> None:
        directory = RunDirectory(Path(run.directory))
        for place in (directory.outbox, directory.cursors):
            place.mkdir(parents=True, exist_ok=True)
        self._info = Path(run.directory, _INFO)
        self._outbox = Outbox(directory.outbox, limit_bytes)
        saved = self._outbox.checkpoint
        digests: list[bytes] = msgspec.msgpack.decode(saved, type=list[bytes]) if saved else []
        self._seen = OrderedDict.fromkeys(digests)
        self._lock = threading.Lock()
        self.repeated = 0
        self.destinations = [
            Destination(name, plugins.find_exporter(name), options, run, self._outbox, directory.cursors)
            for name, options in exporters
        ]
        for destination in self.destinations:
            destination.start()

    def take(self, items: Sequence[Item]) -> None:
        """Keep items for the destinations.

        Raises:
            OSError: They cannot be written; nothing of them was taken.
        """
        with self._lock:
            fresh = OrderedDict((blake2b(_encode(item), digest_size=8).digest(), item) for item in items)
            for digest in [digest for digest in fresh if digest in self._seen]:
                del fresh[digest]
            self.repeated += len(items) - len(fresh)
            if fresh:
                seen = [*self._seen, *fresh][-_REMEMBERED:]
                self._outbox.append(list(fresh.values()), _encode(seen))
                self._seen = OrderedDict.fromkeys(seen)

    def close(self, timeout: float = _CLOSE_WITHIN_S) -> bool:
        """End the destinations; return whether they have everything. What they have not is delivered another time."""
        for destination in self.destinations:
            destination.close_when_done()
        for destination in self.destinations:
            destination.join(timeout)
        complete = all(destination.has_everything and not destination.is_alive() for destination in self.destinations)
        for destination in self.destinations:
            destination.stop()
        self._outbox.close()
        if complete:
            self._info.unlink(missing_ok=True)
        return complete


class Runs:
    """All runs, each made when its first item comes.

    Args:
        directory: Where run directories are.
        exporters: Where items go.
        limit_bytes: Bytes that the outbox of a run keeps.
        most: How many runs there may be at a time.
    """

    def __init__(self, directory: Path, exporters: Exporters, *, limit_bytes: int = 1 << 30, most: int = 64) -> None:
        self.directory = directory
        self._exporters = exporters
        self._limit_bytes = limit_bytes
        self._most = most
        self._runs: dict[str, BridgedRun] = {}
        self._lock = threading.Lock()

    def take(self, run: RunInfo, items: Sequence[Item]) -> None:
        """Keep the items of a run.

        Raises:
            OSError: They cannot be written now.
        """
        self._of(run).take(items)

    def close(self) -> bool:
        """End all runs; return whether everything was delivered."""
        complete = [run.close() for run in self._runs.values()]  # all of them, whatever the first one says
        return all(complete)

    def resume(self) -> None:
        """Open the runs that an earlier bridge has not delivered all of."""
        for saved in self.directory.glob(f"*/*/{_INFO}"):
            self._of(msgspec.json.decode(saved.read_bytes(), type=RunInfo))

    def _of(self, run: RunInfo) -> BridgedRun:
        with self._lock:
            found = self._runs.get(run.directory)
            if found is None:
                if len(self._runs) >= self._most:
                    raise OSError(f"{self._most} runs are open already")
                found = self._runs[run.directory] = BridgedRun(run, self._exporters, self._limit_bytes)
                write_atomically(Path(run.directory, _INFO), msgspec.json.encode(run))
                logger.info("run %s: %s", run.id, run.directory)
            return found
