"""Two sides of runs: differences, their intervals, gates, and what is said of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from html import escape
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from otel_rl import open_run
from otel_rl.cli import main
from otel_rl.look.insight.compare.comparison import MetricDifference
from otel_rl.look.insight.compare.conclude import compare
from otel_rl.look.insight.compare.difference import Difference, difference
from otel_rl.look.insight.compare.gates import MetricGate, gates_of
from otel_rl.look.insight.compare.sentences import sentences
from otel_rl.look.insight.compare.texts import names_of
from otel_rl.look.insight.series import Series
from otel_rl.look.reader.runs import RunReader
from tests.look.insight.autoregressive import noise, times
from tests.look.insight.played import PHASES, Played, play

_PAIRS = 200
_BACKWARDS = "@here [x](http://evil.example) <b>"


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_equal_setups_rarely_fail_a_gate(correlation: float) -> None:
    """Of 200 pairs of equal setups, a gate without a margin fails about 5 in 100, also where steps are correlated."""
    chance, gate = np.random.default_rng(1), MetricGate("step_time", 0.0, may_grow=True, is_relative=True)
    pairs = ([[times(chance, correlation, 0.06)] for _ in range(2)] for _ in range(_PAIRS))
    decisions = [gate.decide(difference(*pair, is_relative=True)) for pair in pairs]

    assert decisions.count("beyond") <= 0.05 * _PAIRS + 2 * math.sqrt(0.05 * 0.95 * _PAIRS)


@pytest.mark.parametrize(("correlation", "variation"), [(0.0, 0.06), (0.5, 0.036)])
def test_a_slowdown_of_three_percent_is_found(correlation: float, variation: float) -> None:
    """In at least 90 of 100 cases with 100 steps, at the noise that allows it."""
    chance, gate = np.random.default_rng(2), MetricGate("step_time", 0.0, may_grow=True, is_relative=True)
    detected = 0
    for _ in range(_PAIRS):
        pair = [times(chance, correlation, variation)], [times(chance, correlation, variation, 0.03)]
        detected += gate.decide(difference(*pair, is_relative=True)) == "beyond"

    assert detected >= 0.9 * _PAIRS


def test_too_few_independent_steps_decide_nothing() -> None:
    """100 steps that hardly differ from the ones before say as much as a handful: the answer is how many would do."""
    chance, gate = np.random.default_rng(3), MetricGate("step_time", 0.03, may_grow=True, is_relative=True)
    result = difference([times(chance, 0.95, 0.06)], [times(chance, 0.95, 0.06)], is_relative=True)

    assert result is not None
    assert gate.decide(result) == "unknown"
    assert (result.steps_for(0.03) or 0) > 100


def test_the_warm_up_is_left_out() -> None:
    """Thirty slow steps at the start of one side do not make it slower."""
    chance = np.random.default_rng(4)
    base, new = times(chance, 0.0, 0.01), times(chance, 0.0, 0.01)
    new.values[:30] *= 2
    result = difference([base], [new], is_relative=True)

    assert result is not None
    assert result.first >= 30
    assert abs(result.estimate) < 0.01


def test_a_common_course_is_compared_in_pairs() -> None:
    """Two rewards that rise differ by 0.02 with certainty, though each of them varies by 0.5."""
    chance, course = np.random.default_rng(5), np.linspace(0.2, 0.7, 100)
    base, new = (Series(np.arange(100), course + more + 0.01 * noise(chance, 100, 0.0)) for more in (0.0, 0.02))
    result = difference([base], [new], is_relative=False, warm_up=False)

    assert result is not None
    assert (result.method, result.is_certain) == ("pairs", True)
    assert result.estimate == pytest.approx(0.02, abs=0.005)


def test_several_runs_are_compared_by_their_means() -> None:
    """Seeds that vary more than steps do make the interval as wide as they vary."""
    chance = np.random.default_rng(6)

    def run(level: float) -> Series:
        return Series(np.arange(100), level + 0.01 * noise(chance, 100, 0.0))

    apart = difference([run(0.4), run(0.6), run(0.5)], [run(0.45), run(0.62), run(0.55)], is_relative=False)
    far = difference([run(0.49), run(0.5), run(0.51)], [run(0.59), run(0.6), run(0.61)], is_relative=False)

    assert apart is not None
    assert far is not None
    assert (apart.method, apart.is_certain, far.is_certain) == ("runs", False, True)


def test_values_that_are_equal_differ_by_nothing() -> None:
    """A constant metric has an interval of one point."""
    same = Series(np.arange(50), np.full(50, 7.0))
    result = difference([same], [same], is_relative=True)

    assert result is not None
    assert (result.estimate, result.interval, result.is_certain) == (0.0, (0.0, 0.0), False)


def test_runs_without_a_common_step_have_no_difference() -> None:
    """They cannot be compared."""
    first, second = Series(np.arange(50), np.ones(50)), Series(np.arange(60, 90), np.ones(30))

    assert difference([first], [second], is_relative=True) is None


def test_gates_are_read() -> None:
    """Fractions and units, falling and growing."""
    assert [str(gate) for gate in gates_of("throughput:-3%, a:b:-0.01,memory:+5%")] == [
        "throughput:-3%",
        "a:b:-0.01",
        "memory:+5%",
    ]


@pytest.mark.parametrize("text", ["throughput", "x:3%", "x:-3 %", "reward:-x", "reward:-100%", ":-1%"])
def test_a_gate_that_is_not_one_is_refused(text: str) -> None:
    """The message says how a gate is written."""
    with pytest.raises(ValueError, match="invalid gate"):
        gates_of(text)


@pytest.mark.parametrize(
    ("gate", "gap", "decision"),
    [
        ("x:-3%", -0.10, "beyond"),
        ("x:-3%", 0.10, "within"),
        ("x:-3%", -0.03, "unknown"),
        ("x:+3%", 0.10, "beyond"),
        ("x:+3%", -0.10, "within"),
        ("x:-0.5", -0.10, "within"),
    ],
)
def test_decisions(gate: str, gap: float, decision: str) -> None:
    """A gate is about one direction, and what is near it cannot be decided."""
    result = Difference(10.0, 10.0 + gap, gap, 0.004, 30.0, True, "steps", 0, 99, 100, 100.0)

    assert gates_of(gate)[0].decide(result) == decision


def _run(
    place: Path,
    seed: int = 1,
    *,
    slower: float = 1.0,
    machine: float = 1.0,
    values: Callable[[int], float] | None = None,
) -> RunReader:
    """Play a run of 100 steps whose `generate` takes longer or not, on a machine that is slower or not."""
    chance = np.random.default_rng(seed)
    factors = np.exp(0.03 * chance.normal(size=(100, len(PHASES))))
    rewards = 0.3 + 0.004 * np.arange(100) + 0.01 * chance.normal(size=100)

    def phases(step: int, _rank: int) -> dict[str, float]:
        times = {"generate": slower}
        usual = {name: machine * took * times.get(name, 1.0) for name, took in PHASES.items()}
        return {name: took * factors[step, n] for n, (name, took) in enumerate(usual.items())}

    def logged(step: int, _rank: int) -> dict[str, float]:
        return {"reward": float(rewards[step] if values is None else values(step))}

    return play(place, Played(phases=phases, values=logged), 100)


def test_the_phase_that_made_the_difference_is_named(tmp_path: Path) -> None:
    """A generate that takes a tenth longer makes steps longer, and is said to be why."""
    base, new = _run(tmp_path / "base"), _run(tmp_path / "new", 2, slower=1.1)
    comparison = compare([base], [new], gates_of("throughput:-1%,reward:-0.05"))

    assert comparison.phases[0].phase == "generate"
    assert comparison.exit_code == 1
    assert comparison.gates[0].sentence.startswith("throughput:-1%: beyond (-")
    assert comparison.gates[1].sentence.startswith("reward:-0.05: cannot tell with one run on each side")
    assert comparison.sentences[0].startswith("Throughput is ")
    assert " lower: generate 23.9 s" in comparison.sentences[0]


@pytest.mark.parametrize(
    ("is_relative", "ends", "sentence"),
    [
        (True, (0.2, 0.1, 0.3), "reward/mean is 20.0 % (10.0 to 30.0 %) higher."),
        (False, (-0.1, -0.15, -0.05), "reward/mean is 0.1 lower (0.5 → 0.4)."),
    ],
)
def test_a_metric_that_differs_is_named(is_relative: bool, ends: tuple[float, ...], sentence: str) -> None:
    """With its interval, or with both values; between two single runs, luck can be the reason."""
    gap, low, high = ends
    metric = MetricDifference(
        metric="reward",
        name="reward/mean",
        base=0.5,
        new=0.5 + gap,
        difference=gap,
        low=low,
        high=high,
        is_relative=is_relative,
        way="better" if gap > 0 else "worse",
        method="steps",
        steps=100,
        independent=50.0,
    )

    assert sentences([metric], [], None, ["reward"], 0.0, are_equal=False) == [
        sentence,
        "Between single runs, what the policy does can differ by the seed alone: give several runs on each side.",
    ]


def test_what_all_phases_share_may_be_the_machine(tmp_path: Path) -> None:
    """Of single runs, steps that take 10 % longer in all phases fail no gate, and the reason is said."""
    base, new = _run(tmp_path / "base"), _run(tmp_path / "new", 2, machine=1.1)
    comparison = compare([base], [new], gates_of("throughput:-1%,step_time:+0.2"))

    assert comparison.exit_code == 2
    for gate in comparison.gates:
        assert "cannot tell with one run on each side, since all phases take longer, about 9." in gate.sentence
    assert comparison.sentences[0].startswith("The machine may differ, since all phases take longer, about 9.")


def test_a_slower_phase_fails_a_gate_on_a_slower_machine(tmp_path: Path) -> None:
    """The time that a phase lost beyond the others counts."""
    base, new = _run(tmp_path / "base"), _run(tmp_path / "new", 2, machine=1.05, slower=1.1)
    comparison = compare([base], [new], gates_of("step_time:+3%"))

    assert comparison.exit_code == 1
    low, high = (comparison.metrics[0].low or 0.0, comparison.metrics[0].high or 0.0)
    assert low < -0.1
    assert -0.06 < high < 0


def test_several_runs_tell_a_slower_machine(tmp_path: Path) -> None:
    """Runs of one side that are equally fast show that a difference in all phases is not the machine's."""
    base = [_run(tmp_path / f"base{seed}", seed) for seed in range(3)]
    new = [_run(tmp_path / f"new{seed}", 3 + seed, machine=1.1) for seed in range(3)]

    assert compare(base, new, gates_of("step_time:+3%")).exit_code == 1


def test_the_direction_of_a_metric(tmp_path: Path) -> None:
    """A higher reward is better; a higher loss of a policy or entropy is just higher."""

    def run(name: str, seed: int, more: float) -> RunReader:
        noises = np.random.default_rng(seed).normal(scale=0.01, size=60)
        names = ("reward", "loss", "entropy")
        return play(tmp_path / name, Played(values=lambda step, _: dict.fromkeys(names, 1.0 + more + noises[step])), 60)

    ways = {metric.metric: metric.way for metric in compare([run("a", 1, 0.0)], [run("b", 2, 0.5)]).metrics}

    assert (ways["reward"], ways["loss"], ways["entropy"]) == ("better", "higher", "higher")


def test_means_that_agree_by_chance_are_not_exact() -> None:
    """Two runs a side with equal means vary at least as much as their steps say."""
    chance = np.random.default_rng(7)
    shape = noise(chance, 100, 0.0)

    def run(level: float) -> Series:
        return Series(np.arange(100), level + 0.1 * (shape - shape.mean()))

    result = difference([run(1.0), run(1.0)], [run(1.01), run(1.01)], is_relative=False)

    assert result is not None
    assert not result.is_certain


def test_one_step_says_nothing(tmp_path: Path) -> None:
    """It is the warm-up."""
    comparison = compare(*([play(tmp_path / name, Played(), 1)] for name in ("base", "new")), gates_of("step_time:+5%"))

    assert (comparison.metrics, comparison.exit_code) == ((), 2)
    assert "The runs share too few steps to compare metrics." in comparison.sentences


def test_equal_values_are_said_to_be_equal(tmp_path: Path) -> None:
    """Two runs with one seed log the same."""
    comparison = compare([_run(tmp_path / "base")], [_run(tmp_path / "new")])

    assert comparison.first_difference is None
    assert "All values that the trainers logged are equal." in comparison.sentences


def test_the_first_value_that_differs_is_named(tmp_path: Path) -> None:
    """A value that is another one in the last bit, from one step on."""
    base = _run(tmp_path / "base", values=lambda _: 0.5)
    new = _run(tmp_path / "new", values=lambda step: math.nextafter(0.5, 1) if step >= 41 else 0.5)
    first = compare([base], [new]).first_difference

    assert first is not None
    assert (first.step, first.metric, first.base) == (41, "reward", 0.5)


@pytest.mark.parametrize(
    ("off", "metric", "expected"),
    [
        (1e-6, "loss", "step 31, where loss differs on rank 2: 2.5, 2.50000"),
        (4e-16, "", "step 31, where those of rank 2 differ, by less than the reduced values show."),
    ],
)
def test_the_rank_that_differs_is_named(tmp_path: Path, off: float, metric: str, expected: str) -> None:
    """One of four ranks is off, also in the last bit, which a mean loses; times differ on all ranks from the start."""

    def run(place: Path, off: float, seed: int) -> RunReader:
        chance = np.random.default_rng(seed)

        def logged(step: int, rank: int) -> dict[str, float]:
            loss = 1.0 + rank + (off if (step, rank) == (31, 2) else 0.0)
            return {"loss": loss, "timing_s/gen": float(chance.random()), "lr": 1e-6}

        return play(place, Played(ranks=4, values=logged), 40)

    comparison = compare([run(tmp_path / "base", 0.0, 1)], [run(tmp_path / "new", off, 2)])

    first = comparison.first_difference
    assert first is not None
    assert (first.step, first.metric, first.ranks) == (31, metric, (2,))
    assert any(expected in sentence for sentence in comparison.sentences)


def test_runs_with_other_seeds_have_no_first_difference(tmp_path: Path) -> None:
    """They were never equal."""
    comparison = compare([_run(tmp_path / "base")], [_run(tmp_path / "new", 2)])

    assert comparison.first_difference is None
    assert not any("equal" in sentence for sentence in comparison.sentences)


def test_tokens_align_runs(tmp_path: Path) -> None:
    """A run that learns as much from each token, with twice the tokens in each step, is equal at equal tokens."""

    def run(name: str, tokens: int) -> RunReader:
        training = Played(
            values=lambda step, _rank: {"reward": 1e-5 * tokens * (step + 1)},
            tickets=lambda _step: {"trained": [{"tokens": tokens, "policy_version": 0, "reward": 1.0}]},
        )
        return play(tmp_path / name, training, 60)

    runs = [run("base", 100)], [run("new", 200)]
    by_step, by_tokens = (
        next(metric for metric in compare(*runs, by_tokens=flag).metrics if metric.metric == "reward")
        for flag in (False, True)
    )

    assert by_step.new == pytest.approx(2 * by_step.base)
    assert by_tokens.difference == pytest.approx(0, abs=1e-12)


def test_the_command_exits_by_its_gates(tmp_path: Path) -> None:
    """0 within, 1 beyond, 2 undecided, 3 if the runs cannot be compared; JSON has the same facts."""
    places = []
    for name, slower in (("base", 1.0), ("new", 1.1)):
        _run(tmp_path / name, len(name), slower=slower)
        places.append(str(tmp_path / name))
    codes = [
        CliRunner().invoke(main, ["compare", *places, "--gate", gate]).exit_code
        for gate in ("step_time:+20%", "step_time:+1%", "step_time:+6.1%", "nothing:+1%", "step_time")
    ]
    codes.append(CliRunner().invoke(main, ["compare", places[0], "nowhere"]).exit_code)
    result = CliRunner().invoke(main, ["compare", *places, "--json"])

    assert codes == [0, 1, 2, 3, 3, 3]
    assert json.loads(result.stdout)["phases"][0]["phase"] == "generate"


def test_recorded_texts_are_plain_in_markdown(tmp_path: Path) -> None:
    """The name of a metric is neither a link, nor a mention, nor HTML."""
    for name in ("base", "new"):
        play(tmp_path / name, Played(values=lambda _step, _rank: {f"{_BACKWARDS}/reward": 0.5}), 30)
    result = CliRunner().invoke(main, ["compare", str(tmp_path / "base"), str(tmp_path / "new"), "--markdown"])

    assert result.exit_code == 0
    assert "\\@here \\[x\\](http" in result.stdout
    assert "<b>" not in result.stdout.replace("\\<b\\>", "")


def test_a_page_has_the_sentences_and_both_curves(tmp_path: Path) -> None:
    """It has a chart for each main metric with a line for each run; recorded names are texts in it."""
    for name in ("base", "new"):
        play(tmp_path / name, Played(values=lambda _step, _rank: {f"{_BACKWARDS}/reward": 0.5, "reward": 0.5}), 30)
    places = [str(tmp_path / "base"), str(tmp_path / "new")]
    result = CliRunner().invoke(main, ["compare", *places, "-o", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text()
    comparison = compare(*([open_run(place)] for place in places))

    assert result.exit_code == 0, result.output
    assert all(escape(sentence) in page for sentence in comparison.sentences)
    assert page.count("<polyline") == 2 * page.count("<svg") > 0
    assert "<b>" not in page
    assert "<script" not in page


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    """The exit code is that of runs that cannot be compared."""
    play(tmp_path / "base", Played(), 30)
    place = str(tmp_path / "base")
    result = CliRunner().invoke(main, ["compare", place, place, "-o", str(tmp_path / "no" / "page.html")])

    assert (result.exit_code, "No such file or directory" in result.output) == (3, True)


def test_values_that_are_no_numbers(tmp_path: Path) -> None:
    """If the new side has NaN where the base has none, it is beyond each gate on the metric, and said first."""

    def run(name: str, broken: float) -> RunReader:
        values = lambda step, _rank: {"reward": broken if step > 30 else 0.5, "loss": 0.1}  # noqa: E731
        return play(tmp_path / name, Played(values=values), 60)

    comparison = compare([run("base", 0.5)], [run("new", math.nan)], gates_of("reward:-90%,loss:+90%"))

    assert [gate.decision for gate in comparison.gates] == ["beyond", "within"]
    assert comparison.sentences[0] == "reward is NaN or infinite in 29 of 60 steps of the new side."

    back = compare([run("bad", math.nan)], [run("good", 0.5)], gates_of("reward:-90%"))
    assert back.gates[0].decision == "within"
    assert back.sentences[0] == "reward is NaN or infinite in 29 of 60 steps of the base."


def test_how_runs_ended(tmp_path: Path) -> None:
    """A run that did not finish is called so, next to its number of steps."""
    base, new = (play(tmp_path / name, Played(), 8, outcome) for name, outcome in (("a", "finished"), ("b", "failed")))
    comparison = compare([base], [new])

    assert names_of(comparison.base).endswith("8 steps)")
    assert names_of(comparison.new).endswith("8 steps, failed)")
