"""The contents of the files that SwanLab writes offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def records(directory: Path) -> Iterator[Any]:
    """Return what is in the files below `directory`, in their order."""
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record
    from swanlab.sdk.internal.core_python.store import DataStoreReader

    for path in sorted(directory.glob("swanlab/run-*/*.swanlab")):
        reader = DataStoreReader()
        reader.open(path)
        for raw in reader:
            record = Record()
            record.ParseFromString(raw)
            yield record
