"""The rows in the transaction logs of W&B's service. They show which rows are durable."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry._logs import SeverityNumber

from otel_rl.export import ATTEMPT, MACHINE_AXES, PART, Identity, Machine, Row, Table
from otel_rl.recorder.facts.processes import process_name
from otel_rl.semconv import EXCEPTION_STACKTRACE
from otel_rl_exporters.leveldb_log import LogReader, PendingItems

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from otel_rl.export import LogRecord

_LOOK_S = 0.05


class HistoryRow(NamedTuple):
    """A row of W&B's history."""

    number: int  # W&B's own step
    key: Identity  # the identity of the item
    values: dict[str, str]  # its values as JSON, by name


def key(item: Row | Machine | Table, table_key: str = "") -> Identity:
    """Return the identity of an item in W&B's history."""
    at = item.time_unix_nano / 1e9
    step = item.step if abs(item.step) < 1 << 63 else float(item.step)  # as W&B writes it
    if isinstance(item, Row):
        return ("row", step, item.attempt, item.part, at)
    return ("machine", step, at) if isinstance(item, Machine) else ("table", table_key, step, at)


def line(item: LogRecord) -> str:
    """Return what W&B shows of a printed line: its time, process, step, phase, severity and logger, and its text."""
    at = datetime.fromtimestamp(item.time_unix_nano / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    step = "" if item.step is None else f"step {item.step}"
    process = "" if item.rank is None else process_name(item.role, item.rank)
    severity = SeverityNumber(item.severity).name if item.severity else ""
    where = (at, item.host, process, step, item.phase, severity, item.logger)
    times = f" ({item.repeated} times)" if item.repeated > 1 else ""
    stack = item.attributes.get(EXCEPTION_STACKTRACE, "")
    return f"{' '.join(filter(None, where))}: {item.text}{times}\n{stack}".rstrip("\n")


def line_key(text: str) -> Identity:
    """Return the identity of a printed line in W&B's logs."""
    return ("line", text)


def _lines(path: Path) -> Iterator[Identity]:
    of_lines = (record for record in _records(path) if record.WhichOneof("record_type") == "output_logger")
    return (line_key(record.output_logger.line.removesuffix("\n")) for record in of_lines)


def _records(path: Path) -> Iterator[Any]:
    """Yield the records in a transaction log. A torn record at the end is skipped, as W&B does."""
    from wandb.proto.wandb_internal_pb2 import Record

    reader = LogReader(path)
    yield from map(Record.FromString, reader.read())
    reader.close()


def config(logs: Iterable[Path]) -> dict[str, Any]:
    """Return the config that earlier sessions of an online run have set."""
    updates = (update for path in logs for record in _records(path) for update in _updates(record))
    return {update.key or "/".join(update.nested_key): json.loads(update.value_json) for update in updates}


def _updates(record: Any) -> Iterable[Any]:
    of_run = record.run.config.update if record.WhichOneof("record_type") == "run" else ()
    return (update for update in (*of_run, *record.config.update) if (update.key or update.nested_key[0]) != "_wandb")


def history(path: Path, axis: str) -> Iterator[HistoryRow]:
    """Yield the rows in a transaction log."""
    return (_logged(record.history, axis) for record in _records(path) if record.WhichOneof("record_type") == "history")


def _logged(record: Any, axis: str) -> HistoryRow:
    texts = {"/".join(item.nested_key) or item.key: item.value_json for item in record.item}
    tables = [name.removesuffix("/_type") for name, text in texts.items() if text == '"table-file"']
    at = float(texts.get("_timestamp", "nan"))
    if tables:
        return HistoryRow(record.step.num, ("table", tables[0], _value(texts, axis), at), texts)
    machine = next((name for name in MACHINE_AXES if name in texts and axis not in texts), None)
    if machine is not None:
        identity: Identity = ("machine", _value(texts, machine), at)
    else:
        identity = ("row", _value(texts, axis), _value(texts, ATTEMPT), _value(texts, PART), at)
    return HistoryRow(record.step.num, identity, texts)


def _value(texts: dict[str, str], name: str) -> Any:
    return json.loads(texts.get(name, "0"))


def earlier(directory: Path, id_: str) -> list[Path]:
    """Return the transaction logs of a run so far, the oldest first."""
    # By time, not by name: `offline-run-…` and `run-…` of one run do not sort in the order of their sessions.
    return sorted(directory.glob(f"wandb/*run-*/run-{id_}.wandb"), key=lambda path: path.stat().st_mtime_ns)


def held(logs: Iterable[Path], axis: str, first: int | None) -> Iterator[Identity]:
    """Yield the identities in the logs; of an online run that W&B continues at step `first`, what its server has."""
    logs = [path for path in logs if first is None or not path.parent.name.startswith("offline-")]
    for path in logs:
        yield from _lines(path)
    if first is None:
        yield from (row.key for path in logs for row in history(path, axis))
        return
    at: dict[int, Identity] = {}  # a later service repeats the steps that did not arrive
    for path in logs:
        at |= {row.number: row.key for row in history(path, axis)}
    yield from (key for number, key in at.items() if number < first)


def wait_for_writers(logs: Sequence[Path], timeout: float) -> bool:
    """Wait until no service of a killed process writes to the logs; return `False` after the timeout."""
    import psutil

    names = {str(path.resolve()) for path in logs}
    deadline = time.monotonic() + timeout
    while names and any(_has_open(process, names) for process in psutil.process_iter(["name"])):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def _has_open(process: Any, names: set[str]) -> bool:
    import psutil

    try:
        if not (process.info["name"] or "").startswith("wandb-core"):
            return False
        return any(file.path in names for file in process.open_files())
    except psutil.Error:  # it has ended, or is somebody else's
        return False


class WrittenItems(PendingItems):
    """A counter of the items that W&B's service has written, of rows, configs and lines: a kill cannot undo these."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._reader = LogReader(log)
        self._rows = self._others = 0

    def items(self, sent: int | None = None) -> int:
        """Return the number of items in the log, in their order; of their rows, the first `sent` if that is given."""
        from wandb.proto.wandb_internal_pb2 import Record

        if self:
            for content in self._reader.read():
                kind = Record.FromString(content).WhichOneof("record_type")
                self._rows += kind == "history"
                self._others += kind in ("config", "output_logger")
        return self.count(self._rows if sent is None else min(sent, self._rows), self._others)

    def close(self) -> None:
        """Close the log."""
        self._reader.close()
