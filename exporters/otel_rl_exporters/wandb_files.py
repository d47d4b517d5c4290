"""The rows in the transaction logs of W&B's service. They show which rows are durable."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from otel_rl.export import ATTEMPT, MACHINE_AXES, PART, Identity, Machine, Row, Table
from otel_rl_exporters.leveldb_log import LogReader, PendingItems

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_LOOK_S = 0.05


class Logged(NamedTuple):
    """A row of W&B's history.

    Attributes:
        number: W&B's own step.
        key: The identity of the item.
        values: The logged values; `None` if they include files, such as those of tables.
    """

    number: int
    key: Identity
    values: dict[str, Any] | None


def key(item: Row | Machine | Table, table_key: str = "") -> Identity:
    """Return the identity of an item in W&B's history."""
    at = item.time_unix_nano / 1e9
    step = item.step if abs(item.step) < 1 << 63 else float(item.step)  # as W&B writes it
    if isinstance(item, Row):
        return ("row", step, item.attempt, item.part, at)
    return ("machine", step, at) if isinstance(item, Machine) else ("table", table_key, step, at)


def history(path: Path, axis: str) -> Iterator[Logged]:
    """Yield the rows in a transaction log. A torn record at the end is skipped, as W&B does."""
    from wandb.proto.wandb_internal_pb2 import Record

    reader = LogReader(path)
    for content in reader.read():
        record = Record.FromString(content)
        if record.WhichOneof("record_type") == "history":
            yield _logged(record.history, axis)
    reader.close()


def _logged(record: Any, axis: str) -> Logged:
    texts = {"/".join(item.nested_key) or item.key: item.value_json for item in record.item}
    tables = [name.removesuffix("/_type") for name, text in texts.items() if text == '"table-file"']
    at = float(texts.get("_timestamp", "nan"))
    if tables:
        return Logged(record.step.num, ("table", tables[0], _value(texts, axis), at), None)
    machine = next((one for one in MACHINE_AXES if one in texts and axis not in texts), None)
    if machine is not None:
        found: Identity = ("machine", _value(texts, machine), at)
    else:
        found = ("row", _value(texts, axis), _value(texts, ATTEMPT), _value(texts, PART), at)
    values = {name: text for name, text in texts.items() if name not in ("_step", "_runtime", "_wandb")}
    return Logged(record.step.num, found, values)


def _value(texts: dict[str, str], name: str) -> Any:
    return json.loads(texts.get(name, "0"))


def missing(logs: Iterable[Path], axis: str, first: int) -> list[Logged]:
    """Return the rows in the logs of an online run that its server did not get, if W&B continues at step `first`."""
    rows = [row for path in logs for row in history(path, axis)]
    arrived = {row.key for row in rows if row.number < first}
    return list({row.key: row for row in rows if row.key not in arrived}.values())


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


class Written(PendingItems):
    """A counter of the items, with rows and configs, that W&B's service has written: a kill cannot undo these."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._reader = LogReader(log)
        self._rows = self._configs = 0

    def items(self) -> int:
        """Return the number of items in the log, in their order."""
        from wandb.proto.wandb_internal_pb2 import Record

        if self:
            for content in self._reader.read():
                kind = Record.FromString(content).WhichOneof("record_type")
                self._rows += kind == "history"
                self._configs += kind == "config"
        return self.count(self._rows, self._configs)

    def close(self) -> None:
        """Close the log."""
        self._reader.close()
