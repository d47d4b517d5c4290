"""Where the time of the workers went."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.agent.goodput import Goodput, categories
from otel_rl.export import Span
from otel_rl.records import SpanEnded, SpanStarted, StepEnded, StepStarted
from otel_rl.semconv import registry
from tests.agent.reducing import S, feed, reducing, rows, started


def phase(name: str, start: float, end: float, part: str = "", rank: int = 0, **attributes: float) -> Span:
    told = {"rl.phase": name, "rl.rank": rank, **({"rl.phase.part": part} if part else {}), **attributes}
    return Span(name, "", "", "", round(start * S), round(end * S), told)


def split(wall: tuple[float, float], *spans: Span) -> dict[str, float]:
    return Goodput(str).take({(0, ""): (round(wall[0] * S), round(wall[1] * S))}, spans)


def test_a_step() -> None:
    """Each phase counts as what it is; what is in none is unaccounted."""
    found = split(
        (0, 20),
        phase("generate", 0, 8),
        phase("wait", 8, 9),
        phase("update_actor", 9, 14),
        phase("weight_sync", 14, 16),
        phase("my_own", 16, 17),
    )

    assert found == {"productive": 13.0, "idle": 1.0, "overhead": 2.0, "unclassified": 1.0, "unaccounted": 3.0}


def test_the_innermost_phase_counts() -> None:
    """A moment counts once, however many phases are open: loading states is overhead of a productive phase."""
    found = split((0, 10), phase("train_step", 0, 10), phase("train_step", 0, 3, "onload"), phase("wait", 5, 6))

    assert found == {"overhead": 3.0, "idle": 1.0, "productive": 6.0}


def test_wasted_tokens_waste_their_share() -> None:
    """Of rollouts of which a quarter was aborted or stale, a quarter of the time was wasted."""
    assert split((0, 8), phase("generate", 0, 8, tokens=1000, wasted_tokens=250)) == {"productive": 6.0, "wasted": 2.0}


def test_time_between_steps_belongs_to_the_later_one() -> None:
    """Nothing is missing between two steps."""
    reducer = reducing()
    reducer.feed([("a", started())])
    found = []
    for step, (begun, ended) in enumerate(((0, 10), (15, 20), (20, 21))):
        span = SpanStarted(1, 0, b"", step, "generate", begun * S, b""), SpanEnded(1, ended * S, b"")
        items = feed(reducer, "a", StepStarted(step, begun * S, b""), *span, StepEnded(step, ended * S, b""))
        found += [row.values["perf/goodput"] for row in rows(items)]

    assert found == [1.0, 0.5]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["generate", "weight_sync", "wait", "unknown"]),
            st.integers(-5, 25),
            st.integers(0, 15),
            st.integers(0, 3),
            st.integers(0, 10),
        ),
        max_size=12,
    )
)
def test_it_closes(given_: list[tuple[str, int, int, int, int]]) -> None:
    """However phases overlap, or stick out of the step: over all categories it is wall time times workers."""
    spans = [phase(name, a, a + n, rank=rank, tokens=10, wasted_tokens=w) for name, a, n, rank, w in given_]
    goodput = Goodput(str)
    found = goodput.take({(rank, ""): (0, 20 * S) for rank in range(4)}, spans)

    assert sum(found.values()) == pytest.approx(4 * 20)
    assert sum(point.value for point in goodput.points()) == pytest.approx(4 * 20)
    assert min(found.values()) >= 0


def test_fleets_are_told_apart() -> None:
    """Ranks of the trainer, and processes with a role."""
    goodput = Goodput(str)
    span = Span("reward", "", "", "", 0, 2 * S, {"rl.phase": "reward", "rl.rank": 0, "rl.role": "reward_server"})
    found = goodput.take({(0, ""): (0, 4 * S), (0, "reward_server"): (0, 3 * S)}, [span])
    points = {tuple(value for _, value in point.attributes): point.value for point in goodput.points()}

    assert found == {"unaccounted": 4.0}
    assert points == {
        ("unaccounted", "trainer"): 4.0,
        ("productive", "reward_server"): 2.0,
        ("unaccounted", "reward_server"): 1.0,
    }


def test_a_phase_counts_as_one_thing() -> None:
    """No name is in two lists."""
    text = registry.content("time_categories.yaml").decode()

    assert len(categories()) == text.count("  - ") + text.count(",", text.index("idle:")) + 1


def test_it_is_in_the_row() -> None:
    """By the framework's own names of phases."""
    reducer = reducing(dialect="verl")
    reducer.feed([("a", started())])
    begun = (StepStarted(0, 0, b""), SpanStarted(1, 0, b"", 0, "gen", 0, b""), SpanEnded(1, 3 * S, b""))
    items = feed(reducer, "a", *begun, StepEnded(0, 4 * S, b""), StepStarted(1, 4 * S, b""))

    assert rows(items)[0].values["perf/goodput"] == 0.75
