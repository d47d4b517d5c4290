"""Asynchronous RL over processes and HTTP: two trainers, three rollout workers, an inference server, staleness 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from otel_rl.export import Row, Span
from tests.distributed import async_rl
from tests.processes import items_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from otel_rl.export import Item

pytestmark = [pytest.mark.timeout(280), pytest.mark.slow]
STEPS, TRAJECTORIES, TURNS, BUDGET = 4, 1000, 10, 2000


class Recording(NamedTuple):
    """What left."""

    items: list[Item]

    @property
    def spans(self) -> list[Span]:
        """All spans."""
        return [item for item in self.items if isinstance(item, Span)]

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
    place: Path = tmp_path_factory.mktemp("async")
    run = async_rl.train(place, steps=STEPS, trajectories=TRAJECTORIES, turns=TURNS, budget=BUDGET)
    return Recording(items_of(run))


def reached(spans: Sequence[Span], root: Span) -> list[Span]:
    """Return the spans that are reached from the root of a step, over links and down to children."""
    of_trace: dict[str, list[Span]] = {}
    for span in spans:
        of_trace.setdefault(span.trace_id, []).append(span)
    traces = [root.trace_id]
    for trace_id in traces:
        for span in of_trace[trace_id]:
            traces += [link.trace_id for link in span.links if link.trace_id not in traces]
    return [span for trace_id in traces for span in of_trace[trace_id]]


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


def test_all_that_is_kept_is_reached(recording: Recording) -> None:
    """From each step over its links to its trajectories, whole, with every request, and to their rollouts."""
    for root in recording.roots:
        spans = reached(recording.spans, root)
        kept = {link.trace_id for link in root.links}
        for trace_id in kept:
            names = sorted(span.name for span in spans if span.trace_id == trace_id)
            assert names == ["llm_request"] * TURNS + ["rl.sample", "rl.trajectory"]
        assert len(kept) > 128
        assert {span.resource["service.name"] for span in spans if span.name == "llm_request"} == {"vllm"}


def test_there_are_no_orphans(recording: Recording) -> None:
    """Every parent and every end of a link is there."""
    ids = {(span.trace_id, span.span_id) for span in recording.spans}

    assert [s for s in recording.spans if s.parent_id and (s.trace_id, s.parent_id) not in ids] == []
    assert [x for s in recording.spans for x in s.links if (x.trace_id, x.span_id) not in ids] == []


def test_the_budget_is_kept(recording: Recording) -> None:
    """Of the 12,000 spans and more of each step as many leave as were asked for; a rollout of two steps leaves once."""
    left: set[str] = set()
    for root in recording.roots:
        spans = {span.span_id for span in reached(recording.spans, root)} - left
        assert BUDGET * 0.9 < len(spans) <= BUDGET
        left |= spans


def test_failed_ones_are_kept(recording: Recording) -> None:
    """Each failed trajectory that a step took is among those that it links to."""
    for root in recording.roots:
        kept = {link.trace_id for link in root.links}
        failed = [s for s in recording.spans if s.trace_id in kept and s.name == "rl.trajectory" and s.error]
        assert 10 <= len(failed) <= 40
