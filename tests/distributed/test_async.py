"""Asynchronous RL over processes and HTTP: two trainers, three rollout workers, an inference server, staleness 2."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from otel_rl.export import Item, Row, Span, Trajectory
from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.tables import KINDS
from otel_rl.recorder.archive.writer import read
from otel_rl.recorder.directory.parts import ARCHIVE
from tests.distributed import async_rl

pytestmark = [pytest.mark.timeout(280), pytest.mark.slow]
STEPS, TRAJECTORIES, TURNS, BUDGET = 4, 1000, 10, 2000


class Recording(NamedTuple):
    """The archive of the run."""

    items: list[Item]

    @property
    def spans(self) -> list[Span]:
        """All spans."""
        return [item for item in self.items if isinstance(item, Span)]

    @property
    def sampled(self) -> list[Span]:
        """The spans that a trace server would get."""
        return [span for span in self.spans if span.sampled]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The values of each step."""
        return [item.values for item in self.items if isinstance(item, Row)]

    @property
    def roots(self) -> list[Span]:
        """The root of each step."""
        return [span for span in self.spans if span.name == "rl.loop"]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Four steps of 10,000 requests each, with workers that are two steps ahead at the beginning."""
    run = async_rl.train(
        tmp_path_factory.mktemp("async"), steps=STEPS, trajectories=TRAJECTORIES, turns=TURNS, budget=BUDGET
    )
    (place,) = (run / ARCHIVE).iterdir()
    tables = [*KINDS.values()]
    return Recording(
        [item for of in tables for file in files.of_table(place, of[-1].name) for item in read(place, of, file)]
    )


def test_every_step_trained_on_its_trajectories(recording: Recording) -> None:
    """Each step has what both trainers took; what was too old was dropped, and said to be."""
    taken = [row["trajectories/trained"] + row.get("trajectories/stale", 0) for row in recording.rows]

    assert taken == [TRAJECTORIES] * STEPS
    assert [root.attributes["rl.trajectories.trained"] for root in recording.roots] == [
        row["trajectories/trained"] for row in recording.rows
    ]


def test_staleness(recording: Recording) -> None:
    """Nothing that was trained on is older than two versions, and some of it is that old."""
    assert max(row["trajectories/staleness/max"] for row in recording.rows) == 2.0
    assert [row["trajectories/staleness/mean"] > 0 for row in recording.rows] == [False, True, True, True]


def test_the_archive_has_every_span(recording: Recording) -> None:
    """Each trajectory of a step is whole, with every request; so is the rollout that it links to."""
    of_trace = by_trace(recording.spans)
    consumed = [item.trace_id for item in recording.items if isinstance(item, Trajectory)]
    ids = {(span.trace_id, span.span_id) for span in recording.spans}

    assert len(set(consumed)) == STEPS * TRAJECTORIES
    for trace_id in consumed:
        assert sorted(span.name for span in of_trace[trace_id]) == ["llm_request"] * TURNS + [
            "rl.sample",
            "rl.trajectory",
        ]
    assert {s.resource["service.name"] for s in recording.spans if s.name == "llm_request"} == {"vllm"}
    assert [s for s in recording.spans if s.parent_id and (s.trace_id, s.parent_id) not in ids] == []
    assert [link for s in recording.spans for link in s.links if (link.trace_id, link.span_id) not in ids] == []


def test_trace_servers_get_a_share_of_it(recording: Recording) -> None:
    """Of 50,000 spans in a short time; a step links to trajectories that are among them."""
    total, left = len(recording.spans), len(recording.sampled)
    of_trace = by_trace(recording.sampled)
    linked = [link.trace_id for root in recording.roots for link in root.links]
    times = [span.end_unix_nano for span in recording.spans]
    minutes = 1 + (max(times) - min(times)) // (60 * 10**9)

    assert BUDGET < left < BUDGET * (1 + minutes + math.log(total / BUDGET))
    assert left < total / 2
    assert len(linked) > 100
    assert all("rl.trajectory" in {span.name for span in of_trace[trace_id]} for trace_id in linked)
    assert sum(len(of_trace[trace_id]) == TURNS + 2 for trace_id in linked) > len(linked) / 2


def test_failed_ones_are_among_them(recording: Recording) -> None:
    """Their root is exported, whatever their trace id is."""
    failed = [span for span in recording.spans if span.name == "rl.trajectory" and span.error]

    assert len(failed) >= STEPS * TRAJECTORIES / 50
    assert all(span.sampled for span in failed)


def by_trace(spans: Sequence[Span]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for span in spans:
        found.setdefault(span.trace_id, []).append(span)
    return found
