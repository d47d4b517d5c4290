"""The points in SwanLab's logs. They show which items need not be logged again."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from otel_rl.export import Identities, Identity, Machine, Row, Table
from otel_rl_exporters.leveldb_log import LogReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


def key(item: Row | Machine | Table) -> Identity:
    """Return the identity of an item in SwanLab's log, which includes its time."""
    return ("table" if isinstance(item, Table) else "row", item.step, item.time_unix_nano)


def logged(path: Path, run_id: str) -> Iterator[tuple[Identity, set[str]]]:
    """Yield the identities of the items in a log, with their names. A torn record at the end is skipped."""
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record

    reader = LogReader(path)
    last: Identity = ()
    names: set[str] = set()
    for content in reader.read():
        record = Record.FromString(content)
        kind = record.WhichOneof("record_type")
        if kind == "start" and record.start.id != run_id:
            break
        if kind not in ("scalar", "media"):
            continue
        point = getattr(record, kind)
        identity = ("table" if kind == "media" else "row", point.step, point.timestamp.ToNanoseconds())
        if identity != last and names:
            yield last, names
            names = set()
        last = identity
        names.add(point.key)
    reader.close()
    if names:
        yield last, names


class HeldItems:
    """The items in the logs of a run's earlier sessions.

    Only the last item of a log can lack values: the log was cut there when its process was killed. The logs are given
    oldest first. Those of other runs than `run_id`, SwanLab's id, are ignored.
    """

    def __init__(self, logs: Iterable[Path], run_id: str) -> None:
        self._cut: dict[Identity, set[str]] = {}
        self._items = Identities(self._read(logs, run_id))

    def missing(self, item: Row | Machine | Table, names: Iterable[str]) -> list[str]:
        """Return the names of the item that no log holds."""
        identity = key(item)
        if identity not in self._items:
            return list(names)
        written = self._cut.get(identity)
        return [] if written is None else [name for name in names if name not in written]

    def _read(self, logs: Iterable[Path], run_id: str) -> Iterator[Identity]:
        for path in logs:
            last: tuple[Identity, set[str]] | None = None
            for identity, names in logged(path, run_id):
                if identity in self._cut:
                    self._cut[identity] |= names
                last = identity, names
                yield identity
            if last is not None:
                self._cut.setdefault(last[0], last[1])


class EventClock:
    """Sets the time of SwanLab's events to that of their item; SwanLab has no argument for it."""

    def __init__(self, run: Any) -> None:
        self.at: int | None = None
        emitter = getattr(getattr(run, "_components", None), "emitter", None)
        if emitter is not None:
            self._emit = emitter.emit
            emitter.emit = self._set

    def _set(self, event: Any) -> None:
        """Set the event's time and forward the event. A time that SwanLab's format cannot hold is not set."""
        if self.at is not None:
            with contextlib.suppress(ValueError, OverflowError):
                event.timestamp.FromNanoseconds(self.at)
        self._emit(event)


def callback() -> Any:
    """Return a callback for `swanlab.init` that counts the scalars and the media in the log."""
    import swanlab

    class Flushed(swanlab.Callback):  # type: ignore[misc]  # SwanLab has no types here
        """The callback."""

        name = "otel-rl"

        def __init__(self) -> None:
            self.scalars = self.media = 0

        def on_scalar_flush(self, scalar_records: Sequence[Any], *_: Any, **__: Any) -> None:
            self.scalars += len(scalar_records)

        def on_media_flush(self, media_records: Sequence[Any], *_: Any, **__: Any) -> None:
            self.media += len(media_records)

    return Flushed()


def file(run: Any) -> Path | None:
    """Return the log of a run, or `None` if SwanLab does not know it."""
    return getattr(getattr(run, "_ctx", None), "run_file", None)


def flush(run: Any) -> None:
    """Flush the log to its file: SwanLab keeps its end in memory until the run ends."""
    store = getattr(getattr(getattr(run, "_ctx", None), "core", None), "_store", None)
    if store is not None:
        store.ensure_flushed()
