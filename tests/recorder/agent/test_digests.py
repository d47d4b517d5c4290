"""Digests of what each rank logged in a step: equal for equal values, whatever else differs."""

from __future__ import annotations

import pytest

from otel_rl.recorder.journal.records import Logged, Record
from otel_rl.semconv.repeatable import is_repeatable
from tests.recorder.agent.reducing import S, feed, observed, reducing, rows, started, step


def _digests(*of_ranks: list[Record], role: str = "") -> str:
    """Return the digests of the row of step 0, in which each rank records something."""
    reducer = reducing()
    for rank in range(len(of_ranks)):
        feed(reducer, f"rank{rank}.attempt0", started(rank, local=len(of_ranks)))
    if role:
        feed(reducer, f"{role}0.attempt0", started(role=role), Logged(0, 1, {"loss": 7.0}))
    items = [item for rank, records in enumerate(of_ranks) for item in feed(reducer, f"rank{rank}.attempt0", *records)]
    items += [item for rank in range(len(of_ranks)) for item in feed(reducer, f"rank{rank}.attempt0", *step(1, 2 * S))]
    return rows(items)[0].digests


def _step(**values: float) -> list[Record]:
    return step(0, 1, Logged(0, 1, values))


def test_each_rank_has_one() -> None:
    """Equal values have equal digests."""
    found = _digests(_step(loss=0.5), _step(loss=0.5), _step(loss=0.25))

    assert len(found) == 12
    assert found[:4] == found[4:8] != found[8:]


def test_order_and_times_do_not_matter() -> None:
    """Values in another order, and times, which differ in each run, leave a digest as it is."""
    later = step(0, 1, Logged(0, 2, {"kl": 0.1, "timing/step": 3.0}), Logged(0, 3, {"loss": 0.5}))

    assert _digests(_step(loss=0.5, kl=0.1), _step()) == _digests(later, _step())


def test_observations_count() -> None:
    """A list of other values has another digest."""
    first, other = (step(0, 1, observed(0, reward=values)) for values in ([0.0, 1.0], [1.0, 1.0]))

    assert _digests(first, _step(loss=1)) != _digests(other, _step(loss=1))


def test_a_process_with_a_role_has_none() -> None:
    """Ranks alone are compared."""
    ranks = (_step(loss=0.5), _step(loss=0.25))

    assert _digests(*ranks, role="reward") == _digests(*ranks)


def test_one_rank_has_none() -> None:
    """The values of its rows are those that it logged."""
    assert _digests(_step(loss=0.5)) == ""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("critic/rewards/mean", True),
        ("response_length/max", True),
        ("timing_s/gen", False),
        ("perf/throughput", False),
        ("train_samples_per_second", False),
        ("system/gpu.0.memory", False),
        ("sometimes/kl", True),
    ],
)
def test_names_that_differ_in_each_run(name: str, expected: bool) -> None:
    """Times, rates and memory, by the words in a name."""
    assert is_repeatable(name) == expected
