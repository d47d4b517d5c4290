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
from otel_rl.archive.reader import RunReader
from otel_rl.cli import main
from otel_rl.insight.compare.conclude import compare
from otel_rl.insight.compare.difference import Difference, difference
from otel_rl.insight.compare.gates import Gate, gates_of
from otel_rl.insight.compare.texts import names_of
from otel_rl.insight.series import Series
from tests.insight.autoregressive import noise, times
from tests.insight.played import PHASES, Played, play

_PAIRS = 200
_BACKWARDS = "@here [x](http://evil.example) <b>"


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_equal_setups_rarely_fail_a_gate(correlation: float) -> None:
    """Of 200 pairs of equal setups, a gate without a margin fails about 5 in 100, also where steps are correlated."""
    chance, gate = np.random.default_rng(1), Gate("step_time", 0.0, may_grow=True, is_relative=True)
    pairs = ([[times(chance, correlation, 0.06)] for _ in range(2)] for _ in range(_PAIRS))
    decisions = [gate.decide(difference(*pair, is_relative=True)) for pair in pairs]

    assert decisions.count("beyond") <= 0.05 * _PAIRS + 2 * math.sqrt(0.05 * 0.95 * _PAIRS)


@pytest.mark.parametrize(("correlation", "variation"), [(0.0, 0.06), (0.5, 0.036)])
def test_a_slowdown_of_three_percent_is_found(correlation: float, variation: float) -> None:
    """In at least 90 of 100 cases with 100 steps, at the noise that allows it."""
    chance, gate = np.random.default_rng(2), Gate("step_time", 0.0, may_grow=True, is_relative=True)
    found = 0
    for _ in range(_PAIRS):
        pair = [times(chance, correlation, variation)], [times(chance, correlation, variation, 0.03)]
        found += gate.decide(difference(*pair, is_relative=True)) == "beyond"

    assert found >= 0.9 * _PAIRS


def test_too_few_independent_steps_decide_nothing() -> None:
    """100 steps that hardly differ from the ones before say as much as a handful: the answer is how many would do."""
    chance, gate = np.random.default_rng(3), Gate("step_time", 0.03, may_grow=True, is_relative=True)
    found = difference([times(chance, 0.95, 0.06)], [times(chance, 0.95, 0.06)], is_relative=True)

    assert found is not None
    assert gate.decide(found) == "unknown"
    assert (found.steps_for(0.03) or 0) > 100


def test_the_warm_up_is_left_out() -> None:
    """Thirty slow steps at the start of one side do not make it slower."""
    chance = np.random.default_rng(4)
    base, new = times(chance, 0.0, 0.01), times(chance, 0.0, 0.01)
    new.values[:30] *= 2
    found = difference([base], [new], is_relative=True)

    assert found is not None
    assert found.first >= 30
    assert abs(found.estimate) < 0.01


def test_a_common_course_is_compared_in_pairs() -> None:
    """Two rewards that rise differ by 0.02 with certainty, though each of them varies by 0.5."""
    chance, course = np.random.default_rng(5), np.linspace(0.2, 0.7, 100)
    base, new = (Series(np.arange(100), course + more + 0.01 * noise(chance, 100, 0.0)) for more in (0.0, 0.02))
    found = difference([base], [new], is_relative=False, warm_up=False)

    assert found is not None
    assert (found.method, found.is_certain) == ("pairs", True)
    assert found.estimate == pytest.approx(0.02, abs=0.005)


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
    found = difference([same], [same], is_relative=True)

    assert found is not None
    assert (found.estimate, found.interval, found.is_certain) == (0.0, (0.0, 0.0), False)


def test_runs_without_a_common_step_have_no_difference() -> None:
    """They cannot be compared."""
    first, second = Series(np.arange(50), np.ones(50)), Series(np.arange(60, 90), np.ones(30))

    assert difference([first], [second], is_relative=True) is None


def test_gates_are_read() -> None:
    """Fractions and units, falling and growing."""
    assert [str(one) for one in gates_of("throughput:-3%, a:b:-0.01,memory:+5%")] == [
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
    found = Difference(10.0, 10.0 + gap, gap, 0.004, 30.0, True, "steps", 0, 99, 100, 100.0)

    assert gates_of(gate)[0].decide(found) == decision


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
    found = compare([base], [new], gates_of("throughput:-1%,reward:-0.05"))

    assert found.phases[0].phase == "generate"
    assert found.exit_code == 1
    assert found.gates[0].sentence.startswith("throughput:-1%: beyond (-")
    assert found.gates[1].sentence.startswith("reward:-0.05: cannot tell with one run on each side")
    assert found.sentences[0].startswith("Throughput is ")
    assert " lower: generate 23.9 s" in found.sentences[0]


def test_what_all_phases_share_may_be_the_machine(tmp_path: Path) -> None:
    """Of single runs, steps that take 10 % longer in all phases fail no gate, and the reason is said."""
    base, new = _run(tmp_path / "base"), _run(tmp_path / "new", 2, machine=1.1)
    found = compare([base], [new], gates_of("throughput:-1%,step_time:+0.2"))

    assert found.exit_code == 2
    for gate in found.gates:
        assert "cannot tell with one run on each side, since all phases take longer, about 9." in gate.sentence
    assert found.sentences[0].startswith("The machine may differ, since all phases take longer, about 9.")


def test_a_slower_phase_fails_a_gate_on_a_slower_machine(tmp_path: Path) -> None:
    """The time that a phase lost beyond the others counts."""
    base, new = _run(tmp_path / "base"), _run(tmp_path / "new", 2, machine=1.05, slower=1.1)
    found = compare([base], [new], gates_of("step_time:+3%"))

    assert found.exit_code == 1
    low, high = (found.metrics[0].low or 0.0, found.metrics[0].high or 0.0)
    assert low < -0.1
    assert -0.06 < high < 0


def test_several_runs_tell_a_slower_machine(tmp_path: Path) -> None:
    """Runs of one side that are equally fast show that a difference in all phases is not the machine's."""
    base = [_run(tmp_path / f"base{seed}", seed) for seed in range(3)]
    new = [_run(tmp_path / f"new{seed}", 3 + seed, machine=1.1) for seed in range(3)]

    assert compare(base, new, gates_of("step_time:+3%")).exit_code == 1


def test_means_that_agree_by_chance_are_not_exact() -> None:
    """Two runs a side with equal means vary at least as much as their steps say."""
    chance = np.random.default_rng(7)
    shape = noise(chance, 100, 0.0)

    def run(level: float) -> Series:
        return Series(np.arange(100), level + 0.1 * (shape - shape.mean()))

    found = difference([run(1.0), run(1.0)], [run(1.01), run(1.01)], is_relative=False)

    assert found is not None
    assert not found.is_certain


def test_one_step_says_nothing(tmp_path: Path) -> None:
    """It is the warm-up."""
    found = compare(*([play(tmp_path / name, Played(), 1)] for name in ("base", "new")), gates_of("step_time:+5%"))

    assert (found.metrics, found.exit_code) == ((), 2)
    assert "The runs share too few steps to compare metrics." in found.sentences


def test_equal_values_are_said_to_be_equal(tmp_path: Path) -> None:
    """Two runs with one seed log the same."""
    found = compare([_run(tmp_path / "base")], [_run(tmp_path / "new")])

    assert found.first_difference is None
    assert "All values that the trainers logged are equal." in found.sentences


def test_the_first_value_that_differs_is_named(tmp_path: Path) -> None:
    """A value that is another one in the last bit, from one step on."""
    base = _run(tmp_path / "base", values=lambda _: 0.5)
    new = _run(tmp_path / "new", values=lambda step: math.nextafter(0.5, 1) if step >= 41 else 0.5)
    found = compare([base], [new]).first_difference

    assert found is not None
    assert (found.step, found.metric, found.base) == (41, "reward", 0.5)


@pytest.mark.parametrize(
    ("off", "metric", "said"),
    [
        (1e-6, "loss", "step 31, where loss differs on rank 2: 2.5, 2.50000"),
        (4e-16, "", "step 31, where those of rank 2 differ, by less than the reduced values show."),
    ],
)
def test_the_rank_that_differs_is_named(tmp_path: Path, off: float, metric: str, said: str) -> None:
    """One of four ranks is off, also in the last bit, which a mean loses; times differ on all ranks from the start."""

    def run(place: Path, off: float, seed: int) -> RunReader:
        chance = np.random.default_rng(seed)

        def logged(step: int, rank: int) -> dict[str, float]:
            loss = 1.0 + rank + (off if (step, rank) == (31, 2) else 0.0)
            return {"loss": loss, "timing_s/gen": float(chance.random()), "lr": 1e-6}

        return play(place, Played(ranks=4, values=logged), 40)

    found = compare([run(tmp_path / "base", 0.0, 1)], [run(tmp_path / "new", off, 2)])

    first = found.first_difference
    assert first is not None
    assert (first.step, first.metric, first.ranks) == (31, metric, (2,))
    assert any(said in one for one in found.sentences)


def test_runs_with_other_seeds_have_no_first_difference(tmp_path: Path) -> None:
    """They were never equal."""
    found = compare([_run(tmp_path / "base")], [_run(tmp_path / "new", 2)])

    assert found.first_difference is None
    assert not any("equal" in one for one in found.sentences)


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
        next(one for one in compare(*runs, by_tokens=flag).metrics if one.metric == "reward") for flag in (False, True)
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
    result = CliRunner().invoke(main, ["compare", *places, "--html", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text()
    found = compare(*([open_run(one)] for one in places))

    assert result.exit_code == 0, result.output
    assert all(escape(one) in page for one in found.sentences)
    assert page.count("<polyline") == 2 * page.count("<svg") > 0
    assert "<b>" not in page
    assert "<script" not in page


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    """The exit code is that of runs that cannot be compared."""
    play(tmp_path / "base", Played(), 30)
    place = str(tmp_path / "base")
    result = CliRunner().invoke(main, ["compare", place, place, "--html", str(tmp_path / "no" / "page.html")])

    assert (result.exit_code, "No such file or directory" in result.output) == (3, True)


def test_values_that_are_no_numbers(tmp_path: Path) -> None:
    """If the new side has NaN where the base has none, it is beyond each gate on the metric, and said first."""

    def run(name: str, broken: float) -> RunReader:
        values = lambda step, _rank: {"reward": broken if step > 30 else 0.5, "loss": 0.1}  # noqa: E731
        return play(tmp_path / name, Played(values=values), 60)

    found = compare([run("base", 0.5)], [run("new", math.nan)], gates_of("reward:-90%,loss:+90%"))

    assert [one.decision for one in found.gates] == ["beyond", "within"]
    assert found.sentences[0] == "reward is NaN or infinite in 29 of 60 steps of the new side."

    back = compare([run("bad", math.nan)], [run("good", 0.5)], gates_of("reward:-90%"))
    assert back.gates[0].decision == "within"
    assert back.sentences[0] == "reward is NaN or infinite in 29 of 60 steps of the base."


def test_how_runs_ended(tmp_path: Path) -> None:
    """A run that did not finish is called so, next to its number of steps."""
    base, new = (play(tmp_path / name, Played(), 8, outcome) for name, outcome in (("a", "finished"), ("b", "failed")))
    found = compare([base], [new])

    assert names_of(found.base).endswith("8 steps)")
    assert names_of(found.new).endswith("8 steps, failed)")
