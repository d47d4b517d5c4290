"""Coming from MaxEnt-GRPO.

Replace `from maxent_grpo.training.metrics import log_local_step, log_training_step, …` by the same names of this
module, and begin a run before the loop:

    run = otel_rl.init(project="maxent", dialect="maxent_grpo", content=True,
                       rows={"metrics": maxent_grpo_slim.slim, "every": 10})
    ...
    log_local_step(ctx, state, prepared, artifacts, lr)
    log_training_step(ctx, state, prepared, artifacts, lr)

The same: the functions and their arguments, the names of all metrics, the cadence of `logging_steps` for printed lines,
slim mode, the completions table. Different: every rank records its own values at every step, and the agent computes
means, deviations and quantiles over all ranks. Nothing is gathered, so no rank waits for another, and no point is
repeated. Averages over steps are the agent's too (`rows.every`). Losses for each token may be negative, cumulative
counts are not averaged, texts never become numbers, and NaN does not poison a mean.
"""

from __future__ import annotations

import json
import logging
import math
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

import otel_rl
from otel_rl.integrations.maxent_grpo_metrics import (
    RewardView,
    WeightView,
    build_training_metrics_dict,
    reward_samples,
    summarize_reward_stats,
    summarize_weight_stats,
)
from otel_rl.setup.settings import Rows

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

_NOT_AVERAGED = ("train/global_step", "train/epoch")
_LAST = ("train/num_tokens",)
"""Counts since the start, whose mean over steps has no meaning."""
_DEBUG = {
    "loss": "train/loss",
    "reward": "train/reward",
    "reward_std": "train/reward_std",
    "q_entropy": "train/q_entropy_mean",
    "w_entropy": "train/weight_entropy",
    "kl": "train/kl",
    "tau": "train/tau",
    "beta": "train/beta",
}
_TABLE = "rich_completions"


class LogStepArtifacts(msgspec.Struct):
    """The results of an optimizer step that are logged."""

    loss_outputs: Any
    diagnostics: Any
    grad_norm_scalar: float | None
    epoch_progress: float


class MetricState(Protocol):
    """Sums and counts since the last flush, and the progress of the training."""

    global_step: int
    num_input_tokens_seen: float
    metric_sums: dict[str, float]
    metric_counts: dict[str, int]


def accumulate_metrics(state: MetricState, metrics: Mapping[str, Any]) -> None:
    """Add metrics to the sums. Texts, booleans and non-finite values are ignored."""
    for name, value in metrics.items():
        if name in _NOT_AVERAGED or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        if not math.isfinite(value):
            continue
        before = 0.0 if name in _LAST else state.metric_sums.get(name, 0.0)
        state.metric_sums[name] = before + float(value)
        state.metric_counts[name] = 1 if name in _LAST else state.metric_counts.get(name, 0) + 1


def flush_metric_averages(state: MetricState) -> dict[str, float]:
    """Return the averages since the last flush and reset them; for counts since the start, the last value."""
    averages = {name: total / state.metric_counts[name] for name, total in state.metric_sums.items()}
    state.metric_sums.clear()
    state.metric_counts.clear()
    return averages


def log_training_metrics(logging_cfg: Any, global_step: int, payload: Any) -> dict[str, Any]:
    """Build the metrics of a step, pass them to the caller's writer, flush it, and return them."""
    metrics = build_training_metrics_dict(payload, global_step)
    logging_cfg.log_metrics(metrics, global_step)
    flush = getattr(getattr(logging_cfg, "metric_writer", None), "flush", None)
    if callable(flush):
        flush()
    return metrics


def log_local_step(
    ctx: Any,
    state: MetricState,
    prepared: Any,
    log_artifacts: Any,
    current_lr: float,
    *,
    reward_view: RewardView | None = None,
    weight_view: WeightView | None = None,
    emit: bool = True,
) -> None:
    """Record the metrics of this rank's step, its rewards as observations; if `emit`, print them too."""
    metrics = _metrics(ctx, state, prepared, log_artifacts, current_lr, reward_view, weight_view)
    accumulate_metrics(state, metrics)
    _record(state.global_step, metrics, getattr(prepared, "reward_comp", None))
    if emit and _rows(ctx).is_due(state.global_step):
        logger.debug("%s", debug_line(state.global_step, metrics))
        logger.info("%s", metrics_line("Local", state.global_step, metrics))


def log_training_step(
    ctx: Any,
    state: MetricState,
    prepared: Any,
    log_artifacts: Any,
    current_lr: float,
    *,
    reward_view: RewardView | None = None,
    weight_view: WeightView | None = None,
) -> None:
    """If the cadence says so, print the averages since the last time and record the completions.

    Metrics that `log_local_step` has not recorded are recorded now.
    """
    if not _rows(ctx).is_due(state.global_step):
        return
    weighting = ctx.scoring.weighting
    metrics: dict[str, Any] = dict(flush_metric_averages(state))
    if not metrics:
        metrics = _metrics(ctx, state, prepared, log_artifacts, current_lr, reward_view, weight_view)
        _record(state.global_step, metrics, getattr(prepared, "reward_comp", None))
    metrics["train/global_step"] = float(state.global_step)
    if getattr(getattr(getattr(ctx, "runtime", None), "accelerator", None), "is_main_process", True):
        loss = log_artifacts.loss_outputs.total_loss_scalar
        logger.info("%s", info_line(state.global_step, log_artifacts.epoch_progress, loss, weighting))
        logger.info("Global metrics (pretty) step %d\n%s", state.global_step, pretty(metrics))
    weighting._prev_tau, weighting._prev_beta = float(weighting.tau), float(weighting.beta)
    _record_completions(ctx, state, prepared)


def info_line(step: int, epoch: float, loss: float, weighting: Any) -> str:
    """Return the line of a step."""
    return f"step {step} | epoch {epoch:.2f} | loss={loss:.4f} | tau={weighting.tau:.3f} beta={weighting.beta:.3f}"


def metrics_line(tag: str, step: int, metrics: Mapping[str, Any]) -> str:
    """Return the line of all metrics, sorted by name."""
    return f"{tag} metrics step {step} | " + " | ".join(f"{name}={metrics[name]}" for name in sorted(metrics))


def debug_line(step: int, metrics: Mapping[str, Any]) -> str:
    """Return the line of the most important metrics, those that are finite."""
    shown = [f"{label}={metrics[name]:.6f}" for label, name in _DEBUG.items() if _is_finite(metrics.get(name))]
    means = {
        name.split("/")[-2]: value
        for name, value in sorted(metrics.items())
        if name.startswith("train/rewards/") and name.endswith("/mean") and _is_finite(value)
    }
    if means:
        shown.append("rewards[" + ", ".join(f"{name}={value:.4f}" for name, value in means.items()) + "]")
    return f"debug metrics step {step} | " + (" ".join(shown) or "no-metrics")


def entropy_bonus_line(metrics: Mapping[str, Any], *, std: float | None = None) -> str:
    """Return the line about the part of the entropy bonus in the reward."""
    shown = {
        "reward_no_bonus": metrics.get("train/reward_without_entropy_bonus"),
        "bonus_mean": metrics.get("train/entropy_bonus_mean"),
        "reward_with_bonus": metrics.get("train/reward_with_entropy_bonus"),
        "objective_loss": metrics.get("train/objective/minimize"),
        "bonus_std": std,
    }
    return " ".join(f"{name}={value:.6f}" for name, value in shown.items() if value is not None)


def pretty(metrics: Mapping[str, Any]) -> str:
    """Return the metrics as indented JSON, sorted by name."""
    return json.dumps(metrics, indent=2, sort_keys=True, default=str)


def _metrics(
    ctx: Any,
    state: MetricState,
    prepared: Any,
    log_artifacts: Any,
    current_lr: float,
    reward_view: RewardView | None,
    weight_view: WeightView | None,
) -> dict[str, Any]:
    generation = getattr(ctx, "generation", None)
    latency = getattr(generation, "generation_stats", {}).get("vllm_last_latency_ms", 0.0)
    payload = SimpleNamespace(
        reward_stats=reward_view or summarize_reward_stats(None, getattr(prepared, "reward_comp", None)),
        weight_stats=weight_view or summarize_weight_stats(None, getattr(prepared, "weight_stats", None)),
        loss_outputs=log_artifacts.loss_outputs,
        diagnostics=log_artifacts.diagnostics,
        length_stats=getattr(prepared, "length_stats", None),
        config=SimpleNamespace(weighting=ctx.scoring.weighting),
        scalars=SimpleNamespace(
            ref_logp_mean=getattr(getattr(prepared, "ref_stats", None), "ref_logp_mean", None),
            avg_completion_tokens=getattr(getattr(prepared, "ref_stats", None), "avg_completion_tokens", None),
            num_completion_tokens=getattr(prepared, "num_completion_tokens", None),
            num_input_tokens=state.num_input_tokens_seen,
            current_lr=current_lr,
            grad_norm_scalar=log_artifacts.grad_norm_scalar,
            epoch_progress=log_artifacts.epoch_progress,
            vllm_latency_ms=float(latency) if getattr(generation, "use_vllm", False) else None,
        ),
        seed_metrics=getattr(prepared, "seed_metrics", None),
    )
    return build_training_metrics_dict(payload, state.global_step)


def _record(step: int, metrics: Mapping[str, Any], reward_comp: Any) -> None:
    run = otel_rl.current()
    if run is None:
        return
    samples: dict[str, Any] = dict(reward_samples(reward_comp))
    pooled = {name.rpartition("@")[0] for name in samples}
    numbers = {n: v for n, v in metrics.items() if n not in pooled and not isinstance(v, (str, bool))}
    run.log({**numbers, **samples}, step=step)


def _record_completions(ctx: Any, state: MetricState, prepared: Any) -> None:
    """Record prompts and completions if the training arguments ask for it; their texts need `content=True`."""
    arguments = getattr(ctx, "training_args", None)
    asked = getattr(arguments, "rich_log_completions", getattr(arguments, "log_completions", arguments is None))
    run, rewards = otel_rl.current(), getattr(prepared, "reward_comp", None)
    if run is None or not asked or rewards is None:
        return
    run.completions(
        rewards.pairs.prompts,
        rewards.pairs.completions,
        step=state.global_step,
        name=getattr(arguments, "rich_log_completions_key", "") or _TABLE,
        rewards=getattr(rewards, "total_utils", None),
        advantages=getattr(rewards, "advantage_samples", None),
        reward_components=getattr(rewards, "per_reward_values", None),
    )


@cache
def rows_of(strategy: str, steps: int | None = 1, *, first: bool = True) -> Rows:
    """Return the rows that `logging_strategy`, `logging_steps` and `logging_first_step` ask for.

    `no` and `epoch` give none; `epoch` logs one warning, since epochs are unknown here.
    """
    name = strategy.strip().lower()
    if name in ("epoch", "epochs"):
        logger.warning("logging_strategy=%r: epochs are not known here, so no rows leave", strategy)
    if name in ("no", "none", "off", "epoch", "epochs"):
        return Rows(every=0, first=False)
    return Rows(every=max(1, steps or 1), first=first)


def _rows(ctx: Any) -> Rows:
    arguments = getattr(ctx, "training_args", None)
    return rows_of(
        str(getattr(arguments, "logging_strategy", "steps") or "steps"),
        getattr(arguments, "logging_steps", 1),
        first=bool(getattr(arguments, "logging_first_step", True)),
    )


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
