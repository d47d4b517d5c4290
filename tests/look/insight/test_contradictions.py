"""Facts that contradict each other: each rule where it is right, and where it must say nothing."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.export import Params
from otel_rl.look.insight import facts_of
from otel_rl.look.insight.contradictions.rules import RULES, wanted
from otel_rl.look.insight.series import Series
from tests.look.insight.columns_of_tests import course, said_of, series
from tests.look.insight.played import BEGAN, Played, Player

STEPS = 60
RISES = course(lambda step: 0.3 + step / 300, STEPS)
FLAT = course(lambda _: 0.4, STEPS, seed=2)
ZERO, ONE = series([0.0] * STEPS), series([1.0] * STEPS)
LENGTHS = course(lambda _: 650, STEPS, noise=20)


def sometimes(seldom: float, usual: float) -> Series:
    return series([seldom if step % 12 == 5 else usual for step in range(STEPS)])


def level(value: float, noise: float = 0.0) -> Series:
    return course(lambda _: value, STEPS, noise, seed=3)


def counted(each: float) -> Series:
    return series([each * (1 + step) for step in range(STEPS)])


def restarted(each: float) -> Series:
    return series([each * (1 + step % 40) for step in range(STEPS)])


NAN = series([math.nan] * STEPS)
RANGE = {"reward/min": level(0), "reward/max": level(1)}
WIDE = {"response_length/min": level(300), "response_length/max": level(2048)}
STEADY_STEPS = {"completions/mean_length": LENGTHS, "time/step": level(40)}
SUMMED = series(
    [
        9 * length / (40 + step % 5)
        for step, length in enumerate(np.cumsum(course(lambda _: 650, STEPS, noise=200).values).tolist())
    ]
)
"""All tokens so far, over the time of a step that varies."""
ONE_PART = {"rewards/accuracy/mean": FLAT, "rewards/accuracy/std": level(0.46)}


@pytest.mark.parametrize(
    ("rule", "values", "parameters"),
    [
        (
            "cut_below_the_limit",
            {"response_length/clip_ratio": level(1 / 64), "response_length/max": LENGTHS},
            {"data.max_response_length": 1024},
        ),
        (
            "cut_below_the_limit",
            {"completions/clipped_ratio": level(0.1, 0.01), "completions/max_length": LENGTHS},
            {"max_completion_length": 1024},
        ),
        (
            "cut_below_the_limit",
            {"completion_length/truncated_fraction": level(0.2), "completion_length/max": LENGTHS},
            {"max_new_tokens": 2048},
        ),
        ("fraction_outside", {"clip_fraction": level(1.2, 0.1)}, {}),
        ("fraction_outside", {"loop/solved_fraction": level(-0.2)}, {}),
        ("fraction_outside", {"pass_rate": course(lambda step: 0.5 if step % 9 else 1.4, STEPS, 0)}, {}),
        ("mean_outside_its_extremes", {"len/mean": level(3), "len/min": level(5), "len/max": level(9)}, {}),
        ("mean_outside_its_extremes", {"kl_mean": level(3), "kl_min": level(0), "kl_max": level(1)}, {}),
        ("mean_outside_its_extremes", {"r/mean": level(-3), "r/min": level(-1), "r/max": level(1)}, {}),
        ("counters_in_ratio", {"num_tokens": counted(800), "tokens/trained": counted(400)}, {}),
        ("counters_in_ratio", {"total_samples": counted(64), "samples_seen": counted(16)}, {}),
        ("counters_in_ratio", {"train/tokens": counted(90), "global_tokens": counted(30)}, {}),
        ("constant_term", {"kl": level(0.0)}, {"beta": 0.04}),
        ("constant_term", {"policy_entropy": level(0.7)}, {"algo.entropy_coef": 0.01}),
        ("constant_term", {"kl": level(0.25)}, {"kl_coef": -0.1}),
        ("constant_term", {"loop/value_loss": level(0.5)}, {"vf_coef": 0.5}),
        ("sampling_gap", {"rollout/logp_diff": level(0.11, 0.01)}, {"top_p": 0.9}),
        (
            "cut_below_the_limit",
            {"gen/cut_fraction": level(0.1), "gen/lengths/max": LENGTHS},
            {"max_tokens": 1024},
        ),
        (
            "advantages_off_center",
            {
                **{f"advantages/{name}": level(value) for name, value in (("mean", 0.2), ("std", 0.5), ("count", 32))},
                "reward/mean": FLAT,
                "reward/count": level(32),
            },
            {"algorithm": "grpo"},
        ),
        ("negative_divergence", {"objective/kl": level(-0.2, 0.04)}, {"kl_penalty": "abs"}),
        ("negative_divergence", {"kl": level(-0.2, 0.04)}, {"sampling.top_p": 0.9}),
        ("negative_divergence", {"loop/mean_kl": level(-3, 0.4)}, {"kl_estimator": "k3"}),
        ("negative_coefficient", {"kl": course(lambda step: 0.01 + step / 50, STEPS, 0.001)}, {"kl_coef": -0.1}),
        ("negative_coefficient", {"loop/kl": course(lambda step: step / 5, STEPS)}, {"algo.beta": -0.04}),
        ("negative_coefficient", {"kl_divergence": course(lambda step: 1 + step, STEPS)}, {"kl_loss_coef": -1.0}),
        ("zero_learning_rate", {"learning_rate": series([1e-6] * 20 + [0.0] * 40)}, {"learning_rate": 1e-6}),
        ("zero_learning_rate", {"actor/lr": ZERO, "reward": FLAT}, {}),
        ("zero_learning_rate", {"reward": FLAT}, {"optim.lr": 0.0}),
        ("zero_gradient", {"grad_norm": ZERO, "reward": FLAT}, {}),
        ("zero_gradient", {"actor/grad_norm": series([0.5] * 30 + [0.0] * 30), "reward": FLAT}, {}),
        ("zero_gradient", {"loop/gradient_norm": ZERO, "loop/reward": FLAT}, {}),
        ("silent_source", {"reward": RISES, "reward/gsm8k": RISES, "reward/aime": ZERO}, {}),
        ("silent_source", {"reward": RISES, "rewards/format/mean": ZERO, "rewards/answer/mean": RISES}, {}),
        ("silent_source", {"reward": RISES, "style_reward": ZERO, "answer_reward": RISES}, {}),
        (
            "parts_are_not_the_sum",
            {"reward": level(2), "reward/a": ONE, "reward/b": ONE},
            {"a_weight": 0.7, "b_weight": 0.3},
        ),
        (
            "parts_are_not_the_sum",
            {"reward": level(1), "reward/a": ONE, "reward/b": ONE},
            {"weights.a": 1, "weights.b": 1},
        ),
        (
            "parts_are_not_the_sum",
            {"reward": level(3), "a_reward": ONE, "b_reward": ONE},
            {"weights.a": 1.0, "weights.b": 1.0},
        ),
        ("sampling_gap", {"sampling/sampling_logp_difference/mean": level(0.69, 0.03)}, {"temperature": 0.6}),
        ("sampling_gap", {"loop/logp_diff": level(0.1, 0.01)}, {"sampling.top_p": 0.9}),
        ("sampling_gap", {"engine_kl": level(0.3, 0.01)}, {"rollout.top_k": 20}),
        ("sampling_gap", {"engine_kl": level(0.3, 0.01)}, {"actor_rollout_ref.rollout.temperature": 0.7}),
        ("no_tokens", {"completions/mean_length": ZERO, "reward": FLAT}, {}),
        ("groups_of_one", {"reward": FLAT, "reward_std": NAN, "loss": NAN}, {"num_generations": 1}),
        ("groups_of_one", {"reward": FLAT, "actor/loss": NAN}, {"algo.group_size": 1}),
        (
            "groups_of_one",
            {"score": FLAT, "advantages/std": NAN, "grad_norm": NAN, "loss": level(0.1)},
            {"n_samples_per_prompt": 1},
        ),
        ("rate_that_adds_up", {"training_tok/s": counted(90), **STEADY_STEPS}, {}),
        ("rate_that_adds_up", {"perf/throughput_tokens": counted(3), **STEADY_STEPS}, {}),
        ("rate_that_adds_up", {"tokens_per_second": SUMMED, **STEADY_STEPS}, {}),
        ("loss_without_tokens", {"valid_tokens": sometimes(0, 140), "loss": sometimes(50, 0.05)}, {}),
        ("loss_without_tokens", {"batch/num_tokens": sometimes(0, 9), "actor/loss": sometimes(-8, 0.1)}, {}),
        ("loss_without_tokens", {"n_loss_tokens": sometimes(0, 9), "policy_loss": sometimes(1, 0.01)}, {}),
        ("two_deviations", {"reward": FLAT, "reward_std": level(0.2), **ONE_PART}, {}),
        ("two_deviations", {"reward/mean": FLAT, "reward/std": level(0.9), **ONE_PART}, {}),
        ("negative_entropy", {"objective/entropy": level(-3), "completions/mean_length": LENGTHS}, {}),
        ("negative_entropy", {"entropy": level(-0.5, 0.1), "response_length": LENGTHS}, {}),
        ("deviation_above_the_range", {"reward/std": level(1.7), **RANGE}, {}),
        ("mean_is_the_maximum", {"response_length/mean": level(2048), **WIDE}, {}),
        ("part_above_its_whole", {"timing_s/gen": level(30), "timing_s/step": level(21)}, {}),
        ("rate_above_its_parameter", {"learning_rate": level(1e-4)}, {"learning_rate": 1e-6}),
        ("rate_above_its_parameter", {"actor/lr": level(2e-6)}, {"actor.optim.lr": 1e-6, "critic.lr": 1e-5}),
        ("longer_than_the_limit", {"completions/max_length": level(1500)}, {"max_completion_length": 1024}),
        ("updates_that_move_nothing", {"actor/ppo_kl": ZERO}, {"actor.ppo_epochs": 4}),
        ("updates_that_move_nothing", {"approx_kl": ZERO}, {"n_epochs": 10}),
        (
            "advantages_off_center",
            {f"advantages/group_{group}/mean": level(group - 1.5, 0.1) for group in range(4)},
            {"adv_estimator": "grpo"},
        ),
        ("held_out_is_training", {"reward": FLAT, "val/reward": FLAT}, {}),
        (
            "peak_below_the_mean",
            {"perf/peak_output_throughput": level(930, 9), "perf/output_throughput": level(2400, 9)},
            {},
        ),
        ("peak_below_the_mean", {"queue/depth_max": level(2), "queue/depth_mean": level(5)}, {}),
        ("held_out_that_stays", {"reward": RISES, "eval/accuracy": level(0.25)}, {}),
        ("counter_that_starts_over", {"tokens/total": restarted(8000)}, {}),
        ("counter_that_starts_over", {"train/num_tokens": restarted(90)}, {}),
    ],
)
def test_what_contradicts_itself(rule: str, values: dict[str, Series], parameters: dict[str, object]) -> None:
    """Of three frameworks or loops each; nothing else is said of them."""
    assert said_of(values, parameters) == [rule]


@pytest.mark.parametrize(
    ("values", "parameters"),
    [
        ({"perf/peak_throughput": level(2500, 9), "perf/throughput": level(2400, 9)}, {}),
        ({"reward": RISES, "eval/accuracy": level(0.0)}, {}),
        ({"reward": FLAT, "eval/accuracy": level(0.25)}, {}),
        ({"tokens/total": counted(8000)}, {}),
        ({"time/total": restarted(40), "elapsed": restarted(40)}, {}),
        ({"tokens/total": course(lambda step: 800 + step % 7, STEPS, 9)}, {}),
        ({"response_length/clip_ratio": level(0.1), "response_length/max": level(1024)}, {"max_response_length": 1024}),
        ({"response_length/clip_ratio": level(0.1), "response_length/max": LENGTHS}, {}),
        ({"completions/clipped_ratio": ZERO, "completions/max_length": LENGTHS}, {"max_completion_length": 1024}),
        (
            {"completions/clipped_ratio": level(0.1), "completions/max_length": LENGTHS},
            {"max_completion_length": 1024, "max_model_len": 1100},
        ),
        ({"clip_ratio/high_mean": level(0.1), "completions/max_length": LENGTHS}, {"max_completion_length": 1024}),
        ({"val/accuracy": level(45, 3), "pass_rate": level(80, 2), "reward/accuracy": level(2.0)}, {}),
        ({"importance_ratio": level(1.1), "learning_rate": level(1e-6), "compression_ratio": level(4)}, {}),
        ({"len/mean": level(5), "len/min": level(1), "len/max": level(9)}, {}),
        ({"num_tokens": counted(800), "prompt_tokens": counted(400)}, {}),
        ({"num_tokens": counted(800), "tokens/trained": series(np.cumsum(LENGTHS.values).tolist())}, {}),
        ({"num_samples": level(64), "samples_seen": level(16)}, {}),
        ({"kl": ZERO}, {"beta": 0.0}),
        ({"loss/format": ONE, "value_loss": RISES}, {"format_coef": 0.5, "vf_coef": 0.5}),
        ({"reward": FLAT, "learning_rate": level(1e-6)}, {"learning_rate": 0}),
        (
            {
                **{f"advantages/{name}": level(value) for name, value in (("mean", 0.2), ("std", 0.5), ("count", 900))},
                "reward/mean": FLAT,
                "reward/count": level(32),
            },
            {"algorithm": "grpo"},
        ),
        ({"advantages/mean": level(-0.2), "advantages/std": ONE, "reward": FLAT}, {"algorithm": "grpo"}),
        ({"actor/ppo_kl": ZERO}, {"kl_coef": 0.001}),
        ({"approx_kl": level(-0.0003, 0.0002)}, {}),
        ({"kl": level(0.001, 0.01)}, {"kl_penalty": "kl"}),
        ({"kl": level(0.02, 0.001)}, {"kl_coef": -0.1}),
        ({"kl": course(lambda step: step / 50, STEPS)}, {"kl_coef": 0.1, "entropy_coef": -0.01}),
        ({"learning_rate": series([1e-6 * (1 - step / 59) for step in range(60)])}, {}),
        ({"learning_rate": series([0.0] * 20 + [1e-6] * 40), "critic/lr": ZERO}, {}),
        ({"learning_rate": ZERO, "reward": RISES}, {"learning_rate": 1e-9}),
        ({"reward": FLAT}, {"critic.lr": 0.0, "actor.lr": 1e-6}),
        ({"grad_norm": ZERO, "reward": ONE}, {}),
        ({"grad_norm": series([0.5] * 50 + [0.0] * 10), "reward": FLAT}, {}),
        ({"reward": RISES, "reward/answer": RISES, "reward/length_penalty": ZERO}, {}),
        ({"reward": RISES, "reward/a": RISES, "reward/b": level(1.0), "reward/c": ZERO}, {}),
        ({"reward": level(1), "reward/a": ONE, "reward/b": ONE}, {"a_weight": 0.7, "b_weight": 0.3}),
        ({"reward": level(9), "reward/a": ONE, "reward/b": ONE}, {"a_weight": 0.7}),
        ({"sampling/sampling_logp_difference/mean": level(0.01)}, {"temperature": 0.6}),
        ({"loop/logp_diff": level(0.4)}, {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "val.temperature": 0.6}),
        ({"completions/mean_length": ZERO, "reward": ZERO}, {}),
        ({"reward": FLAT, "reward_std": NAN, "loss": NAN}, {"num_generations": 8}),
        ({"reward": FLAT, "reward_std": ZERO, "loss": level(0.1)}, {"num_generations": 1}),
        ({"training_tok/s": counted(90), "completions/mean_length": counted(50), "time/step": level(40)}, {}),
        ({"reward": RISES, "reward/std": NAN, "loss": level(0.1), "grad_norm": ONE}, {"n_samples_per_prompt": 1}),
        ({"score": RISES, "advantages/std": NAN}, {"n_samples_per_prompt": 1}),
        ({"tokens_per_second": level(900, 20), **STEADY_STEPS}, {}),
        ({"tokens_per_second": course(lambda step: 100 + 4 * step, STEPS, 2), **STEADY_STEPS}, {}),
        ({"perf/tokens_per_s": series([300.0] * 20 + [900.0] * 40), **STEADY_STEPS}, {}),
        ({"rollout/time_per_token_s": counted(0.018), **STEADY_STEPS}, {}),
        ({"seconds_per_token": counted(0.018), "token_latency_s": counted(0.02), **STEADY_STEPS}, {}),
        ({"valid_tokens": sometimes(0, 140), "loss": sometimes(0, 0.05)}, {}),
        ({"prompt_tokens": sometimes(0, 140), "loss": sometimes(50, 0.05)}, {}),
        ({"reward": FLAT, "reward_std": level(0.46), **ONE_PART}, {}),
        ({"reward": level(2), "reward_std": level(0.2), **ONE_PART}, {}),
        ({"train/entropy_loss": level(-3), "response_length": LENGTHS}, {}),
        ({"train/entropy": level(-3), "rollout/ep_len_mean": LENGTHS}, {}),
        ({"reward/std": level(0.5), **RANGE}, {}),
        ({"response_length/mean": level(900), **WIDE}, {}),
        ({"timing_s/gen": level(20), "timing_s/step": level(21), "timing_s/x": level(21.3)}, {}),
        ({"learning_rate": level(1e-6), "critic/lr": level(1e-5)}, {"learning_rate": 1e-6}),
        ({"completions/max_length": level(1500), "tool_calls": ONE}, {"max_completion_length": 1024}),
        ({"completions/max_length": level(1024)}, {"max_completion_length": 1024}),
        ({"actor/ppo_kl": ZERO}, {"actor.ppo_epochs": 1}),
        ({"reward": FLAT, "val/reward": RISES}, {}),
        ({"reward": ONE, "val/reward": ONE}, {}),
        ({f"advantages/group_{group}/mean": level(0, 0.01) for group in range(4)}, {"adv_estimator": "grpo"}),
    ],
)
def test_what_can_be(values: dict[str, Series], parameters: dict[str, object]) -> None:
    """Schedules, warm-ups, percent, penalties that never apply, other counters, and settings of evaluations."""
    assert said_of(values, parameters) == []


@given(
    st.dictionaries(
        st.sampled_from(
            ["reward", "kl", "grad_norm", "lr", "reward/a", "reward/b", "pass_rate", "x/mean", "x/min", "x/max"]
        ),
        st.lists(st.floats(allow_nan=True), max_size=30),
    ),
    st.dictionaries(
        st.sampled_from(["lr", "beta", "top_p", "a_weight", "b_weight"]), st.floats() | st.text(max_size=3)
    ),
)
def test_any_columns(values: dict[str, list[float]], parameters: dict[str, object]) -> None:
    """No rule fails, whatever the values are."""
    said_of({name: series(column) for name, column in values.items()}, parameters)


def test_rules_read_what_they_ask_for() -> None:
    """Columns outside of the main metrics are loaded at once, before the rules."""
    names = ["lr", "num_tokens", "pass_rate", "x/mean", "x/min", "x/max", "y/mean", "completions/max_length", "other"]

    assert {*names} - {*wanted(names)} == {"y/mean", "other"}


def test_each_rule_is_documented() -> None:
    """The table of the docs has a row for each."""
    page = (Path(__file__).parents[3] / "docs" / "explanation" / "anomalies.md").read_text()
    section = page.partition("## Contradictions")[2].partition("\n## ")[0]

    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [rule.__name__ for rule in RULES]


def test_a_finding_has_three_rows(tmp_path: Path) -> None:
    """And its place; the share of completions that were cut is not advised about when none was."""
    values = {"completions/clipped_ratio": 0.25, "completions/max_length": 700.0}
    player = Player(tmp_path / "run", Played(values=lambda _step, _rank: values))
    player.start()
    player.add(Params(BEGAN, {"max_completion_length": 1024}))
    player.steps(range(30))
    player.finish()
    facts = facts_of(player.open())
    (finding,) = [one for one in facts.findings if "clipped_ratio" in one.sentence]

    assert finding.also == (
        "Step 0: completions/clipped_ratio 0.25, completions/max_length 700;"
        " Step 15: completions/clipped_ratio 0.25, completions/max_length 700;"
        " Step 29: completions/clipped_ratio 0.25, completions/max_length 700.",
    )
    assert finding.evidence.steps == (0, 29)
    assert all("Raise the limit" not in one.advice for one in facts.findings)
