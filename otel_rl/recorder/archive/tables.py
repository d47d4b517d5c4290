"""The tables of the archive, each column once: its type, what it holds, and where an item has its value.

The writer, the reader, the check of a file's schema, the range of steps in its notes, and the docs follow from this
list. Columns have stable names, with units in them. A new column comes last, and can be null: older files do not have
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from otel_rl import semconv
from otel_rl.export import (
    Ended,
    Environment,
    Event,
    Hang,
    LogRecord,
    Machine,
    Message,
    Params,
    Process,
    Row,
    Span,
    Table,
    Trajectory,
)

if TYPE_CHECKING:
    import msgspec

ColumnType = Literal["int64", "double", "bool", "text", "id", "json", "int64s", "doubles", "bools", "texts"]
"""Types of columns; an `id` is a text that hardly ever repeats, `json` a text in JSON, `doubles` a list of doubles."""
SQL: dict[ColumnType, str] = {
    "int64": "BIGINT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "text": "VARCHAR",
    "id": "VARCHAR",
    "json": "VARCHAR",
    "int64s": "BIGINT[]",
    "doubles": "DOUBLE[]",
    "bools": "BOOLEAN[]",
    "texts": "VARCHAR[]",
}
"""The types of columns in SQL."""
LISTS = frozenset[ColumnType](("int64s", "doubles", "bools", "texts"))
PACKED: dict[ColumnType, str] = {"int64s": "i", "doubles": "d", "bools": "B"}
"""The code of the arrays whose bytes an item has for a list of numbers."""


class Column(NamedTuple):
    """A column of a table: null stands for the default of the item's field."""

    name: str
    kind: ColumnType
    brief: str  # what it holds, with its unit
    can_be_null: bool = False
    field: str = ""  # the field of the item that has the value, if it has another name
    since: str = ""  # a field that is subtracted from it
    attribute: str = ""  # the attribute of a span that has the value; `attributes` has those without a column
    is_of_value: bool = False  # one of the columns of a value, in a table with a line for each value of an item
    encoding: Literal["", "delta_binary_packed", "delta_byte_array", "byte_stream_split"] = ""  # of Parquet


class ArchiveTable(NamedTuple):
    """A table, which is also the folder of its files; it has the fields of one kind of item."""

    name: str
    brief: str  # what a line is
    plural: str  # what lines are
    item: type[msgspec.Struct]
    columns: tuple[Column, ...]
    sealed_items: int = 1024  # items of a sealed file: few files are read fast, and memory holds them until then
    states_steps: bool = False  # whether files state their steps: those of other steps are not read, as they are large
    stays: bool = False  # whether lines of steps that a later attempt repeats stay: they say why the earlier one died

    @property
    def history(self) -> Literal["step", "trace", ""]:
        """How a line is part of the history of a run: by its attempt and step, by the trace of a step, or always."""
        names = {column.name: column for column in self.columns}
        if self.stays:
            return ""
        if {"attempt", "step"} <= {*names} and not names["step"].can_be_null:
            return "step"
        return "trace" if {"step", "trace_id"} <= {*names} else ""


_DELTA: Literal["delta_binary_packed"] = "delta_binary_packed"
_SPLIT: Literal["byte_stream_split"] = "byte_stream_split"
_MANY = 16_384
_TIME = Column("time_unix_nano", "int64", "when it was recorded, in nanoseconds since 1970", encoding=_DELTA)
_STEP = Column("step", "int64", "iteration of the RL loop", encoding=_DELTA)
_MAYBE_STEP = _STEP._replace(can_be_null=True)
_ATTEMPT = Column("attempt", "int64", "the attempt that recorded it")
_PART = Column("part", "int64", "number among the rows of its step and attempt; 0 is the first, late ones count up")
_LATE = Column("late", "bool", "whether it came after the first row of its step was made")
_TRACE = Column("trace_id", "text", "32 hex digits")
_SPAN = Column("span_id", "id", "16 hex digits", encoding="delta_byte_array")
_ATTRIBUTES = Column("attributes", "json", "the other attributes, as JSON", can_be_null=True)
_ROLE = Column("role", "text", "role of the process; empty for a trainer rank")
_RANK = Column("rank", "int64", "rank of the process")
_MAYBE_RANK = _RANK._replace(can_be_null=True)
_MEASURED = Column(
    "measured", "bool", "whether otel-rl measured or derived it, rather than the trainer logged it", is_of_value=True
)
_VALUE = Column("value", "double", "the value, bit for bit", is_of_value=True, encoding=_SPLIT)
_INTEGER = Column("integer", "bool", "whether the value is an integer", is_of_value=True)
_PLACE = Column("place", "int64", "its place among the values that were recorded together", is_of_value=True)
_EXACT = Column("exact", "text", "the integer itself, if a double cannot hold it", can_be_null=True, is_of_value=True)
_DURATION = Column(
    "duration_ns",
    "int64",
    "its duration in nanoseconds",
    field="end_unix_nano",
    since="start_unix_nano",
    encoding=_DELTA,
)
_LOGPROBS = Column(
    "logprobs",
    "doubles",
    "log-probability of each token in the engine, bit for bit",
    can_be_null=True,
    encoding=_SPLIT,  # of 32 bits they take half as much
)
_OUTCOME = Column("outcome", "text", "finished, failed, cancelled, crashed or lost")
_ERROR = Column("error", "text", "the exception, the signal, or which process was lost; empty if finished")
_EXIT_CODE = Column("exit_code", "int64", "exit code of the process")


def _slot(name: str, kind: ColumnType, brief: str, attribute: str) -> Column:
    """Return the column of an attribute of spans."""
    return Column(name, kind, brief, can_be_null=True, attribute=attribute)


ROWS = ArchiveTable(
    "rows",
    "a value of a step, reduced over ranks",
    "values of steps",
    Row,
    (
        _ATTEMPT,
        _STEP,
        _PART,
        _TIME,
        Column("name", "text", "the framework's own name of the metric", is_of_value=True),
        _VALUE,
        _MEASURED,
        _LATE,
        _INTEGER,
        _PLACE,
        _EXACT,
    ),
)
STEPS = ArchiveTable(
    "steps",
    "a row of values of a step: what holds for all of them",
    "rows of steps",
    Row,
    (
        _ATTEMPT,
        _STEP,
        _PART,
        _TIME,
        Column("begins", "int64", "first of the steps that the row is reduced over", can_be_null=True),
        _LATE,
        Column("partial", "bool", "whether a process died inside the step, so that values may be missing"),
        Column("missing_ranks", "json", "ranks that had not reported", can_be_null=True),
        Column("nonfinite", "json", "number of NaN and infinite samples, by metric", can_be_null=True),
        _TRACE,
        _SPAN,
        Column("digests", "id", "four hex digits for each rank, equal if it logged equal values", can_be_null=True),
    ),
)
SPANS = ArchiveTable(
    "spans",
    "a phase of a rank, a step, a trajectory, or a span of another library",
    "phases, steps, trajectories and other spans",
    Span,
    (
        _slot("attempt", "int64", "the attempt that recorded it", semconv.RUN_ATTEMPT),
        _MAYBE_STEP._replace(attribute=semconv.LOOP_ITERATION),
        _slot("role", "text", _ROLE.brief, semconv.ROLE),
        _slot("rank", "int64", _RANK.brief, semconv.RANK),
        _slot("phase", "text", "the trainer's name of the phase", semconv.PHASE),
        _slot("device_seconds", "double", "its duration on the device in seconds", semconv.PHASE_DEVICE_DURATION),
        _slot("memory_start_bytes", "int64", "memory of the process at its start", semconv.PHASE_PROCESS_MEMORY_START),
        _slot("memory_end_bytes", "int64", "memory of the process at its end", semconv.PHASE_PROCESS_MEMORY_END),
        Column("name", "text", "name of the span"),
        Column("start_unix_nano", "int64", "when it started, in nanoseconds since 1970", encoding=_DELTA),
        _DURATION,
        _TRACE,
        _SPAN,
        Column("parent_id", "text", "16 hex digits; empty for a root"),
        Column("error", "text", "the error message, which implies the status Error", can_be_null=True),
        Column("ok", "bool", "whether the status was set to OK"),
        Column("kind", "int64", "OpenTelemetry's SpanKind; 0 is INTERNAL"),
        _ATTRIBUTES,
        Column("events", "json", "events inside it", can_be_null=True),
        Column("links", "json", "links to other spans", can_be_null=True),
        Column("scope", "json", "name and version of the tracer of another library", can_be_null=True),
        Column("resource", "json", "resource attributes of another program", can_be_null=True),
        Column("sampled", "bool", "whether trace sampling kept it for the exporters of spans", can_be_null=True),
        Column("own_ns", "int64", "of a phase or a part, nanoseconds in which none that began later was open", True),
    ),
    sealed_items=_MANY,
)
TRAJECTORIES = ArchiveTable(
    "trajectories",
    "a trajectory that a rank trained on or dropped in a step",
    "trajectories that were trained on or dropped",
    Trajectory,
    (
        _ATTEMPT,
        _STEP,
        _TIME,
        _RANK,
        Column("outcome", "text", "trained, or the reason why it was dropped"),
        Column("policy_version", "int64", "version of the policy that is trained; -1 if unknown"),
        Column("trace_id", "text", "32 hex digits of its trace; empty if it has none"),
        _SPAN,
        Column("reward", "double", "its reward; NaN if unknown"),
        Column("tokens", "int64", "tokens that were generated for it"),
        Column("versions", "json", "versions of the policies that made it, each with its tokens", can_be_null=True),
        Column("number", "int64", "its number among those that the rank recorded at once"),
        Column("prompt_id", "text", "identity of its prompt", can_be_null=True),
        Column("group_id", "text", "identity of its group", can_be_null=True),
        Column("row", "text", "row of the dataset", can_be_null=True),
        Column("advantage", "double", "its advantage; NaN if unknown", can_be_null=True),
        Column("loss", "double", "its loss; NaN if unknown", can_be_null=True),
        Column("components", "json", "parts of its reward, by name", can_be_null=True),
    ),
    sealed_items=_MANY,
)
MESSAGES = ArchiveTable(
    "messages",
    "a message of a trajectory",
    "messages of trajectories",
    Message,
    (
        _ATTEMPT,
        _STEP._replace(brief="the step that trained on the trajectory or dropped it, or that was open"),
        _TIME,
        _ROLE,
        _RANK,
        Column("trace_id", "text", "32 hex digits of the trajectory's trace"),
        _SPAN._replace(brief="16 hex digits of the trajectory's span"),
        Column("number", "int64", "its place in the trajectory, from 0"),
        Column("author", "text", "system, user, assistant, tool, or another author"),
        Column("name", "text", "name of the tool; empty if it has none"),
        Column("text", "id", "the text, up to a limit"),
        Column("cut", "int64", "number of characters beyond the limit"),
        Column("calls", "json", "tool calls, as JSON", can_be_null=True),
        Column("policy_version", "int64", "version of the policy that wrote it; -1 if unknown"),
        Column("tokens", "int64s", "ids of its tokens", can_be_null=True, encoding=_DELTA),
        _LOGPROBS,
        _LOGPROBS._replace(name="trainer_logprobs", brief="the same in the trainer"),
        Column("mask", "bools", "for each token, whether it is trained on", can_be_null=True),
        Column("pieces", "texts", "text of each token", can_be_null=True),
    ),
    sealed_items=_MANY,
    states_steps=True,
)
LOGS = ArchiveTable(
    "logs",
    "a line that a process printed, or a message of its logging",
    "printed lines and messages of logging",
    LogRecord,
    (
        _ATTEMPT,
        _TIME._replace(brief="when it was printed or, of a file, read, in nanoseconds since 1970"),
        _ROLE,
        _MAYBE_RANK,
        Column("host", "text", "name of its machine"),
        Column("number", "int64", "its place among the lines of its process, from 0", encoding=_DELTA),
        Column("stream", "text", "stdout, stderr, output (one file for both) or logging"),
        Column("severity", "int64", "OpenTelemetry's severity number; 0 if it is not known"),
        Column("logger", "text", "name of the logger; empty if it was printed"),
        _MAYBE_STEP,
        Column("phase", "text", "the innermost phase that the process was in; empty outside of any"),
        _TRACE,
        _SPAN,
        Column("repeated", "int64", "how often it came in a row"),
        Column("cut", "int64", "number of characters that were cut"),
        Column("left_out", "int64", "number of lines that were left out here, if it stands for them"),
        Column("text", "id", "the text, without secrets"),
        _ATTRIBUTES._replace(brief="exception, place in the code and thread, as JSON"),
    ),
    sealed_items=_MANY,
    stays=True,
)
EVENTS = ArchiveTable(
    "events",
    "an event, such as a checkpoint or a lost process",
    "events, such as checkpoints",
    Event,
    (Column("name", "text", "name of the event"), _TIME, _MAYBE_STEP, _MAYBE_RANK, _TRACE, _SPAN, _ATTRIBUTES),
)
MEASUREMENTS = ArchiveTable(
    "measurements",
    "a value of a machine, on an axis of its own",
    "values of machines",
    Machine,
    (
        Column("second", "int64", "whole seconds since the start of the run", field="step"),
        _TIME,
        Column("name", "text", "name of the measurement", is_of_value=True),
        _VALUE,
        _INTEGER,
        _PLACE,
        _EXACT,
    ),
)
PARAMETERS = ArchiveTable(
    "parameters",
    "the hyperparameters that were recorded at once",
    "hyperparameters",
    Params,
    (_TIME, Column("parameters", "json", "values by name", field="values")),
)
ATTEMPTS = ArchiveTable(
    "attempts",
    "a process that took part in an attempt; its last line is valid",
    "processes",
    Process,
    (
        _ATTEMPT,
        _ROLE,
        _RANK,
        Column("world_size", "int64", "number of ranks of the training"),
        Column("host", "text", "name of its machine"),
        Column("pid", "int64", "its process id"),
        Column("started_unix_nano", "int64", "when it started, in nanoseconds since 1970"),
        Column("devices", "json", "names of its accelerators", can_be_null=True),
        Column("ended_unix_nano", "int64", "when it ended, in nanoseconds since 1970", can_be_null=True),
        _OUTCOME._replace(can_be_null=True),
        _ERROR,
        _EXIT_CODE,
        Column("cause", "text", "why it ended without a report, as `rl.process.cause`", can_be_null=True),
        Column("ended_step", "int64", "the step in which it ended badly", can_be_null=True),
        Column("ended_phase", "text", "the phase in which it ended badly", can_be_null=True),
        Column("down_order", "int64", "its place among those that ended badly, from 1", can_be_null=True),
    ),
)
HANGS = ArchiveTable(
    "hangs",
    "a time in which a process made no progress; its last line is valid",
    "hangs of processes",
    Hang,
    (
        _ATTEMPT,
        _ROLE,
        _RANK,
        Column("host", "text", "name of its machine"),
        Column("pid", "int64", "its process id"),
        _MAYBE_STEP,
        Column("phase", "text", "the phase that it is in; empty outside of any"),
        Column("part", "text", "the part of the phase"),
        Column("started_unix_nano", "int64", "when it made progress last, in nanoseconds since 1970"),
        Column("ended_unix_nano", "int64", "when it ended, in nanoseconds since 1970; null while it lasts", True),
        Column("kind", "text", "hung, or silent if nothing arrives from its machine, so that it may be well"),
        Column("scope", "text", "job if no rank makes progress, otherwise process"),
        Column("evidence", "text", "what it does, in words"),
        Column("cause", "text", "why its wait can never end: dead, ended or circle; empty if that is unknown"),
        Column("culprits", "json", "the processes or servers that this is due to", can_be_null=True),
        Column("ending", "text", "resumed, or over if the process died or ended; empty while it lasts"),
        _TIME._replace(brief="when this was found, in nanoseconds since 1970"),
    ),
)
ENDS = ArchiveTable(
    "ends", "the end of an attempt", "ends of attempts", Ended, (_ATTEMPT, _TIME, _OUTCOME, _ERROR, _EXIT_CODE)
)
ENVIRONMENT = ArchiveTable(
    "environment",
    "what an attempt ran with",
    "software of attempts",
    Environment,
    (
        _ATTEMPT,
        _TIME,
        Column("host", "text", "name of the machine that it was found on"),
        Column("environment", "json", "versions of packages, source, launcher and command, by name", field="values"),
    ),
)
TEXTS = ArchiveTable(
    "texts",
    "a table that was recorded in a step, such as completions",
    "tables, such as completions",
    Table,
    (
        _ATTEMPT,
        _STEP,
        _PART,
        _TIME,
        Column("name", "text", "name of the table"),
        Column("columns", "json", "names of its columns"),
        Column("cells", "json", "its rows", field="rows"),
        Column("ranks", "json", "ranks whose rows these are", can_be_null=True),
        Column("cut_rows", "int64", "number of rows that were left out"),
    ),
)
TABLES = (
    *(ROWS, STEPS, SPANS, TRAJECTORIES, EVENTS, MEASUREMENTS, PARAMETERS),
    *(ATTEMPTS, HANGS, ENDS, ENVIRONMENT, TEXTS, MESSAGES, LOGS),
)
"""All tables of an archive."""
KINDS: dict[type[msgspec.Struct], tuple[ArchiveTable, ...]] = {
    kind: tuple(table for table in TABLES if table.item is kind)
    for kind in dict.fromkeys(table.item for table in TABLES)
}
"""The tables of each kind of item; the last one is written last, so that an item exists if it is there."""
TOKEN_LISTS: dict[str, ColumnType] = {column.name: column.kind for column in MESSAGES.columns if column.kind in LISTS}
"""The columns of messages that have a list with an entry for each token, with their types."""
