"""The agent accepts everything that the trainer accepts: a limit costs one value, and the trainer logs a warning."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from otel_rl import Run
from otel_rl.recorder.errors.texts import LONGEST_NAME
from otel_rl.recorder.journal.records import (
    Configured,
    Consumed,
    Happened,
    Logged,
    Observed,
    Record,
    Refusals,
    SpanEnded,
    Tabled,
)

RecordsOf = Callable[..., list[Record]]

LONG = "x" * (LONGEST_NAME + 1)
GOOD = {"good": 1.0, "also": 2.0}


def phase(run: Run, **attributes: object) -> None:
    with run.phase("work", **attributes) as span:
        span.add_event("moment", attributes)  # type: ignore[arg-type]


def trajectory(run: Run) -> None:
    with run.trajectory(policy_version=3) as one:
        one.generated(5)
        one.generated(-5)
        one.generated(1 << 60)
        one.generated(5, policy_version=-7)
    run.trained([one.ticket()], step=0)


def values(records: list[Record], kind: type, field: str = "values") -> Any:
    found: dict[str, object] = {}
    for record in records:
        if isinstance(record, kind):
            found |= getattr(record, field)
    return found


def told(records: list[Record], kind: type) -> Any:
    return values(records, kind, "attributes")


def tickets(records: list[Record]) -> Any:
    (consumed,) = (one for one in records if isinstance(one, Consumed))
    return list(array("q", consumed.segments))


def columns(records: list[Record]) -> Any:
    (table,) = (one for one in records if isinstance(one, Tabled))
    return table.columns


@pytest.mark.parametrize(
    ("call", "kept", "expected", "refused"),
    [
        (lambda run: run.log({**GOOD, LONG: 3.0}, step=0), lambda r: values(r, Logged), GOOD, {"name": 1}),
        (lambda run: run.log({**GOOD, LONG: [3.0]}, step=0), lambda r: values(r, Logged), GOOD, {"name": 1}),
        (lambda run: run.log({**GOOD, LONG: 3.0, "s": [1.0]}, step=0), lambda r: values(r, Logged), GOOD, {"name": 1}),
        (lambda run: run.event("e", **GOOD, **{LONG: 1}), lambda r: told(r, Happened), GOOD, {"attribute": 1}),
        (lambda run: phase(run, **GOOD, **{LONG: 1}), lambda r: told(r, SpanEnded), GOOD, {"attribute": 2}),
        (lambda run: run.params({**GOOD, LONG: 1}), lambda r: values(r, Configured), GOOD, {"params": 1}),
        (
            lambda run: run.params({"a": {"n" * 3000: {"m" * 3000: 1}}, **GOOD}),
            lambda r: values(r, Configured),
            GOOD,
            {"params": 1},
        ),
        (lambda run: run.table("t", {"good": [1], LONG: [2]}, step=0), columns, ["good"], {"table": 1}),
        (lambda run: run.table("t", {"\ud800": [1], "\\ud800": [2]}, step=0), columns, ["\\ud800"], {"table": 1}),
        (trajectory, tickets, [0, 3, 5], {"generated": 3}),
        (
            lambda run: run.trained([{"tokens": 1 << 60}, {"tokens": 2, "policy_version": -9}, {"tokens": 7}], step=0),
            tickets,
            [0, -1, 7],
            {"trained": 2},
        ),
        (
            lambda run: run.trained([{"tokens": 7}], policy_version=-9, step=0),
            tickets,
            [0, -1, 7],
            {"trained": 1},
        ),
        pytest.param(
            lambda run: run.log({"good": [1.0], "all": array("d", bytes(80 << 20)), "also": [2.0]}, step=0),
            lambda r: [*values(r, Observed)],
            ["good", "also"],
            {"value": 1},
            marks=pytest.mark.slow,  # more than 64 MiB
        ),
        pytest.param(
            lambda run: run.log({name: array("d", bytes(30 << 20)) for name in "abc"}, step=0),
            lambda r: [*values(r, Observed)],
            ["a", "b", "c"],
            {},
            marks=pytest.mark.slow,  # more than 64 MiB
        ),
        (
            lambda run: run.event("e", good=1.0, also=2.0, text="y" * (100 << 20)),
            lambda r: len(told(r, Happened)["text"]),
            1 << 20,
            {"attribute_limits": 1},
        ),
        pytest.param(
            lambda run: run.event("e", numbers=[1.5] * (9 << 20)),
            lambda r: [one.name for one in r if isinstance(one, Happened)],
            ["e"],
            {"attribute": 1},
            marks=pytest.mark.slow,  # more than 64 MiB
        ),
        pytest.param(
            lambda run: phase(run, numbers=[1.5] * (9 << 20)),
            lambda r: [type(one) for one in r if isinstance(one, SpanEnded)],
            [SpanEnded],
            {"attribute": 1},
            marks=pytest.mark.slow,  # more than 64 MiB
        ),
    ],
)
def test_one_bad_value(
    recording: Run,
    records_of: RecordsOf,
    caplog: pytest.LogCaptureFixture,
    call: Callable[[Run], object],
    kept: Callable[[list[Record]], object],
    expected: object,
    refused: dict[str, int],
) -> None:
    """It is refused alone, counted, and logged; the other values are recorded, and the agent accepts every record."""
    with caplog.at_level(logging.WARNING, "otel_rl"):
        call(recording)
    records = records_of(recording)
    for record in records:
        record.check()

    assert kept(records) == expected
    assert next((one.counts for one in reversed(records) if isinstance(one, Refusals)), {}) == refused
    assert len(caplog.messages) == len(refused)
    assert all(len(message) < 600 for message in caplog.messages)


@pytest.mark.parametrize(
    "call",
    [
        lambda run: run.phase(LONG).__enter__(),
        lambda run: run.event(LONG),
        lambda run: run.table(LONG, {"a": [1]}, step=0),
        lambda run: run.phase("\ud800" * LONGEST_NAME).__enter__(),
        lambda run: run.event("\ud800" * LONGEST_NAME),
        lambda run: run.log({"\ud800" * LONGEST_NAME: 1.0, "good": 1.0}, step=0),
        lambda run: run.tracer_provider.get_tracer(LONG, LONG).start_span(LONG, attributes={LONG: 1}).end(),
        lambda run: run.step(0, **{LONG: 1}).__enter__(),
    ],
)
def test_long_names(recording: Run, records_of: RecordsOf, call: Callable[[Run], object]) -> None:
    """Names that are too long, or become so where they are spelled out, are cut or refused before the journal."""
    call(recording)
    recording.finish(0)
    records = records_of(recording)

    for record in records:
        record.check()
    assert len(records) > 2
