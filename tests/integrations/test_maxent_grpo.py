"""MaxEnt-GRPO's metrics, recorded."""

from __future__ import annotations

import csv
import json
import logging
import math
from pathlib import Path
from types import SimpleNamespace as Space
from typing import TYPE_CHECKING, Any

import pytest

import otel_rl
from otel_rl.integrations import maxent_grpo as maxent
from otel_rl.journal.records import Logged, Observed, Tabled
from otel_rl.semconv.dialect import dialect
from tests.processes import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.journal.records import Record


DIVERSITY = [f"{measure}{over}" for measure in ("distinct_1", "distinct_2", "jaccard") for over in ("", "_micro")]


def reward_comp() -> Space:
    return Space(
        total_utils=[1.0, 3.0, 3.0, 1.0],
        advantage_samples=[-1.0, 1.0, 0.0, 0.0],
        advantage=Space(grouped=[[-1.0, 1.0], [0.0, 1e-9]]),
        per_reward_values={"python_format": [1.0, 0.0, 1.0, 0.0], "entropy_bonus": [0.5, 0.5, 0.5, 0.5]},
        q_grouped=[[0.5, 0.5], [1.0, 0.0]],
        pairs=Space(prompts=["p", "p", "q", "q"], completions=["a", "b", "c", "d"]),
    )


def weighting() -> Space:
    return Space(
        tau=0.5, beta=0.1, denom=1.0, q_temperature=1.0, q_epsilon=1e-6, tau_lr=0.01, tau_min=0.1, tau_max=2.0,
        tau_warmup_steps=1, tau_target_entropy=0.4, kl_target=0.2, kl_horizon=10, kl_ctl_step_size=0.1,
        len_norm_ref=True, train_grpo_objective=False, controller_meta=None, _prev_tau=0.25, _tau_entropy_ema=0.6,
    )  # fmt: skip


def artifacts() -> Any:
    losses = Space(
        total_loss_scalar=-0.2, policy_loss_scalar=-0.3, kl_loss_scalar=0.1, weighted_kl_loss_scalar=0.01,
        clip_loss_scalar=0.05, policy_entropy_scalar=1.5,
    )  # fmt: skip
    diagnostics = Space(
        clip_ratio=0.1, clip_ratio_low_mean=0.1, clip_ratio_low_min=0.0, clip_ratio_high_mean=0.2,
        clip_ratio_high_max=0.3, clip_ratio_region_mean=0.15, kl_value=0.3,
        kl_per_token_by_len_bucket={"0-64": 0.1}, kl_token_count_by_len_bucket={"0-64": 20},
        diversity=dict.fromkeys(DIVERSITY, 0.5),
    )  # fmt: skip
    return maxent.LogStepArtifacts(losses, diagnostics, 0.7, 0.5)


def prepared(**more: object) -> Space:
    lengths = Space(
        mean_length=10.0, min_length=5, max_length=20, mean_terminated=9.0, min_terminated=5, max_terminated=15,
        clipped_ratio=1.2,
    )  # fmt: skip
    stats = Space(weight_entropy=0.6, weight_entropy_min=0.5, weight_entropy_max=0.7, advantage_entropy=[0.1, 0.3])
    reference = Space(ref_logp_mean=-1.0, avg_completion_tokens=10.0)
    return Space(
        reward_comp=reward_comp(), weight_stats=stats, length_stats=lengths, ref_stats=reference,
        num_completion_tokens=40.0, **more,
    )  # fmt: skip


def context(**arguments: object) -> Space:
    return Space(
        scoring=Space(weighting=weighting()),
        generation=Space(use_vllm=True, generation_stats={"vllm_last_latency_ms": 12.0}),
        training_args=Space(**arguments),
    )


def state(step: int = 5) -> Space:
    return Space(global_step=step, num_input_tokens_seen=100.0, metric_sums={}, metric_counts={})


def metrics() -> dict[str, Any]:
    return maxent._metrics(context(), state(), prepared(), artifacts(), 1e-6, None, None)


def test_the_metrics_have_the_names_that_the_framework_has() -> None:
    """Each is known to its dialect; those that are computed have the right values."""
    found = metrics()
    unknown = [name for name in found if dialect("maxent_grpo").read(name) is None]

    assert [name for name in unknown if dialect("maxent_grpo").passes(name) is None] == []
    assert {name: found[f"train/{name}"] for name in EXPECTED} == pytest.approx(EXPECTED)


EXPECTED = {
    "loss/total": -0.2,
    "objective/maximize": 0.2,
    "reward": 2.0,
    "reward_std": 1.0,
    "frac_reward_zero_std": 0.5,
    "rewards/python_format/mean": 0.5,
    "rewards/python_format/std": 0.5,
    "q_entropy_mean": math.log(2) / 2,
    "q_entropy_max": math.log(2),
    "reward_without_entropy_bonus": 1.5,
    "entropy_bonus_frac_of_total": 0.25,
    "completions/clipped_frac": 1.0,
    "kl_per_token_bucket/0-64": 0.1,
    "completions/diversity/distinct_1": 0.5,
    "delta_tau": 0.25,
    "delta_beta": 0.0,
    "kl_error_to_target": 0.1,
    "kl_ratio_to_target": 1.5,
    "weight_entropy_error": 0.2,
    "tau_loss": 0.02,
    "weighting/tau_loss": 0.02,
    "tau_schedule_active": 1.0,
    "kl_controller/enabled": 1.0,
    "maxent_objective": 1.0,
    "vllm_latency_ms": 12.0,
    "advantage_entropy_std": 0.1,
    "meta/enabled": 0.0,
}


def test_most_of_the_frameworks_metrics_are_there() -> None:
    """Of its fixed names, those that a full batch gives are produced."""
    rows = csv.DictReader((Path(__file__).parents[1] / "data" / "metrics.csv").open())
    fixed = {
        row["metric_name_pattern"]
        for row in rows
        if row["seed"].startswith("002") and row["kind"] != "text" and "{" not in row["metric_name_pattern"]
    }
    sampled = {name.rpartition("@")[0] for name in maxent.reward_samples(reward_comp())}
    missing = fixed - set(metrics()) - sampled

    assert {name for name in missing if "seed_grpo" not in name} <= {
        "train/entropy_bonus_coef",
        "train/entropy_bonus_reward_std",
        "train/weight_entropy_norm",
    }


def test_losses_of_a_token_stay_negative() -> None:
    """A policy loss is often below 0."""
    assert metrics()["train/loss_per_completion_token"] == -0.2 / 40


def test_no_rewards_are_zeros() -> None:
    """`None` gives a view of zeros; the accelerator is not asked for anything."""
    assert maxent.summarize_reward_stats(None, None) == maxent.RewardView()
    assert maxent.summarize_weight_stats(None, None) == maxent.WeightView()


def test_averages_between_flushes() -> None:
    """1, 2, 3 give 2, once; the step and the epoch are not averaged."""
    found = state()
    for value in (1, 2, 3):
        maxent.accumulate_metrics(found, {"train/loss": value, "train/epoch": value, "train/global_step": value})

    assert maxent.flush_metric_averages(found) == {"train/loss": 2.0}
    assert maxent.flush_metric_averages(found) == {}


def test_what_is_no_number_is_not_averaged() -> None:
    """Texts that look like numbers, truth values and NaN are left out; counts since the start are not averaged."""
    found = state()
    for n in (100, 200, 300):
        maxent.accumulate_metrics(
            found, {"run/git_sha": "1234567", "on": True, "kl": math.nan if n == 200 else 1.0, "train/num_tokens": n}
        )

    assert maxent.flush_metric_averages(found) == {"kl": 1.0, "train/num_tokens": 300.0}


def test_a_step_is_recorded_once_with_rewards_as_samples(
    recording: otel_rl.Run, records_of: Callable[..., list[Record]]
) -> None:
    """Rewards travel as samples under tags, so that statistics are of what all ranks hold."""
    maxent.log_local_step(context(), state(), prepared(), artifacts(), 1e-6)
    maxent.log_training_step(context(), state(), prepared(), artifacts(), 1e-6)
    records = records_of(recording)
    (scalars,) = [record for record in records if isinstance(record, Logged)][:1]
    samples = [record for record in records if isinstance(record, Observed)]

    assert "train/reward" not in scalars.values
    assert {"train/reward@mean", "train/reward_std@std", "train/reward_p05@p05"} <= set(samples[0].values)
    assert "train/rewards/python_format/p95@p95" in samples[0].values


def test_two_ranks_are_pooled(tmp_path: Path) -> None:
    """The deviation is of the rewards of both ranks, where a mean of deviations would be 0."""
    run = otel_rl.init(dir=tmp_path, quiet=True, dialect="maxent_grpo")
    for rewards in ([0.0, 0.0], [1.0]):
        run.log(maxent.reward_samples(Space(total_utils=rewards)), step=0)
    assert run.finish()
    values: Any = rows_of(run.dir)[0]["values"]

    assert values["train/reward"] == pytest.approx(1 / 3)
    assert values["train/reward_std"] == pytest.approx(math.sqrt(2) / 3)
    assert values["train/reward_p100"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "tables"),
    [({}, 0), ({"log_completions": True}, 1), ({"rich_log_completions": False, "log_completions": True}, 0)],
)
def test_completions_if_asked_for(
    recording: otel_rl.Run, records_of: Callable[..., list[Record]], arguments: dict[str, bool], tables: int
) -> None:
    """The table has the framework's name and columns."""
    maxent.log_training_step(context(**arguments), state(), prepared(), artifacts(), 1e-6)
    found = [record for record in records_of(recording) if isinstance(record, Tabled)]

    assert len(found) == tables
    assert all(
        (table.name, table.columns[:3]) == ("rich_completions", ["step", "prompt_index", "completion_index"])
        for table in found
    )


@pytest.mark.parametrize(
    ("strategy", "steps", "first", "due"),
    [
        ("steps", 1, True, [0, 1, 2, 3]),
        ("steps", 2, True, [0, 2]),
        ("steps", 2, False, [2]),
        ("steps", 0, True, [0, 1, 2, 3]),
        ("steps", -5, True, [0, 1, 2, 3]),
        ("no", 1, True, []),
        ("OFF", 1, True, []),
        ("epoch", 1, True, []),
    ],
)
def test_when_something_is_printed(strategy: str, steps: int, first: bool, due: list[int]) -> None:
    """Every so many steps, step 0 if asked for; never by epochs."""
    rows = maxent._rows(context(logging_strategy=strategy, logging_steps=steps, logging_first_step=first))

    assert [step for step in range(4) if rows.is_due(step)] == due


def test_the_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Each is as the framework's."""
    found = {"train/loss": 0.5, "train/kl": math.nan, "train/rewards/fmt/mean": 0.25, "b": 1, "a": 2}

    assert maxent.info_line(3, 0.5, 0.123456, weighting()) == (
        "step 3 | epoch 0.50 | loss=0.1235 | tau=0.500 beta=0.100"
    )
    assert maxent.metrics_line("Global", 3, {"b": 1, "a": 2}) == "Global metrics step 3 | a=2 | b=1"
    assert maxent.debug_line(3, found) == "debug metrics step 3 | loss=0.500000 rewards[fmt=0.2500]"
    assert maxent.debug_line(3, {}) == "debug metrics step 3 | no-metrics"
    assert maxent.entropy_bonus_line(metrics(), std=0.5) == (
        "reward_no_bonus=1.500000 bonus_mean=0.500000 reward_with_bonus=2.000000 objective_loss=-0.200000 "
        "bonus_std=0.500000"
    )
    assert json.loads(maxent.pretty({"b": 1, "a": Path("x")})) == {"a": "x", "b": 1}


def test_the_main_process_prints(caplog: pytest.LogCaptureFixture) -> None:
    """And no other one; without a run, nothing is recorded and nothing raises."""
    main, other = context(), context()
    other.runtime = Space(accelerator=Space(is_main_process=False))
    with caplog.at_level(logging.INFO):
        for each in (main, other):
            maxent.log_training_step(each, state(), prepared(), artifacts(), 1e-6)

    assert sum("Global metrics (pretty) step 5" in record.getMessage() for record in caplog.records) == 1


def test_the_callers_writer_is_called_and_flushed() -> None:
    """In this order, with all metrics."""
    calls: list[object] = []
    writer = Space(flush=lambda: calls.append("flush"))
    payload = Space(loss_outputs=Space(total_loss_scalar=0.5))
    found = maxent.log_training_metrics(
        Space(log_metrics=lambda values, step: calls.append((values["train/loss"], step)), metric_writer=writer),
        7,
        payload,
    )

    assert calls == [(0.5, 7), "flush"]
    assert found["train/global_step"] == 7.0
