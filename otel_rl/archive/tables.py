"""The tables of the archive: stable columns, with units in their names. A new column comes last, and may be null."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["int64", "double", "bool", "text", "id", "json", "int64s", "doubles", "bools", "texts"]
"""Types of columns; an `id` is a text that hardly ever repeats, `json` a text in JSON, `doubles` a list of doubles."""


class Column(NamedTuple):
    """A column, its type, what it holds, and whether it can be null."""

    name: str
    kind: Kind
    brief: str
    can_be_null: bool = False


class Table(NamedTuple):
    """A table, which is also the folder of its files.

    Attributes:
        name: Its name.
        brief: What a line is.
        columns: Its columns, in their order.
    """

    name: str
    brief: str
    columns: tuple[Column, ...]


_TIME = Column("time_unix_nano", "int64", "when it was recorded, in nanoseconds since 1970")
_STEP = Column("step", "int64", "iteration of the RL loop")
_MAYBE_STEP = _STEP._replace(can_be_null=True)
_ATTEMPT = Column("attempt", "int64", "the attempt that recorded it")
_PART = Column("part", "int64", "number among the rows of its step and attempt; 0 is the first, late ones count up")
_LATE = Column("late", "bool", "whether it came after the first row of its step was made")
_TRACE = Column("trace_id", "text", "32 hex digits")
_SPAN = Column("span_id", "id", "16 hex digits")
_ATTRIBUTES = Column("attributes", "json", "the other attributes, as JSON", can_be_null=True)
_ROLE = Column("role", "text", "role of the process; empty for a trainer rank")
_RANK = Column("rank", "int64", "rank of the process")
_MAYBE_RANK = _RANK._replace(can_be_null=True)
_VALUE = Column("value", "double", "the value, bit for bit")
_INTEGER = Column("integer", "bool", "whether the value is an integer")
_PLACE = Column("place", "int64", "its place among the values that were recorded together")
_EXACT = Column("exact", "text", "the integer itself, if a double cannot hold it", can_be_null=True)
_OUTCOME = Column("outcome", "text", "finished, failed, crashed or lost")
_ERROR = Column("error", "text", "the exception, the signal, or which process was lost; empty if finished")
_EXIT_CODE = Column("exit_code", "int64", "exit code of the process")

ROWS = Table(
    "rows",
    "a value of a step, reduced over ranks",
    (
        _ATTEMPT,
        _STEP,
        _PART,
        _TIME,
        Column("name", "text", "the framework's own name of the metric"),
        _VALUE,
        Column("measured", "bool", "whether otel-rl measured or derived it, rather than the trainer logged it"),
        _LATE,
        _INTEGER,
        _PLACE,
        _EXACT,
    ),
)
STEPS = Table(
    "steps",
    "a row of values of a step: what holds for all of them",
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
SPANS = Table(
    "spans",
    "a phase of a rank, a step, a trajectory, or a span of another library",
    (
        Column("attempt", "int64", "the attempt, of the root span of a step", can_be_null=True),
        _MAYBE_STEP,
        _ROLE._replace(can_be_null=True),
        _MAYBE_RANK,
        Column("phase", "text", "the trainer's name of the phase", can_be_null=True),
        Column("device_seconds", "double", "its duration on the device in seconds", can_be_null=True),
        Column("memory_start_bytes", "int64", "memory of the process at its start", can_be_null=True),
        Column("memory_end_bytes", "int64", "memory of the process at its end", can_be_null=True),
        Column("name", "text", "name of the span"),
        Column("start_unix_nano", "int64", "when it started, in nanoseconds since 1970"),
        Column("duration_ns", "int64", "its duration in nanoseconds"),
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
        Column("sampled", "bool", "whether trace sampling kept it for the exporters of spans"),
    ),
)
TRAJECTORIES = Table(
    "trajectories",
    "a trajectory that a rank trained on or dropped in a step",
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
)
MESSAGES = Table(
    "messages",
    "a message of a trajectory",
    (
        _ATTEMPT,
        Column("step", "int64", "the step that trained on the trajectory or dropped it, or that was open"),
        _TIME,
        _ROLE,
        _RANK,
        Column("trace_id", "text", "32 hex digits of the trajectory's trace"),
        Column("span_id", "id", "16 hex digits of the trajectory's span"),
        Column("number", "int64", "its place in the trajectory, from 0"),
        Column("author", "text", "system, user, assistant, tool, or another author"),
        Column("name", "text", "name of the tool; empty if it has none"),
        Column("text", "id", "the text, up to a limit"),
        Column("cut", "int64", "number of characters beyond the limit"),
        Column("calls", "json", "tool calls, as JSON", can_be_null=True),
        Column("policy_version", "int64", "version of the policy that wrote it; -1 if unknown"),
        Column("tokens", "int64s", "ids of its tokens", can_be_null=True),
        Column("logprobs", "doubles", "log-probability of each token in the engine, bit for bit", can_be_null=True),
        Column("trainer_logprobs", "doubles", "the same in the trainer", can_be_null=True),
        Column("mask", "bools", "for each token, whether it is trained on", can_be_null=True),
        Column("pieces", "texts", "text of each token", can_be_null=True),
    ),
)
EVENTS = Table(
    "events",
    "an event, such as a checkpoint or a lost process",
    (Column("name", "text", "name of the event"), _TIME, _MAYBE_STEP, _MAYBE_RANK, _TRACE, _SPAN, _ATTRIBUTES),
)
MEASUREMENTS = Table(
    "measurements",
    "a value of a machine, on an axis of its own",
    (
        Column("second", "int64", "whole seconds since the start of the run"),
        _TIME,
        Column("name", "text", "name of the measurement"),
        _VALUE,
        _INTEGER,
        _PLACE,
        _EXACT,
    ),
)
PARAMETERS = Table(
    "parameters",
    "the hyperparameters that were recorded at once",
    (_TIME, Column("parameters", "json", "values by name")),
)
ATTEMPTS = Table(
    "attempts",
    "a process that took part in an attempt; its last line is valid",
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
    ),
)
ENDS = Table("ends", "the end of an attempt", (_ATTEMPT, _TIME, _OUTCOME, _ERROR, _EXIT_CODE))
ENVIRONMENT = Table(
    "environment",
    "what an attempt ran with",
    (
        _ATTEMPT,
        _TIME,
        Column("host", "text", "name of the machine that it was found on"),
        Column("environment", "json", "versions of packages, source, launcher and command, by name"),
    ),
)
TEXTS = Table(
    "texts",
    "a table that was recorded in a step, such as completions",
    (
        _ATTEMPT,
        _STEP,
        _PART,
        _TIME,
        Column("name", "text", "name of the table"),
        Column("columns", "json", "names of its columns"),
        Column("cells", "json", "its rows"),
        Column("ranks", "json", "ranks whose rows these are", can_be_null=True),
        Column("cut_rows", "int64", "number of rows that were left out"),
    ),
)
TABLES = (
    *(ROWS, STEPS, SPANS, TRAJECTORIES, EVENTS, MEASUREMENTS, PARAMETERS),
    *(ATTEMPTS, ENDS, ENVIRONMENT, TEXTS, MESSAGES),
)
"""All tables of an archive."""
