"""The time of trajectories in rows: by kind of part, and by tool."""

from __future__ import annotations

import math

import pytest

from otel_rl.analyses.consumption import Consumption
from otel_rl.recorder.agent.steps.trajectories import of_step
from otel_rl.recorder.journal.records import Consumed
from otel_rl.recorder.trainer.tickets import consumed
from otel_rl.semconv.vocabulary import Vocabulary
from tests.recorder.agent.reducing import reducing, row_of

TICKETS = [
    {"parts": {"model": 3.0, "tool": 5.0, "other": 1.0}, "tools": {"search": [2, 4.0, 3.5], "mcp/run": [1, 1.0, 1.0]}},
    {"parts": {"model": 1.0}, "tools": {}},
]


def told(tickets: list[dict[str, object]], outcome: str = "trained") -> list[Consumed]:
    return list(consumed(tickets, 0, 1, None, outcome, pytest.fail))


def test_a_row_has_seconds_and_fractions() -> None:
    """Over all trajectories of the step, also those that were dropped."""
    values = Consumption().add(told(TICKETS[:1]) + told(TICKETS[1:], "stale"))

    assert values["trajectories/time/model"] == 4.0
    assert values["trajectories/time/tool"] == 5.0
    assert values["trajectories/time_fraction/model"] == 0.4
    assert values["trajectories/time_fraction/other"] == 0.1


def test_a_row_has_the_tools() -> None:
    """Their calls, the seconds of these, and the longest one; a slash would be another level of the name."""
    values = Consumption().add(told(TICKETS))

    assert {name: value for name, value in values.items() if "/tool/" in name} == {
        "trajectories/tool/search/calls": 2,
        "trajectories/tool/search/time": 4.0,
        "trajectories/tool/search/longest": 3.5,
        "trajectories/tool/mcp.run/calls": 1,
        "trajectories/tool/mcp.run/time": 1.0,
        "trajectories/tool/mcp.run/longest": 1.0,
    }


def test_tools_do_not_make_endless_columns() -> None:
    """The first sixteen tools of a run have their own, over all steps."""
    consumption = Consumption()
    found = set[str]()
    for n in range(100):
        found |= consumption.add(told([{"tools": {f"tool {n}": [1, 1.0, 1.0]}}])).keys()

    assert len([name for name in found if name.endswith("/calls")]) == 17
    assert "trajectories/tool/other/calls" in found


def test_the_root_span_names_the_slowest_tool() -> None:
    """It is the one with the longest call, not the one that is called most."""
    records = told([{"tools": {"search": [9, 9.0, 1.0], "python": [1, 2.0, 2.0]}}])

    assert of_step(records)["rl.trajectory.tool.slowest"] == "python"


def test_the_names_are_metrics() -> None:
    """Each value of a row is shown under a name of the registry."""
    values, vocabulary = Consumption().add(told(TICKETS)), Vocabulary("auto")
    names = {reading.metric for name in values if (reading := vocabulary.read(name)) is not None}

    assert names >= {
        "rl.trajectory.part.time",
        "rl.trajectory.part.fraction",
        "rl.trajectory.tool.calls",
        "rl.trajectory.tool.time",
        "rl.trajectory.tool.longest",
    }


def test_it_is_in_the_row() -> None:
    """From the journal to the row of the step."""
    assert row_of(reducing(), [told(TICKETS)])["trajectories/time/tool"] == 5.0


@pytest.mark.parametrize(
    ("parts", "tools"),
    [
        ({"tool": -1.0}, {}),
        ({"tool": math.inf}, {}),
        ({}, {"search": (1, math.nan, 1.0)}),
    ],
)
def test_invalid_times_of_another_machine_are_refused(
    parts: dict[str, float], tools: dict[str, tuple[int, float, float]]
) -> None:
    """A damaged record changes nothing: it would fail again after each restart."""
    with pytest.raises(ValueError, match="invalid"):
        Consumed(0, 1, "trained", 3, b"", b"", b"", parts, tools).check()
