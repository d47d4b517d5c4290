"""The runs of a bridge, each with its own outbox and exporters."""

from __future__ import annotations

import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from otel_rl.export import RunInfo
from otel_rl.recorder.delivery import plugins
from otel_rl.recorder.delivery.exporter_thread import ExporterThread
from otel_rl.recorder.delivery.outbox import Outbox
from otel_rl.recorder.directory.directory import RunDirectory
from otel_rl.recorder.directory.parts import LOCAL
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.files.atomic_files import write_atomically
from otel_rl.recorder.files.locks import Lock
from otel_rl.recorder.files.modes import PRIVATE, TRAVERSED, chosen, make_directory
from otel_rl.recorder.files.own_directory import OwnDirectory
from otel_rl.recorder.files.own_files import check_levels, check_own, read_own
from otel_rl.recorder.otlp.answers import TOO_MUCH, Refusal
from otel_rl.serve.bridge import disk
from otel_rl.serve.bridge.seen import SeenItems

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.export import Item

logger = log_of(__name__)
_CLOSE_WITHIN_S = 15.0
"""The time limit for closing all runs, in seconds; Kubernetes sends SIGKILL 30 s after SIGTERM."""
_TEND_S = 1.0
_BATCH_BYTES = 4 << 20
_MOST_CLOSING = 16
_INFO = "bridge.json"  # exists while the run is not completely delivered
_INDEX = "seen.sqlite"
_BRIDGE = "bridge"
_encode = msgspec.msgpack.Encoder().encode
_NOTHING = _encode(None)

Exporters = list[tuple[str, dict[str, object]]]


def directory_of(path: Path) -> RunDirectory:
    """Return the directory of a bridged run; its part has a fixed name, because the name of the container changes."""
    return RunDirectory(path, path / LOCAL / _BRIDGE, _BRIDGE)


class BridgedRun:
    """A run whose items are durable before the response is sent, and delivered to every exporter once.

    A client without a response retries; an item that was ever accepted before is not accepted again.

    Attributes:
        peer: The address of the client that opened it.
        used_at: When the last items arrived, in seconds of the monotonic clock; 0 if none have since it was opened.
        exporters: The threads of the exporters.
    """

    def __init__(self, run: RunInfo, exporters: Exporters, limit_bytes: int, peer: str = "") -> None:
        directory = directory_of(Path(run.directory))
        for place in (directory.path, directory.local, directory.outbox, directory.cursors):
            make_directory(place)
            check_own(place)
        self.info, self.peer = run, peer
        self._saved = Path(run.directory, _INFO)
        self._outbox = Outbox(directory.outbox, limit_bytes)
        try:
            self._seen = SeenItems(directory.cursors.parent / _INDEX, self._outbox)
            write_atomically(self._saved, msgspec.json.encode(run))
        except OSError:
            self._outbox.close()
            raise
        self._lock = threading.Lock()
        self._is_closed = False
        self.used_at = 0.0
        self.exporters = [
            ExporterThread(name, plugins.find_exporter(name), options, run, self._outbox, directory.cursors)
            for name, options in exporters
        ]
        for exporter in self.exporters:
            exporter.start()

    def store(self, items: Sequence[Item]) -> None:
        """Store items for the exporters.

        Raises:
            OSError: Some items cannot be written now. On a retry, the others are recognized as repeated.
        """
        with self._lock:
            if self._is_closed:
                raise OSError(f"run {self.info.id} is being closed after it was idle")
            for batch in _batches(items):
                self._append(batch)

    def _append(self, items: list[Item]) -> None:
        fresh = self._seen.fresh(items)
        if not fresh:
            self._seen.rollback()
            return
        # The outbox first: after a crash between the two, the index is made from it (test_runs.py). The other way
        # round, the item would be lost, because the client's retry would count as repeated.
        try:
            self._outbox.append(fresh, _NOTHING)
        except BaseException:
            self._seen.rollback()
            raise
        self._seen.commit()

    @property
    def is_delivered(self) -> bool:
        """If true, all exporters have delivered everything."""
        return all(exporter.has_everything for exporter in self.exporters)

    def begin_to_close(self) -> None:
        """Refuse further items, and stop the exporters after they have delivered everything."""
        with self._lock:
            # Under the lock: a request that is being stored is in the outbox before the exporters look for its end.
            self._is_closed = True
        for exporter in self.exporters:
            exporter.close_when_done()

    def close(self, deadline: float) -> bool:
        """Stop the exporters; return whether they have delivered everything. The next bridge delivers the rest.

        The `deadline` is in seconds of the monotonic clock.
        """
        self.begin_to_close()
        for exporter in self.exporters:
            exporter.join(max(0.0, deadline - time.monotonic()))
        # An exporter that has everything may still be in `shutdown`, which writes the end of the run.
        complete = all(exporter.has_everything and not exporter.is_alive() for exporter in self.exporters)
        for exporter in self.exporters:
            exporter.stop()
        self._outbox.close()
        self._seen.close()
        if complete:
            self._saved.unlink(missing_ok=True)
        return complete


class Runs:
    """All runs; each is opened by its first item, and closed when it is idle.

    Args:
        directory: The parent of the run directories.
        exporters: The exporters of each run, with their options.
        limit_bytes: The size limit of the outbox of a run, in bytes.
        most: The largest number of runs that are open at the same time, half of them opened by one client.
        idle_s: Seconds without items after which a delivered run is closed.
        spare_s: Seconds without items after which a run is closed if another one needs its place.

    Raises:
        OSError: The directory cannot be written, or another bridge uses it.
    """

    def __init__(
        self,
        directory: Path,
        exporters: Exporters,
        *,
        limit_bytes: int = 1 << 30,
        most: int = 64,
        idle_s: float = 900.0,
        spare_s: float = 60.0,
    ) -> None:
        self.directory = directory
        self._exporters = exporters
        self._limit_bytes = limit_bytes
        self._most, self._idle_s, self._spare_s = most, idle_s, spare_s
        self._runs: dict[str, BridgedRun] = {}
        self._closing: dict[str, threading.Thread] = {}
        self._undelivered: deque[RunInfo] = deque()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._held = _held(directory)
        self._disk = disk.of_disk(directory)
        self._tending = threading.Thread(target=self._tend, name="otel-rl-runs", daemon=True)
        self._tending.start()

    @property
    def open(self) -> list[BridgedRun]:
        """The runs that are open."""
        with self._lock:
            return list(self._runs.values())

    def store(self, run: RunInfo, items: Sequence[Item], peer: str = "") -> None:
        """Store the items of a run that the client at the address `peer` sends.

        Raises:
            OSError: They cannot be written now.
            Refusal: The client has too many runs, or the disk is nearly full.
        """
        self._disk.check()
        with self._lock:
            if run.directory in self._closing:
                raise OSError(f"run {run.id} is being closed after it was idle")
            if run.directory not in self._runs:
                if self._stopped.is_set():
                    raise OSError("the bridge is shutting down")
                if peer and sum(other.peer == peer for other in self._runs.values()) >= max(1, self._most // 2):
                    self._make_room(peer)
                elif len(self._runs) >= self._most:
                    self._make_room()
                self._open(run, peer)
            bridged = self._runs[run.directory]
            bridged.used_at = time.monotonic()
        bridged.store(items)

    def close(self, timeout: float = _CLOSE_WITHIN_S) -> bool:
        """Close all runs; return whether everything was delivered."""
        deadline = time.monotonic() + timeout
        self._stopped.set()
        with self._lock:
            runs, closing = list(self._runs.values()), list(self._closing.values())
            self._runs.clear()
            waiting = bool(self._undelivered)
        # All at once, then one after the other: exporters that take long to end share the time limit.
        for run in runs:
            run.begin_to_close()
        complete = [run.close(deadline) for run in runs]  # a list, so that all runs are closed
        for thread in closing:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._held.release()
        return all(complete) and not waiting

    def resume(self) -> None:
        """Open the runs that an earlier bridge has not delivered completely, one after another if there are many."""
        for saved in sorted(self.directory.glob(f"*/*/{_INFO}")):
            try:
                run = msgspec.json.decode(read_own(saved), type=RunInfo)
                self._undelivered.append(replace(run, directory=str(saved.parent.absolute())))  # it may have been moved
            except (OSError, *UNDECODABLE) as error:
                logger.warning("cannot read %s, so its run is not resumed: %s", saved, error)
        self._open_undelivered()

    def _open(self, run: RunInfo, peer: str = "") -> None:
        self._runs[run.directory] = BridgedRun(run, self._exporters, self._limit_bytes, peer)
        logger.info("run %r: %s", run.id, run.directory)

    def _make_room(self, peer: str | None = None) -> None:
        """Close a run that is not used, of a peer that has too many of them, or of any."""
        now = time.monotonic()
        candidates = [run for run in self._runs.values() if peer in (None, run.peer)]
        spare = [run for run in candidates if now - run.used_at >= self._spare_s]
        if not spare or len(self._closing) >= _MOST_CLOSING:
            if peer is not None:
                raise Refusal(TOO_MUCH, f"too many runs: {len(candidates)} of {peer} are active")
            raise OSError(f"too many runs: {self._most} are active")
        self._let_go(min(spare, key=lambda run: (not run.is_delivered, run.used_at)))

    def _let_go(self, run: BridgedRun) -> None:
        """Close a run in its own thread, because exporters can take long to end."""
        del self._runs[run.info.directory]
        thread = threading.Thread(target=self._close, args=(run,), name="otel-rl-closing", daemon=True)
        self._closing[run.info.directory] = thread
        thread.start()

    def _close(self, run: BridgedRun) -> None:
        timeout = _CLOSE_WITHIN_S if run.is_delivered else 0.0
        complete = False
        try:
            complete = run.close(time.monotonic() + timeout)
        except Exception:
            logger.exception("cannot close run %r", run.info.id)
        with self._lock:
            del self._closing[run.info.directory]
            if not complete:
                self._undelivered.append(run.info)

    def _tend(self) -> None:
        while not self._stopped.wait(_TEND_S):
            now = time.monotonic()
            with self._lock:
                idle = [run for run in self._runs.values() if now - run.used_at > self._idle_s and run.is_delivered]
                for run in idle[: _MOST_CLOSING - len(self._closing)]:
                    self._let_go(run)
            self._open_undelivered()

    def _open_undelivered(self) -> None:
        with self._lock:
            for _ in range(len(self._undelivered)):
                if len(self._runs) >= self._most or self._stopped.is_set():
                    return
                run = self._undelivered.popleft()
                if run.directory in self._runs:
                    continue
                try:
                    self._open(run)
                except OSError as error:
                    logger.warning("cannot open run %r: %s", run.id, error)
                    self._undelivered.append(run)


def _held(directory: Path) -> Lock:
    check_levels(directory)
    make_directory(directory, chosen().directory | TRAVERSED)
    place = directory / ".bridge"  # another user who can read a directory can lock it
    with OwnDirectory(place, PRIVATE.directory):
        pass
    try:
        return Lock(place)
    except BlockingIOError as error:
        raise OSError(f"{directory} is used by another bridge: use another --dir") from error


def _batches(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Yield the items in batches that fit into the outbox."""
    batch: list[Item] = []
    size = 0
    for item in items:
        batch.append(item)
        size += len(_encode(item))
        if size > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
