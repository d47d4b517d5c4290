"""Rows as TensorBoard event files, written without TensorFlow and without torch."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from otel_rl import semconv
from otel_rl.export import ATTEMPT, PART, Ended, Event, Gone, Identities, Machine, Params, Row, Table, values_of
from otel_rl.recorder.errors.sinks import markdown_cell
from otel_rl_exporters.in_place import Appended, append

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from otel_rl.export import Cell, Identity, Item, RunInfo

_LONGEST_CELL = 4_000
_LONGEST_TABLE = 1 << 18
_HEADER, _FOOTER = 12, 4  # of a record: its length and two checksums
_LONGEST_RECORD = 1 << 30
_SUFFIX = ".otel-rl"
_DROPS_NOTHING = 1 << 62  # the step of a mark: other programs may write into the same directory
_MACHINE = "machine"
_CONFIG = "config"
_OWN = frozenset({_CONFIG})  # TensorBoard shows a tag as what it was first: a text, if there are parameters


class TensorBoardExporter:
    """Writes one TensorBoard event for each row; parameters and tables are shown as text.

    A resumed run repeats steps. Before the first row of each attempt, TensorBoard's own mark of a start is written:
    TensorBoard then drops the values of earlier attempts from this step on. Late rows of an earlier attempt are not
    written. Hardware measurements have an axis in seconds, so they are another run in TensorBoard, `machine`.

    If the files are removed, replaced or truncated during the run, they are written again from the outbox.

    The parameters are also a session of the HParams dashboard. The session ends when the exporter is shut down. It has
    failed if the last attempt did not finish or a process was lost. TensorBoard keeps the first values that it reads.

    Args:
        run: The run.
        log_dir: The directory of the event files, relative to the run directory.
        precision: `"single"` writes TensorBoard's scalars, which every reader shows. `"double"` keeps each
            value bit for bit, but TensorBoard's default data server does not draw it: read such files
            with `tensorboard --load_fast=false` or `EventAccumulator.Tensors` of TensorBoard's
            `plugin_event_accumulator` (that of `event_accumulator` ignores restarts).
        table_rows: The largest number of rows of a table to write; by default as many as 256 KiB hold.
    """

    batch_size = 256
    shows_end = True
    requires = ("tensorboard",)
    extra = "tensorboard"

    def __init__(
        self,
        run: RunInfo,
        *,
        log_dir: str = "tensorboard",
        precision: Literal["double", "single"] = "single",
        table_rows: int | None = None,
    ) -> None:
        from tensorboard.compat.proto import event_pb2
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto

        if precision not in ("double", "single"):
            raise ValueError(f"precision={precision!r} is neither 'double' nor 'single'")
        self._event, self._summary, self._session_log = event_pb2.Event, Summary, event_pb2.SessionLog
        self._metadata, self._tensor = SummaryMetadata, TensorProto
        self._run_id = run.id
        self._table_rows = table_rows
        self._double = precision == "double"
        self._session_is_open = self._lost = False
        self._attempt = 0
        self._described: set[str] = set()
        self._directory = Path(run.directory, log_dir)
        self._begun: dict[int, int] = {}  # first step by attempt
        self._config: list[Any] = []  # the event that has the latest parameters as text
        self._held = Identities(self._found())
        self._file = self._open(self._directory)
        self._machine_file: Appended | None = None

    def holds(self, item: Item) -> bool:
        """Return whether the item was in a file when the exporter was built."""
        return isinstance(item, Row | Machine | Table) and _key(item) in self._held

    def export(self, items: Sequence[Item]) -> None:
        """Append the rows, parameters and tables among `items`. If one write fails, undo all of them and raise."""
        described, begun = self._described.copy(), self._begun.copy()
        machine = [event for item in items if isinstance(item, Machine) for event in self._events(item, described)]
        others = [event for item in items if not isinstance(item, Machine) for event in self._of(item, described)]
        if machine and self._machine_file is None:
            self._machine_file = self._open(self._directory / _MACHINE)
        try:
            self._append([(self._file, others), *([(self._machine_file, machine)] if self._machine_file else [])])
        except OSError:
            # The marks of this batch are not in the file; the retry has to write them again.
            self._begun = begun
            raise
        self._described = described  # only now: a failed batch is written again, metadata included
        self._session_is_open |= any(isinstance(item, Params) for item in items)
        for item in items:
            if isinstance(item, Ended):
                self._lost = item.outcome != "finished"
            elif isinstance(item, Event) and item.name == semconv.EVENT_PROCESS_LOST:
                self._lost = True
            elif isinstance(item, Row) and item.attempt > self._attempt:
                self._attempt, self._lost = item.attempt, False

    def shutdown(self) -> None:
        """End the session of the HParams dashboard, and close the files.

        Raises:
            Gone: One of them is not there any more.
            OSError: The end cannot be written now.
        """
        files = [file for file in (self._file, self._machine_file) if file is not None]
        try:
            for file in files:
                file.check()
            self._end_session()
        except Gone:
            for file in files:
                file.close()
            raise
        for file in files:
            file.close()

    def _end_session(self) -> None:
        if self._session_is_open:
            from tensorboard.plugins.hparams.api_pb2 import Status

            ended = {"status": Status.Value("STATUS_FAILURE" if self._lost else "STATUS_SUCCESS")}
            end = self._at(time.time_ns(), [self._session("end", end_time_secs=time.time(), **ended)])
            self._append([(self._file, [end])])
            self._session_is_open = False

    def _open(self, directory: Path) -> Appended:
        """Return a new file in the directory, behind all others: TensorBoard reads them in the order of their names."""
        times = [float(match[0]) for path in _files(directory) if (match := re.findall(r"\d+\.\d{6}", path.name))]
        began = max([time.time(), *(known + 1e-6 for known in times)])
        name = f"events.out.tfevents.{began:017.6f}.{socket.gethostname()}.{os.getpid()}{_SUFFIX}"
        file = Appended(directory / name, os.O_WRONLY | os.O_EXCL)
        # TensorBoard heeds marks of a start from this version on; in older files, it drops steps that are out of order
        # (event_accumulator.py).
        self._append([(file, [self._event(wall_time=time.time(), file_version="brain.Event:2")])])
        return file

    def _found(self) -> Iterator[Identity]:
        """Yield the keys of items from earlier exporters. Torn records are skipped, as TensorBoard does."""
        for path in [*_files(self._directory), *_files(self._directory / _MACHINE)]:
            for event in map(self._event.FromString, _records(path)):
                values = {value.tag: value for value in event.summary.value}
                if path.parent != self._directory:
                    yield ("machine", event.step, event.wall_time)
                    continue
                attempt, part = (int(_number(values[name])) if name in values else 0 for name in (ATTEMPT, PART))
                if all(value.metadata.plugin_data.plugin_name == "text" for value in values.values()):
                    yield from (("table", tag, event.step, event.wall_time) for tag in values)
                else:
                    self._begun[attempt] = min(event.step, self._begun.get(attempt, event.step))
                    yield ("row", attempt, event.step, part, event.wall_time)

    def _of(self, item: Item, described: set[str]) -> Iterator[Any]:
        """Yield the events of an item, behind the mark of a restart if it is the first one of a new attempt."""
        if isinstance(item, Row | Table):
            if any(item.step >= begun for attempt, begun in self._begun.items() if attempt > item.attempt):
                return
            if isinstance(item, Row) and item.attempt not in self._begun:
                if item.attempt > max(self._begun, default=-1):  # the first one too: the slow loader skips one mark
                    mark = self._session_log(status=self._session_log.START)
                    step = item.step if self._begun else _DROPS_NOTHING
                    yield self._event(wall_time=item.time_unix_nano / 1e9, step=step, session_log=mark)
                    if item.step == 0 and self._begun:  # the text of the parameters is at this step
                        yield from self._config
                self._begun[item.attempt] = item.step
        yield from self._events(item, described)

    def _events(self, item: Item, described: set[str]) -> Iterator[Any]:
        if isinstance(item, Row | Machine):
            scalars = [self._scalar(name, value, described) for name, value in values_of(item, _OWN).items()]
            yield self._at(item.time_unix_nano, scalars, step=item.step)
        elif isinstance(item, Params):
            lines = [(name, str(value)) for name, value in item.values.items()]
            self._config = [
                self._at(item.time_unix_nano, [self._text(_CONFIG, _markdown(("name", "value"), lines, 0))])
            ]
            yield from self._config
            fields = {"group_name": self._run_id, "start_time_secs": item.time_unix_nano / 1e9}
            hparams = {name: _hparam(value) for name, value in item.values.items()}
            yield self._at(item.time_unix_nano, [self._session("start", hparams=hparams, **fields)])
        elif isinstance(item, Table):
            rows = item.rows[: self._table_rows]
            text = self._text(item.name, _markdown(item.columns, rows, item.cut_rows + len(item.rows) - len(rows)))
            yield self._at(item.time_unix_nano, [text], step=item.step)

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

    def _session(self, end: Literal["start", "end"], **fields: Any) -> Any:
        from tensorboard.plugins.hparams import metadata, plugin_data_pb2

        message = plugin_data_pb2.SessionStartInfo if end == "start" else plugin_data_pb2.SessionEndInfo
        tag = metadata.SESSION_START_INFO_TAG if end == "start" else metadata.SESSION_END_INFO_TAG
        data = plugin_data_pb2.HParamsPluginData(**{f"session_{end}_info": message(**fields)})
        described = metadata.create_summary_metadata(data)
        return self._summary.Value(tag=tag, metadata=described, tensor=metadata.NULL_TENSOR)

    def _shown_by(self, plugin: str) -> Any:
        return self._metadata(plugin_data=self._metadata.PluginData(plugin_name=plugin))

    def _append(self, written: list[tuple[Appended, list[Any]]]) -> None:
        # RecordWriter frames; TensorBoard's EventFileWriter around it imports TensorFlow where there is
        # one, and writes in a thread that a full disk ends for good.
        from tensorboard.summary.writer.record_writer import RecordWriter

        framed: list[tuple[Appended, memoryview]] = []
        for file, events in written:
            records = io.BytesIO()
            writer = RecordWriter(records)
            for event in events:
                writer.write(event.SerializeToString())
            framed.append((file, records.getbuffer()))
        append(framed)


def _files(directory: Path) -> list[Path]:
    """Return the files of earlier exporters, in TensorBoard's order; files of other programs are ignored."""
    return sorted(directory.glob(f"*tfevents*{_SUFFIX}"))


def _records(path: Path) -> Iterator[bytes]:
    """Yield the whole records of a file."""
    with path.open("rb") as file:
        while len(header := file.read(_HEADER)) == _HEADER:
            length = int.from_bytes(header[:8], "little")
            # A torn or foreign header can claim any length, and `read` would allocate it.
            if length > _LONGEST_RECORD or len(data := file.read(length + _FOOTER)) < length + _FOOTER:
                return
            yield data[:length]


def _number(value: Any) -> float:
    return float(value.tensor.double_val[0] if value.tensor.double_val else value.simple_value)


def _key(item: Row | Machine | Table) -> Identity:
    at = item.time_unix_nano / 1e9
    if isinstance(item, Row):
        return ("row", item.attempt, item.step, item.part, at)
    return ("machine", item.step, at) if isinstance(item, Machine) else ("table", item.name, item.step, at)


def _hparam(value: bool | int | float | str | None) -> Any:
    """Return a protobuf `Value`, whose numbers are finite doubles; other values are texts."""
    from google.protobuf.struct_pb2 import Value

    if isinstance(value, bool):
        return Value(bool_value=value)
    with contextlib.suppress(OverflowError):
        # An integer beyond 2**53 would be another one as a double: it is shown as a text.
        if isinstance(value, int | float) and math.isfinite(value) and float(value) == value:
            return Value(number_value=value)
    return Value(string_value=str(value))


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[Cell]], cut: int) -> str:
    """Return a table in which every cell is shown literally; `cut` rows are missing already."""
    lines = [_line(columns), "|" + "---|" * len(columns)]
    room = _LONGEST_TABLE
    for row in rows:
        line = _line(row)
        room -= len(line)
        if room < 0:
            cut += 1
        else:
            lines.append(line)
    return "\n".join([*lines, *([f"\n{cut} more rows"] if cut else [])])


def _line(cells: Sequence[Cell]) -> str:
    return f"| {' | '.join(map(_shown, cells))} |"


def _shown(cell: Cell) -> str:
    text = "" if cell is None else str(cell)
    left_out = len(text) - _LONGEST_CELL
    return markdown_cell(text[:_LONGEST_CELL]) + (f"… ({left_out} more)" if left_out > 0 else "")
