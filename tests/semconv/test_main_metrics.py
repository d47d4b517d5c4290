"""The main metrics of each framework, and the categories of its phases."""

from __future__ import annotations

import msgspec
import pytest

from otel_rl.semconv import registry
from otel_rl.semconv.dialect import dialect
from otel_rl.semconv.frameworks import dialects
from otel_rl.semconv.main_metrics import MainMetrics, entries
from otel_rl.semconv.phase_categories import CATEGORIES, category_of

_PLAIN = {"prepare_inputs", "step", "profile", "setup", "log", "onload", "offload", "prefetch", "exec", "to_remote"}
_PLAIN |= {"get_batch_samples", "stop_server", "data"}
"""Phases that do none of the things that have a category."""
_NAMES = {
    "trl": [
        *("reward", "rewards/format/mean", "loss", "kl", "entropy", "grad_norm", "completions/mean_length"),
        *("completions/clipped_ratio", "step_time", "perf/goodput"),
    ],
    "verl": [
        *("critic/rewards/mean", "actor/pg_loss", "actor/ppo_kl", "actor/entropy", "actor/grad_norm"),
        *("response_length/mean", "response_length/clip_ratio", "perf/time_per_step", "perf/throughput"),
        "perf/max_memory_allocated_gb",
    ],
    "openrlhf": ["reward", "policy_loss", "kl", "entropy_loss", "actor_grad_norm", "response_length"],
    "skyrl": ["loss/avg_final_rewards", "policy/loss", "policy/policy_kl", "generate/avg_num_tokens"],
    "stable_baselines3": ["rollout/ep_rew_mean", "train/loss", "train/approx_kl"],
}


def test_the_best_value() -> None:
    """It is that of the topic, under any name; an entropy has none."""
    main = MainMetrics(["actor/pg_loss", "critic/rewards/mean", "actor/entropy"], "verl")

    assert [main.best(name) for name in ("actor/pg_loss", "critic/rewards/mean", "actor/entropy", "x")] == [
        *("lowest", "highest", "", "")
    ]


@pytest.mark.parametrize("framework", sorted(_NAMES))
def test_main_metrics_of_a_framework(framework: str) -> None:
    """They are found under its own names, in the order of screens, among others; without its name, too."""
    names = _NAMES[framework]
    others = ["learning_rate", "my/own", "time/generate"]

    assert MainMetrics([*others, *reversed(names)], framework).names == tuple(names)
    assert MainMetrics([*others, *reversed(names)]).names == tuple(names)


def test_names_that_no_dialect_knows() -> None:
    """Their last components say what they are."""
    found = MainMetrics(["ours/reward", "ours/policy_loss", "ours/other"])

    assert found.by_topic == {"reward": ("ours/reward",), "loss": ("ours/policy_loss",)}


def test_observations_are_found_by_their_mean() -> None:
    """A list that a trainer logs as its reward has a mean, which is the reward."""
    found = MainMetrics(["reward/mean", "reward/std", "reward/count"])

    assert found.by_topic == {"reward": ("reward/mean",)}


def test_parts_of_a_reward_of_an_own_loop() -> None:
    """By their shape; statistics, evaluations and models of a reward are left out."""
    parts = ["format_reward", "loop/reward/tone", "reward/accuracy", "reward_tests", "rewards/parts/style"]
    others = [
        "reward",
        "reward/std",
        "reward_max",
        "mean_reward",
        "eval/reward/math",
        "reward_model_loss",
        "val_reward",
    ]

    assert MainMetrics([*others, *parts]).by_topic["reward_components"] == tuple(parts)


def test_topics_are_in_the_registry() -> None:
    """Each choice is a metric of the registry, with attributes of that metric."""
    for entry in entries():
        for choice in entry.choices:
            metric = registry.metrics()[choice.metric]
            assert {*choice.attributes, *choice.optional} <= set(metric.attribute_names), choice


@pytest.mark.parametrize("name", dialects())
def test_phases_of_frameworks_have_categories(name: str) -> None:
    """A framework's name of a phase has the category of the canonical name."""
    for phase, canonical in dialect(name).phases.items():
        if phase == "eval_and_log":  # does both
            continue
        assert (category_of(phase) == "other") == (canonical in _PLAIN), phase
        if canonical not in _PLAIN:
            assert category_of(phase) == category_of(canonical), phase


@pytest.mark.parametrize(
    ("phase", "category"),
    [
        *(("waitForRollouts", "waiting"), ("eval_rollout", "evaluation"), ("push_weights", "sync")),
        *(("my_generate", "rollout"), ("run_verifier", "reward"), ("save_state", "checkpoint"), ("foo", "other")),
    ],
)
def test_phases_that_no_framework_has(phase: str, category: str) -> None:
    """Their words say what they do."""
    assert category_of(phase) == category
    assert category in CATEGORIES


def test_a_phase_has_one_category() -> None:
    """No name is in two lists."""
    listed = msgspec.yaml.decode(registry.content("phase_categories.yaml"))["names"].values()
    names = [name for names in listed for name in names]

    assert sorted(names) == sorted({*names})
