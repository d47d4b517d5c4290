"""Items of all kinds, with everything that makes them hard to store."""

from __future__ import annotations

import math
import struct
from array import array
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from otel_rl import semconv
from otel_rl.export import (
    Ended,
    Environment,
    Event,
    Hang,
    Item,
    Machine,
    Message,
    Params,
    Process,
    Row,
    Span,
    SpanEvent,
    SpanLink,
    Table,
    Trajectory,
)
from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.tables import KINDS
from otel_rl.recorder.archive.writer import read

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.integers(0, 1 << 62)
NUMBERS = st.floats() | INTEGERS
SCALARS = st.booleans() | NUMBERS | TEXTS
NAMES = TEXTS | st.sampled_from([semconv.RANK, semconv.PHASE, semconv.LOOP_ITERATION, semconv.PHASE_DEVICE_DURATION])
ATTRIBUTES = st.dictionaries(NAMES, SCALARS | st.lists(TEXTS, max_size=3), max_size=6)
HEX = st.sampled_from(["", "0123456789abcdef", "00000000000000ff"])
STEPS = st.integers(0, 1 << 40)
ATTEMPTS = st.integers(0, 9)
OUTCOMES = st.sampled_from(["finished", "failed", "cancelled", "crashed", "lost"])
CAUSES = st.sampled_from(["", "signal", "oom_kill"])
COUNTS = st.dictionaries(TEXTS, st.integers(0, 9), max_size=2)
MOMENTS = st.builds(SpanEvent, TEXTS, TIMES, ATTRIBUTES)
LINKS = st.builds(SpanLink, HEX, HEX, ATTRIBUTES)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Return a row; otel-rl measured some of its values."""
    values = draw(st.dictionaries(TEXTS, NUMBERS, max_size=8))
    measured = tuple(name for name in values if draw(st.booleans()))
    missing = tuple(draw(st.lists(st.integers(0, 4096), max_size=3)))
    return Row(
        draw(STEPS),
        draw(TIMES),
        values,
        draw(ATTEMPTS),
        missing,
        draw(st.booleans()),
        draw(HEX),
        draw(HEX),
        draw(COUNTS),
        measured,
        draw(st.integers(0, 3)),
        draw(st.booleans()),
        draw(st.none() | STEPS),
        draw(st.sampled_from(["", "00ff12ab"])),
    )


@st.composite
def spans(draw: st.DrawFn) -> Span:
    """Return a span of otel-rl or of another library."""
    start = draw(TIMES)
    return Span(
        draw(TEXTS),
        draw(HEX),
        draw(HEX),
        draw(HEX),
        start,
        start + draw(st.integers(0, 1 << 40)),
        draw(ATTRIBUTES),
        draw(st.none() | TEXTS),
        draw(st.integers(0, 4)),
        tuple(draw(st.lists(MOMENTS, max_size=2))),
        tuple(draw(st.lists(LINKS, max_size=2))),
        draw(st.just(("", "")) | st.tuples(TEXTS, TEXTS)),
        draw(ATTRIBUTES),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.none() | TIMES),
    )


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Return a table of texts and numbers."""
    columns = tuple(draw(st.lists(TEXTS, min_size=1, max_size=3, unique=True)))
    cells = st.tuples(*[st.none() | SCALARS for _ in columns])
    lines = tuple(draw(st.lists(cells, max_size=3)))
    ranks = tuple(0 for _ in lines)
    return Table(draw(TEXTS), draw(STEPS), draw(TIMES), columns, lines, draw(ATTEMPTS), ranks, draw(st.integers(0, 9)))


def packed(code: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """Return a strategy for numbers as the bytes of an array."""
    return st.lists(values, max_size=3).map(lambda found: array(code, found).tobytes())


def any_items() -> st.SearchStrategy[Item]:
    """Return a strategy for items of every kind that an archive has."""
    versions = st.lists(st.tuples(st.integers(-1, 99), st.integers(0, 999)), max_size=2).map(tuple)
    devices = st.lists(TEXTS, max_size=2).map(tuple)
    who = (ATTEMPTS, TEXTS, st.integers(0, 9), st.integers(1, 9), TEXTS, st.integers(0, 1 << 22), TIMES)
    return (
        rows()
        | spans()
        | tables()
        | st.builds(Machine, STEPS, TIMES, st.dictionaries(TEXTS, NUMBERS, min_size=1, max_size=4))
        | st.builds(Params, TIMES, st.dictionaries(TEXTS, st.none() | SCALARS, max_size=4))
        | st.builds(Event, TEXTS, TIMES, ATTRIBUTES, st.none() | STEPS, st.none() | st.integers(0, 9), HEX, HEX)
        | st.builds(Ended, TIMES, ATTEMPTS, OUTCOMES, TEXTS, st.integers(0, 255))
        | st.builds(
            Process,
            *(*who, devices, st.none() | TIMES, st.none() | OUTCOMES, TEXTS, st.integers(0, 255)),
            *(CAUSES, st.none() | STEPS, TEXTS, st.integers(0, 99)),
        )
        | st.builds(
            Hang,
            *(ATTEMPTS, TEXTS, st.integers(0, 9), TEXTS, st.integers(0, 1 << 22), st.none() | STEPS, TEXTS, TEXTS),
            *(TIMES, TIMES, st.sampled_from(["hung", "silent"]), st.sampled_from(["process", "job"]), TEXTS),
            *(st.sampled_from(["", "dead", "circle"]), devices, st.none() | TIMES),
            st.sampled_from(["", "resumed", "over"]),
        )
        | st.builds(Environment, ATTEMPTS, TIMES, TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=3))
        | st.builds(
            Trajectory,
            *(ATTEMPTS, STEPS, TIMES, st.integers(0, 9), TEXTS, st.integers(-1, 99), HEX, HEX, st.floats()),
            *(st.integers(0, 1 << 40), versions, st.integers(0, 99), TEXTS, TEXTS, TEXTS, st.floats(), st.floats()),
            st.dictionaries(TEXTS, st.floats(), max_size=2),
        )
        | st.builds(
            Message,
            *(ATTEMPTS, STEPS, TIMES, TEXTS, st.integers(0, 9), HEX, HEX, st.integers(0, 99), TEXTS, TEXTS, TEXTS),
            *(st.integers(0, 99), st.sampled_from(["", "[1]"]), st.integers(-1, 99), packed("i", st.integers(0, 9))),
            *(packed("d", st.floats()), packed("d", st.floats()), packed("B", st.integers(0, 1))),
            st.lists(TEXTS, max_size=3).map(tuple),
        )
    )


def exactly(value: Any) -> Any:
    """Return a value that is equal only to the same one: types, bits of floats, and the order of metrics included."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("d", value)
    if isinstance(value, dict):
        return sorted((key, exactly(one)) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return [exactly(one) for one in value]
    if isinstance(value, msgspec.Struct):
        metrics = list(value.values) if isinstance(value, Row | Machine) else []
        return type(value).__name__, metrics, [exactly(getattr(value, name)) for name in value.__struct_fields__]
    return type(value).__name__, value


def everything(place: Path) -> list[Item]:
    """Return all items of an archive, those of a kind in their order."""
    found: list[Item] = []
    for tables in KINDS.values():
        for file in files.of_table(place, tables[-1].name):
            found += read(place, tables, file)
    return found
