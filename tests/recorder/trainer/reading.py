"""Exporters that cannot be built, and the records of a journal in the words of the tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import otel_rl
from otel_rl import Run
from otel_rl.recorder.journal.records import Logged, Record, Refusals, SpanEnded, SpanStarted

RecordsOf = Callable[..., list[Record]]
"""The fixture `records_of`: a run, and the label of its process, to the records in its journal."""


class NeedsAPackage:
    """An exporter whose package nobody has."""

    requires: ClassVar = ("no_such_package",)
    extra: ClassVar = "wishes"

    def __init__(self, run: object, *, color: str = "red") -> None:
        raise AssertionError("it must not be built in the trainer")


class NeedsAPartOfAPackage(NeedsAPackage):
    """An exporter that needs a module in a package that nobody has."""

    requires: ClassVar = ("no_such_package.part",)


class Colorful:
    """An exporter with an option."""

    def __init__(self, run: object, *, color: str = "red") -> None:
        raise AssertionError("it must not be built in the trainer")


def kinds(records: list[Record]) -> list[str]:
    return [type(record).__name__ for record in records]


def started(records: list[Record]) -> dict[str, SpanStarted]:
    return {record.name: record for record in records if isinstance(record, SpanStarted)}


def ended(records: list[Record], name: str) -> SpanEnded:
    span_id = started(records)[name].span_id
    (end,) = (record for record in records if isinstance(record, SpanEnded) and record.span_id == span_id)
    return end


def logged(records: list[Record]) -> list[tuple[int, dict[str, int | float]]]:
    return [(record.step, record.values) for record in records if isinstance(record, Logged)]


def refusals(records: list[Record]) -> dict[str, int]:
    return [record.counts for record in records if isinstance(record, Refusals)][-1]


def begin(place: Path, **keywords: object) -> Run:
    return otel_rl.init(**{"agent": "off", "exporters": [], "quiet": True, "project": "test", "dir": place} | keywords)  # type: ignore[arg-type]


def at_once(*calls: Callable[[], object]) -> list[object]:
    """Call functions in a thread each, all at the same moment; return what they returned or raised."""
    barrier = threading.Barrier(len(calls))

    def call(function: Callable[[], object]) -> object:
        barrier.wait()
        try:
            return function()
        except otel_rl.SettingsError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(call, calls))


def runs_in(place: Path) -> list[Path]:
    return [path.parent for path in place.glob("*/*/run.json")]
