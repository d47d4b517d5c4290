"""Reads the `.wandb` file of a run: records of W&B's own protobuf."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from otel_rl_exporters.leveldb_log import LogReader


def files(directory: str) -> list[Path]:
    """Return the `.wandb` files of a run directory, the oldest first."""
    return sorted(Path(directory).glob("wandb/offline-run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime)


def wait_until_written(directory: str, *, last_alone: bool = False) -> None:
    """Wait for W&B's service: it may still be writing the end of a file when `finish` returns.

    With `last_alone` the runs before the last one may have been killed, so that their files have no end.
    """
    deadline = time.monotonic() + 30
    while not files(directory):
        assert time.monotonic() < deadline, f"there is no file in {directory}"
        time.sleep(0.01)
    for path in files(directory)[-1:] if last_alone else files(directory):
        while not any(record.WhichOneof("record_type") == "exit" for record in records(path)):
            assert time.monotonic() < deadline, f"{path} is incomplete"
            time.sleep(0.01)


def records(path: Path) -> Iterator[Any]:
    """Yield each `Record` in the file."""
    from wandb.proto.wandb_internal_pb2 import Record

    reader = LogReader(path)
    yield from map(Record.FromString, reader.read())
    reader.close()


def history(path: Path) -> list[dict[str, str]]:
    """Return each logged row: JSON text by name."""
    rows = [record.history for record in records(path) if record.WhichOneof("record_type") == "history"]
    return [{"/".join(item.nested_key) or item.key: item.value_json for item in row.item} for row in rows]


def tables(path: Path, key: str) -> list[tuple[int, list[str], list[list[Any]]]]:
    """Return step, columns and rows of each table that was logged as `key`, from the files that it points at."""
    found = []
    for line in history(path):
        if f"{key}/path" in line:
            file = path.parent / "files" / json.loads(line[f"{key}/path"])
            content = json.loads(file.read_text(encoding="utf-8"))
            found.append((int(line["step"]), content["columns"], content["data"]))
    return found


def config(path: Path) -> dict[str, Any]:
    """Return the config that the run ended with."""
    items = [item for record in records(path) for item in record.config.update]
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
