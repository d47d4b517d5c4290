"""Signs that a training is ill: sequential tests, facts, and the events that the reducer makes of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.illness_rates import ILLNESSES, NULLS, alarms, found_after, regressions
from otel_rl.analyses.illness import facts
from otel_rl.analyses.illness.sequential import LEAST, Alarm, Sequential, mean_bet, rank_bet
from otel_rl.analyses.illness.watch import FALSE_ALARMS, Illness
from otel_rl.export import Event, Item, Params, Row
from otel_rl.semconv.vocabulary import Vocabulary
from tests.recorder.agent.reducing import feed, logged, reducing, started, step

EVERY = frozenset({"shift", "burst", "spike"})
numbers = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), max_size=50)


def all_of(values: Iterable[float], sign: int = 1) -> list[tuple[int, Alarm]]:
    """Return the alarms of a series, with their places."""
    tests = Sequential(EVERY, sign, "seed")
    return [(place, alarm) for place, value in enumerate(values) if (alarm := tests.add(value)) is not None]


def noise(seed: int, count: int, level: float = 0.0) -> list[float]:
    dice = random.Random(seed)
    return [level + dice.gauss(0, 1) for _ in range(count)]


def events(rows: Iterable[Mapping[str, float]], params: Mapping[str, float | str] | None = None) -> list[Event]:
    """Return the events of a run with TRL's names, one row for each step."""
    illness = Illness(Vocabulary("trl"))
    items: list[Item] = [Params(0, {**(params or {})})]
    items += [Row(number, 7, {**values}, trace_id="t") for number, values in enumerate(rows)]
    return illness.events(items)


def said(found: Iterable[Event]) -> list[tuple[object, object, object]]:
    return [(one.step, one.attributes["rl.anomaly.kind"], one.attributes["rl.metric.name"]) for one in found]


@pytest.mark.parametrize("name", NULLS)
def test_healthy_series_are_rarely_called_ill(name: str) -> None:
    """At most the stated numbers in 10,000 steps of each null, all kinds together; 10⁶ steps are in the benchmark."""
    null = NULLS[name]
    found = sum(alarms(null.values(seed=0)).values())
    found += regressions(null.values(seed=0)) if null.over == 1 else 0

    assert found <= sum(FALSE_ALARMS.values())


@pytest.mark.parametrize("name", ILLNESSES)
def test_an_illness_is_found(name: str) -> None:
    """In each of three runs, within 200 steps."""
    assert all((after := found_after(ILLNESSES[name], seed)) is not None and after <= 200 for seed in range(3))


def test_the_bets_are_fair() -> None:
    """Their mean is 1 if nothing has changed: over uniform ranks, and over normal values."""
    ranks = 100_000
    scale = [place / 100 for place in range(-800, 800)]
    normal = math.fsum(mean_bet(z) * math.exp(-z * z / 2) for z in scale) / 100 / math.sqrt(2 * math.pi)

    # The integral from 0 to x is (x - 1) / ln x: ranks are at the middle of their parts, and the first is apart.
    least = 1e-4
    above = math.fsum(rank_bet(least + (1 - least) * (one + 0.5) / ranks) for one in range(ranks)) / ranks
    below = (least - 1) / math.log(least)
    assert above * (1 - least) + below == pytest.approx(1, abs=1e-3)
    assert normal == pytest.approx(1, abs=1e-6)


@given(numbers, st.integers(-20, 20), st.sampled_from([1, -1]))
def test_the_unit_does_not_matter(tail: list[float], power: int, sign: int) -> None:
    """A series times a power of two gives alarms at the same places; its mirror image with the other sign, too."""
    values = [*noise(1, 2 * LEAST), *tail]
    places = [place for place, _ in all_of(values, sign)]

    assert [place for place, _ in all_of([one * 2.0**power for one in values], sign)] == places
    assert [place for place, _ in all_of([-one for one in values], -sign)] == places


@given(numbers)
def test_what_is_not_finite_changes_nothing(tail: list[float]) -> None:
    """NaN and infinities between the values."""
    values = [*noise(2, 2 * LEAST), *tail]
    mixed = [one for value in values for one in (value, math.nan, math.inf, -math.inf)]

    assert [(place // 4, alarm) for place, alarm in all_of(mixed)] == all_of(values)


@given(numbers)
def test_no_alarm_is_repeated_soon(tail: list[float]) -> None:
    """At least 99 values lie between two alarms of a kind. A level that jumps is said as a shift, and as a burst."""
    found = all_of([*noise(3, LEAST), *noise(3, LEAST, 30.0), *tail])

    assert {"shift", "burst", "spike"} == {alarm.test for _, alarm in found}
    for test in EVERY:
        assert all(b - a >= LEAST for a, b in pairwise([place for place, alarm in found if alarm.test == test]))


@given(st.lists(st.sampled_from([1.0, 1.0, 2.0]), max_size=300))
def test_a_constant_or_coarse_series(values: list[float]) -> None:
    """It has many ties and perhaps no spread: nothing fails, and a constant raises no alarm."""
    all_of([1.0] * 150 + values)

    assert all_of([1.0] * 500) == []


def test_the_direction() -> None:
    """A reward that falls is an alarm, one that rises is not; the event says from where to where, and how sure."""
    falls = [{"reward": 0.6 - (0.4 if n >= 300 else 0) + 0.02 * one} for n, one in enumerate(noise(4, 400))]
    (event,) = events(falls)

    assert said([event]) == [(event.step, "fall", "reward")]
    assert 300 < (event.step or 0) < 330
    assert str(event.attributes["rl.anomaly.evidence"]).startswith("fell from 0.601 to 0.214 within ")
    assert event.attributes["rl.anomaly.false_alarms"] == FALSE_ALARMS["fall"]
    assert (event.name, event.trace_id) == ("rl.training.anomaly", "t")
    assert events([{"reward": 1.2 - row["reward"]} for row in falls]) == []


def test_a_fact_is_said_once() -> None:
    """Lengths at the configured maximum: after five steps, and again only after 100 steps below it."""
    lengths = [1024.0] * 50 + [500.0] * 5 + [1024.0] * 50 + [500.0 + one for one in range(100)] + [1024.0] * 5
    found = events([{"completions/mean_length": one} for one in lengths], {"max_completion_length": 1024})

    assert said(found) == [(at, "bound", "completions/mean_length") for at in (4, 209)]
    assert found[0].attributes["rl.anomaly.evidence"] == "is 1,024 of at most 1,024 for 5 steps"


@pytest.mark.parametrize(
    ("name", "params", "is_said"),
    [
        ("reward", {}, True),
        ("kl", {"args.beta": 0.04}, True),
        ("kl", {"args.beta": 0.0}, False),
        ("kl", {"betas.0": 0.9}, False),
        ("entropy", {"entropy_coef": 0.01}, True),
        ("entropy", {}, False),
        ("loss", {}, False),
        ("learning_rate", {}, False),
    ],
)
def test_a_series_that_is_constant(name: str, params: dict[str, float], is_said: bool) -> None:
    """After 20 equal values, if nothing explains it: a KL without a coefficient may be 0 in each step."""
    assert said(events([{name: 0.25}] * 30, params)) == ([(19, "constant", name)] if is_said else [])


def test_solved_prompts_are_no_illness() -> None:
    """A reward that rises to its highest value and stays there is; one that falls to a constant is not."""
    assert events([{"reward": min(1.0, row / 50)} for row in range(100)]) == []
    assert said(events([{"reward": max(0.0, 1 - row / 50)} for row in range(80)])) == [(69, "constant", "reward")]


def noisy(level: Callable[[int], float], count: int, scale: float = 0.01) -> list[float]:
    return [level(at) + scale * one for at, one in enumerate(noise(5, count))]


def test_a_small_kl_of_a_reward_that_does_not_fall_is_no_illness() -> None:
    """Its rise is a sign if the reward falls too, if no reward is known, and once it is no longer small."""
    small = noisy(lambda at: 0.014 if at < 200 else 0.05, 300, 0.001)
    large = noisy(lambda at: 0.014 if at < 200 else 0.05 if at < 260 else 4.0, 300, 0.001)
    steady, falling = noisy(lambda at: 0.3 + at / 1000, 300), noisy(lambda at: 0.6 if at < 190 else 0.2, 300)
    kinds = {
        name: [*dict.fromkeys(metric for _, _, metric in said(events(rows)))]
        for name, rows in {
            "rises": [{"reward": a, "kl": b} for a, b in zip(steady, small, strict=True)],
            "falls": [{"reward": a, "kl": b} for a, b in zip(falling, small, strict=True)],
            "alone": [{"kl": one} for one in small],
            "large": [{"reward": a, "kl": b} for a, b in zip(steady, large, strict=True)],
        }.items()
    }

    assert kinds == {"rises": [], "falls": ["reward", "kl"], "alone": ["kl"], "large": ["kl"]}


def test_a_curriculum_is_no_illness() -> None:
    """A reward that falls where the tasks become harder is expected; another fall is a sign."""
    reward = noisy(lambda at: 0.6 if at < 200 else 0.3, 300)
    levels = [1.0 if at < 199 else 2.0 for at in range(300)]

    assert events([{"reward": a, "curriculum/level": b} for a, b in zip(reward, levels, strict=True)]) == []
    assert [kind for _, kind, _ in said(events([{"reward": one} for one in reward]))] == ["fall"]


def test_a_fall_of_a_thousandth_is_no_illness() -> None:
    """However far it is outside of the noise."""
    assert events([{"reward": one} for one in noisy(lambda at: 0.998 if at < 200 else 0.996, 300, 0.0001)]) == []


def test_a_reward_that_is_not_the_sum_of_its_parts() -> None:
    """Parts times weights, in the order in which they were logged; not where the reward is made in another way."""
    parts = {"rewards/a/mean": 0.5, "rewards/b/mean": 0.25}
    weights = {"reward_weights.0": 1.0, "reward_weights.1": 2.0}
    right = [{"reward": 1.0 + one / 100, **parts, "rewards/a/mean": 0.5 + one / 100} for one in range(10)]
    wrong = [{**row, "reward": row["reward"] + 0.25} for row in right]
    another = {**weights, "multi_objective_aggregation": "normalize_then_sum"}

    assert (events(right, weights), events(wrong, another), events(wrong)) == ([], [], [])
    (event,) = events(wrong, weights)
    assert event.attributes["rl.anomaly.evidence"] == "is 1.29, but the weighted sum of its 2 parts is 1.04"


def test_a_fraction_that_is_none() -> None:
    """Only names that a dialect knows as fractions, and each once."""
    rows = [{"clip_ratio": 12.0 + n, "clip_ratio/low_mean": 1.0, "my/ratio": 7.0, "kl": 3.0} for n in range(3)]

    assert said(events(rows)) == [(0, "outside", "clip_ratio")]


def test_nan_that_a_filter_hides() -> None:
    """Said once where the gradient is not finite, the loss is, and the filter of Hugging Face is on."""
    rows = [{"loss": 0.1, "grad_norm": 1.0}, {"loss": 0.1, "grad_norm": math.nan}, {"loss": 0.1, "grad_norm": math.inf}]

    assert said(events(rows, {"logging_nan_inf_filter": True})) == [(1, "hidden_nan", "loss")]
    assert events(rows, {"logging_nan_inf_filter": False}) == []


def test_the_reducer_makes_events() -> None:
    """They come with the row of the step, unless `rows.anomalies` is off."""
    for anomalies, expected in ((True, [(19, "constant", "reward")]), (False, [])):
        reducer = reducing(dialect="trl", anomalies=anomalies)
        feed(reducer, "a", started())
        items = [one for n in range(25) for one in feed(reducer, "a", *step(n, n * 10**9, logged(n, reward=0.0)))]

        assert said(one for one in items if isinstance(one, Event)) == expected


def test_another_attempt_begins_anew() -> None:
    """So do late rows and rows of steps in which a process died, which are left out."""
    illness = Illness(Vocabulary("trl"))
    rows = [Row(n, 0, {"reward": 0.0}, attempt=n // 15) for n in range(30)]
    rows += [Row(n, 0, {"reward": 0.0}, attempt=1, late=n % 2 == 0, partial=n % 2 == 1) for n in range(30)]

    assert illness.events(rows) == []
    assert said(illness.events([Row(n, 0, {"reward": 0.0}, attempt=1) for n in range(30, 40)])) == [
        (34, "constant", "reward")
    ]


@given(st.dictionaries(st.text(max_size=8), st.floats() | st.integers(-(2**63), 2**64), max_size=5), st.integers(1, 60))
def test_any_row(values: dict[str, float], count: int) -> None:
    """Nothing fails, whatever the names and the numbers are."""
    names = ("reward", "kl", "eval_reward", "completions/mean_length", "grad_norm")
    for one in (values, {**dict(zip(names, values.values(), strict=False))}):
        events([one] * count, {"beta": 0.1, "max_completion_length": 1e308})


def test_facts_of_numbers() -> None:
    """Fractions, maxima and sums at their borders."""
    assert [facts.is_outside(one) for one in (0.0, 1.0, 1 + 1e-9, -0.1, 1.1, math.nan)] == [False] * 3 + [True] * 2 + [
        False
    ]
    assert [facts.is_at_maximum(*one) for one in ((100.0, 100.0), (98.0, 100.0), (5.0, 0.0))] == [True, False, False]
    assert facts.weighted_sum([1.0], []) is None
    assert not facts.differs(0.0, 0.0)
