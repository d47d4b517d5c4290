"""Rows as TensorBoard event files, written without TensorFlow and without torch."""

from __future__ import annotations

import errno
import io
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from otel_rl.export import Params, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.export import Item, RunInfo


class TensorBoardExporter:
    """Writes one TensorBoard event for each row, and the parameters as a table of text.

    Args:
        run: The run that is shown.
        log_dir: Where the event files lie, relative to the run directory.
        precision: `"single"` is what TensorBoard's scalars are everywhere: every reader shows them.
            `"double"` keeps each value bit for bit, but TensorBoard's default data server shows no
            curve then: such files need `tensorboard --load_fast=false`, or
            `EventAccumulator.Tensors`.
    """

    batch_size = 256
    requires = ("tensorboard",)
    extra = "tensorboard"

    def __init__(
        self,
        run: RunInfo,
        *,
        log_dir: str = "tensorboard",
        precision: Literal["double", "single"] = "single",
    ) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
            from tensorboard.compat.proto.tensor_pb2 import TensorProto
        except ImportError as error:
            raise ImportError("the tensorboard exporter needs: pip install 'otel-rl[tensorboard]'") from error
        if precision not in ("double", "single"):
            raise ValueError(f"precision={precision!r} is neither 'double' nor 'single'")
        self._event, self._summary, self._metadata, self._tensor = Event, Summary, SummaryMetadata, TensorProto
        self._double = precision == "double"
        self._described: set[str] = set()
        directory = Path(run.directory, log_dir)
        directory.mkdir(parents=True, exist_ok=True)
        # TensorBoard finds the files by `tfevents` and reads them in the order of their names.
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        self._file = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._append([Event(wall_time=time.time(), file_version="brain.Event:2")])

    def export(self, items: Sequence[Item]) -> None:
        """Append the rows and parameters among `items`: all of them, or none and an error."""
        described = self._described.copy()
        events = []
        for item in items:
            if isinstance(item, Row):
                values = [self._scalar(name, value, described) for name, value in item.values.items()]
                events.append(self._at(item.time_unix_nano, values, step=item.step))
            elif isinstance(item, Params):
                events.append(self._at(item.time_unix_nano, [self._text("config", _table(item.values))]))
        self._append(events)
        self._described = described  # only now: a batch that failed is written anew, metadata included

    def shutdown(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _at(self, time_unix_nano: int, values: list[Any], step: int = 0) -> Any:
        return self._event(wall_time=time_unix_nano / 1e9, step=step, summary=self._summary(value=values))

    def _scalar(self, name: str, value: float, described: set[str]) -> Any:
        if not self._double:
            return self._summary.Value(tag=name, simple_value=value)
        tensor = self._tensor(dtype="DT_DOUBLE", double_val=[value])
        metadata = None if name in described else self._shown_by("scalars")  # a tag's first value speaks for all
        described.add(name)
        return self._summary.Value(tag=name, tensor=tensor, metadata=metadata)

    def _text(self, name: str, text: str) -> Any:
        tensor = self._tensor(dtype="DT_STRING", string_val=[text.encode()])
        return self._summary.Value(tag=name, tensor=tensor, metadata=self._shown_by("text"))

    def _shown_by(self, plugin: str) -> Any:
        return self._metadata(plugin_data=self._metadata.PluginData(plugin_name=plugin))

    def _append(self, events: list[Any]) -> None:
        # RecordWriter frames; TensorBoard's EventFileWriter around it imports TensorFlow where there is
        # one, and writes in a thread that a full disk ends for good.
        from tensorboard.summary.writer.record_writer import RecordWriter

        records = io.BytesIO()
        writer = RecordWriter(records)
        for event in events:
            writer.write(event.SerializeToString())
        before = os.fstat(self._file).st_size
        try:
            if os.write(self._file, records.getbuffer()) < records.tell():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(self._file, before)
            raise


def _table(values: dict[str, bool | int | float | str | None]) -> str:
    rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in values.items()]
    return "\n".join(["| name | value |", "|---|---|", *rows])


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")
