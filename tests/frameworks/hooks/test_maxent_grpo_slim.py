"""The metrics of MaxEnt-GRPO's `slim` mode."""

from __future__ import annotations

import pytest

from otel_rl.frameworks.maxent_grpo_slim import chosen_rows, from_mode, slim
from otel_rl.recorder.agent.steps.trackers import Filter
from otel_rl.recorder.settings.loading import load

SLIM = load({"rows": {"metrics": slim}}, {}).rows.metrics


def kept(**values: float) -> set[str]:
    """Return the names that are chosen; `__` in a name is a slash."""
    named = {f"train/{name.replace('__', '/')}": value for name, value in values.items()}
    return {name.removeprefix("train/") for name in Filter(SLIM).select(named)}


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("", "full"), (" FULL ", "full"), ("all", "full"), ("default", "full"),
        ("slim", slim), ("compact", slim), ("minimal", slim), ("Lite", slim), ("actor/*", None),
    ],
)  # fmt: skip
def test_modes(text: str, mode: object) -> None:
    """The words that MaxEnt-GRPO's users write."""
    assert from_mode(text) == mode


def test_slim_leaves_out_subtrees_and_doubles() -> None:
    """A subtree goes without its head; what says the same twice goes."""
    found = kept(
        weighting__tau=1, kl_controller__target=1, kl_per_token_bucket__a=1, kl_per_token_bucket_tokens__a=1,
        clip_ratio=1, clip_ratio__low_mean=1, loss=1, loss__total=1, objective__minimize=1, kl_coeff=1, tau_log=1,
        delta_tau=1, delta_tau_abs=1, q_entropy_mean=1, q_entropy_min=1, len_norm_ref=1, grad_norm=1,
    )  # fmt: skip

    assert found == {"clip_ratio", "loss", "delta_tau", "q_entropy_mean", "grad_norm"}


def test_slim_keeps_few_of_completions() -> None:
    """Mean lengths, what was cut off, and diversity."""
    found = kept(
        completions__mean_length_sampled=1, completions__max_length_sampled=1, completions__mean_length_terminated=1,
        completions__clipped_frac=1, completions__diversity__jaccard=1, completions__diversity__distinct_1_micro=1,
        completions__diversity__other=1,
    )  # fmt: skip

    assert found == {
        "completions/mean_length_sampled", "completions/mean_length_terminated", "completions/clipped_frac",
        "completions/diversity/jaccard", "completions/diversity/distinct_1_micro",
    }  # fmt: skip


def test_slim_keeps_three_quantiles() -> None:
    """Of the reward and of its components."""
    found = kept(
        **{
            f"{of}p{q}": 1 for of in ("reward_", "rewards__a__", "rewards__b__") for q in ("00", "05", "25", "50", "95")
        },
    )

    assert found == {f"{of}p{q}" for of in ("reward_", "rewards/a/", "rewards/b/") for q in ("05", "50", "95")}


def test_slim_does_not_take_names_for_quantiles() -> None:
    """A reward function may begin with a p."""
    found = kept(rewards__python_format__mean=1, rewards__python_format__std=1, rewards__x__mean=2, reward_python=1)

    assert found == {"rewards/python_format/mean", "rewards/python_format/std", "rewards/x/mean", "reward_python"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"reward": 0.5, "rewards__only__mean": 0.5, "rewards__only__std": 1}, {"reward"}),
        ({"reward": 0.6, "rewards__only__mean": 0.5}, {"reward", "rewards/only/mean"}),
        (
            {"reward": 0.5, "rewards__a__mean": 0.5, "rewards__b__mean": 0},
            {"reward", "rewards/a/mean", "rewards/b/mean"},
        ),
    ],
)
def test_slim_and_a_single_component(values: dict[str, float], expected: set[str]) -> None:
    """If the reward has one component and is equal to it, the component says nothing more."""
    assert kept(**values) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"meta__enabled": 0, "meta__lr": 1}, set()),
        ({"meta__enabled": 1, "meta__lr": 1}, {"meta/enabled", "meta/lr"}),
        ({"entropy_bonus_coef": 0, "entropy_bonus_mean": 1, "rewards__entropy_bonus__mean": 1, "reward": 2},
         {"reward"}),
        ({"entropy_bonus_coef": 0.1, "entropy_bonus_mean": 1}, {"entropy_bonus_coef", "entropy_bonus_mean"}),
        ({"maxent_objective": 0, "weight_entropy": 1, "advantage_entropy_mean": 1, "tau": 0, "tau_lr": 1}, set()),
        ({"maxent_objective": 0, "weight_entropy": 1, "tau": 0.5, "tau_lr": 1}, {"tau", "tau_lr"}),
        ({"maxent_objective": 1, "weight_entropy": 1, "weight_entropy_min": 1, "weight_entropy_ema": 1, "tau": 0},
         {"weight_entropy", "tau"}),
    ],
)  # fmt: skip
def test_slim_leaves_out_what_is_switched_off(values: dict[str, float], expected: set[str]) -> None:
    """Metrics of a feature are left out when the feature is off."""
    assert kept(**values) == expected


@pytest.mark.parametrize(
    ("variables", "rows"),
    [
        ({"MAXENT_WANDB_METRICS_MODE": " Slim"}, {"rows": {"metrics": slim}}),
        ({"MAXENT_METRICS_MODE": "compact"}, {"rows": {"metrics": slim}}),
        ({"MAXENT_WANDB_METRICS_MODE": "full", "MAXENT_METRICS_MODE": "slim"}, {}),
        ({"MAXENT_METRICS_MODE": "unknown"}, {}),
        ({"MAXENT_METRICS_MODE": "slim", "OTEL_RL_ROWS_METRICS": "full"}, {}),
        ({}, {}),
    ],
)
def test_the_variables_of_the_mode(
    variables: dict[str, str], rows: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They choose the metrics of rows where the hooks begin the run; the user's own settings win."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert chosen_rows() == rows
