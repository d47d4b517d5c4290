"""The metrics of a MaxEnt-GRPO step, from the objects that its training loop has.

Their classes are not imported: `payload` is MaxEnt-GRPO's `TrainingMetricsPayload`, `reward_comp` its
`RewardComputation`. Missing attributes are ignored.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from otel_rl.stats import groups, statistics

if TYPE_CHECKING:
    from collections.abc import Mapping

_RUN = ("git_sha", "recipe_path", "method_name", "method_family", "method_backend", "method_slug")

_PATHS: dict[str, str] = {
    "train/loss": "loss_outputs.total_loss_scalar",
    "train/loss/total": "loss_outputs.total_loss_scalar",
    "train/objective/minimize": "loss_outputs.total_loss_scalar",
    "train/learning_rate": "scalars.current_lr",
    "train/epoch": "scalars.epoch_progress",
    "train/num_tokens": "scalars.num_input_tokens",
    "train/avg_completion_tokens": "scalars.avg_completion_tokens",
    "train/ref_logp_mean": "scalars.ref_logp_mean",
    "train/beta": "config.weighting.beta",
    "train/tau": "config.weighting.tau",
    "train/kl_coeff": "config.weighting.beta",
    "train/grad_norm": "scalars.grad_norm_scalar",
    "train/vllm_latency_ms": "scalars.vllm_latency_ms",
    "train/policy_entropy": "loss_outputs.policy_entropy_scalar",
    "train/loss/policy": "loss_outputs.policy_loss_scalar",
    "train/loss/kl": "loss_outputs.kl_loss_scalar",
    "train/loss/weighted_kl": "loss_outputs.weighted_kl_loss_scalar",
    "train/loss/clip": "loss_outputs.clip_loss_scalar",
    "train/completions/mean_length_sampled": "length_stats.mean_length",
    "train/completions/min_length_sampled": "length_stats.min_length",
    "train/completions/max_length_sampled": "length_stats.max_length",
    "train/completions/mean_length_terminated": "length_stats.mean_terminated",
    "train/completions/min_length_terminated": "length_stats.min_terminated",
    "train/completions/max_length_terminated": "length_stats.max_terminated",
    "train/reward": "reward_stats.reward_mean",
    "train/reward_std": "reward_stats.reward_std",
    "train/frac_reward_zero_std": "reward_stats.frac_zero_std",
    "train/q_entropy_mean": "reward_stats.q_entropy_mean",
    "train/q_entropy_std": "reward_stats.q_entropy_std",
    "train/q_entropy_min": "reward_stats.q_entropy_min",
    "train/q_entropy_max": "reward_stats.q_entropy_max",
    "train/weight_entropy": "weight_stats.entropy",
    "train/weight_entropy_min": "weight_stats.entropy_min",
    "train/weight_entropy_max": "weight_stats.entropy_max",
    "train/advantage_entropy_mean": "weight_stats.advantage_entropy_mean",
    "train/advantage_entropy_std": "weight_stats.advantage_entropy_std",
    "train/weight_entropy_ema": "config.weighting._tau_entropy_ema",
    "train/weight_norm_denom": "config.weighting.denom",
    "train/q_temperature": "config.weighting.q_temperature",
    "train/q_epsilon": "config.weighting.q_epsilon",
    "train/tau_lr": "config.weighting.tau_lr",
    "train/tau_min": "config.weighting.tau_min",
    "train/tau_max": "config.weighting.tau_max",
    "train/tau_warmup_steps": "config.weighting.tau_warmup_steps",
    "train/kl_controller_target": "config.weighting.kl_target",
    "train/kl_controller_horizon": "config.weighting.kl_horizon",
    "train/kl_controller_step_size": "config.weighting.kl_ctl_step_size",
    "train/clip_ratio": "diagnostics.clip_ratio",
    "train/clip_ratio/low_mean": "diagnostics.clip_ratio_low_mean",
    "train/clip_ratio/low_min": "diagnostics.clip_ratio_low_min",
    "train/clip_ratio/high_mean": "diagnostics.clip_ratio_high_mean",
    "train/clip_ratio/high_max": "diagnostics.clip_ratio_high_max",
    "train/clip_ratio/region_mean": "diagnostics.clip_ratio_region_mean",
    "train/kl": "diagnostics.kl_value",
}
_FAMILIES: dict[str, str] = {
    "train/rewards/{}/mean": "reward_stats.per_reward.mean",
    "train/rewards/{}/std": "reward_stats.per_reward.std",
    "train/kl_per_token_bucket/{}": "diagnostics.kl_per_token_by_len_bucket",
    "train/kl_per_token_bucket_tokens/{}": "diagnostics.kl_token_count_by_len_bucket",
    "train/completions/diversity/{}": "diagnostics.diversity",
    "train/seed_grpo/{}": "seed_metrics",
}
_WEIGHTING_ALIASES = (
    *("tau", "beta", "weight_norm_denom", "q_temperature", "q_epsilon", "tau_lr", "tau_min", "tau_max"),
    *("tau_warmup_steps", "tau_log", "tau_target_entropy", "tau_schedule_active", "tau_loss"),
    *("delta_tau", "delta_tau_abs", "delta_beta", "delta_beta_abs"),
)


class RewardView(msgspec.Struct, frozen=True):
    """Statistics of the rewards of one rank; the names are MaxEnt-GRPO's.

    Attributes:
        reward_mean: Mean of the total rewards.
        reward_std: Their standard deviation, of the population.
        frac_zero_std: Part of the groups without any advantage.
        advantage_mean: Mean of the advantages.
        advantage_std: Their standard deviation, of the population.
        advantage_count: How many there are.
        per_reward: Mean and deviation of each component.
        q_entropy_mean: Mean over groups of the entropy of q.
        q_entropy_std: Its deviation over groups.
        q_entropy_min: Its minimum.
        q_entropy_max: Its maximum.
    """

    reward_mean: float = 0.0
    reward_std: float = 0.0
    frac_zero_std: float = 0.0
    advantage_mean: float = 0.0
    advantage_std: float = 0.0
    advantage_count: int = 0
    per_reward: dict[str, dict[str, float]] = {}
    q_entropy_mean: float = 0.0
    q_entropy_std: float = 0.0
    q_entropy_min: float = 0.0
    q_entropy_max: float = 0.0


class WeightView(msgspec.Struct, frozen=True):
    """Statistics of the weights of one rank; the names are MaxEnt-GRPO's, entropies are in nats."""

    entropy: float = 0.0
    entropy_min: float = 0.0
    entropy_max: float = 0.0
    advantage_entropy_mean: float = 0.0
    advantage_entropy_std: float = 0.0


def summarize_reward_stats(accelerator: object, reward_comp: Any, *, log_like_grpo: bool = False) -> RewardView:
    """Return the statistics of this rank's rewards; all 0 for `None`.

    `accelerator` is not used: nothing is gathered. The agent pools the `reward_samples` of all ranks.
    """
    if reward_comp is None:
        return RewardView()
    mean, std = groups.mean_and_std(_list(reward_comp, "total_utils"))
    advantages = _list(reward_comp, "advantage_samples")
    advantage_mean, advantage_std = groups.mean_and_std(advantages)
    entropies = [groups.entropy(group) for group in _list(reward_comp, "q_grouped") if len(group)]
    q_mean, q_std = groups.mean_and_std(entropies)
    components = {name: groups.mean_and_std(values) for name, values in _components(reward_comp).items()}
    return RewardView(
        reward_mean=mean,
        reward_std=std,
        frac_zero_std=groups.zero_variance(_at(reward_comp, "advantage.grouped") or []).value or 0.0,
        advantage_mean=advantage_mean,
        advantage_std=advantage_std,
        advantage_count=len(advantages),
        per_reward={name: {"mean": m, "std": s} for name, (m, s) in components.items()},
        q_entropy_mean=q_mean,
        q_entropy_std=q_std,
        q_entropy_min=min(entropies, default=0.0),
        q_entropy_max=max(entropies, default=0.0),
    )


def summarize_weight_stats(accelerator: object, weight_stats: Any, *, log_like_grpo: bool = False) -> WeightView:
    """Return the statistics of this rank's weights; all 0 for `None`. Nothing is gathered."""
    mean, std = groups.mean_and_std(_list(weight_stats, "advantage_entropy"))
    entropy = float(_at(weight_stats, "weight_entropy") or 0.0)
    return WeightView(
        entropy=entropy,
        entropy_min=float(_at(weight_stats, "weight_entropy_min") or 0.0),
        entropy_max=float(_at(weight_stats, "weight_entropy_max") or 0.0),
        advantage_entropy_mean=mean,
        advantage_entropy_std=std,
    )


def reward_samples(reward_comp: Any) -> dict[str, list[float]]:
    """Return the rewards as observations. The tags of the names are the statistics over all ranks.

    `train/reward_std@std` is the deviation over all ranks' observations. A mean of the ranks' deviations would be
    wrong.
    """
    named = {"train/reward": _list(reward_comp, "total_utils")} if reward_comp is not None else {}
    found: dict[str, list[float]] = {}
    for name, values in named.items():
        found |= {f"{name}@mean": values, f"{name}_std@std": values}
        found |= {f"{name}_{statistics.quantile_key(q)}@{statistics.quantile_key(q)}": values for q in groups.QUANTILES}
    for component, values in (_components(reward_comp) if reward_comp is not None else {}).items():
        keys = ("mean", "std", *map(statistics.quantile_key, groups.QUANTILES))
        found |= {f"train/rewards/{component}/{key}@{key}": values for key in keys}
    return {name: values for name, values in found.items() if len(values)}


def build_training_metrics_dict(payload: Any, global_step: int) -> dict[str, Any]:
    """Return all metrics of a step by name, without those that the payload does not have.

    Unlike in MaxEnt-GRPO, a loss or divergence for each token may be negative, as it is.
    """
    metrics: dict[str, Any] = {f"run/{name}": value for name in _RUN if (value := _at(payload, f"run.{name}"))}
    for name, path in _PATHS.items():
        if (value := _at(payload, path)) is not None:
            metrics[name] = value
    for pattern, path in _FAMILIES.items():
        metrics |= {pattern.format(key): value for key, value in _members(payload, path).items()}
    metrics["train/global_step"] = float(global_step)
    metrics |= _computed(payload, metrics, global_step)
    metrics |= _entropy_bonus(payload, metrics)
    metrics.setdefault("train/kl", metrics.get("train/loss/kl", 0.0))
    metrics |= {f"train/weighting/{a}": metrics[f"train/{a}"] for a in _WEIGHTING_ALIASES if f"train/{a}" in metrics}
    controller = ("target", "horizon", "step_size", "enabled")
    return metrics | {
        f"train/kl_controller/{name}": metrics[f"train/kl_controller_{name}"]
        for name in controller
        if f"train/kl_controller_{name}" in metrics
    }


def _computed(payload: Any, metrics: Mapping[str, Any], step: int) -> dict[str, Any]:
    """Return the metrics that are computed from the payload."""
    weighting = _at(payload, "config.weighting")
    meta = _at(weighting, "controller_meta")
    meta_on = bool(_at(meta, "enabled"))
    target, kl_target = _at(weighting, "tau_target_entropy"), _at(weighting, "kl_target") or 0.0
    warmup = _at(weighting, "tau_warmup_steps") or 0
    steered = (
        kl_target > 0 and (_at(weighting, "kl_horizon") or 0) > 0 and (_at(weighting, "kl_ctl_step_size") or 0) > 0
    )
    tokens = _at(payload, "scalars.num_completion_tokens") or 0.0
    tau, beta = float(_at(weighting, "tau") or 0.0), float(_at(weighting, "beta") or 0.0)
    delta_tau = tau - float(_or(_at(weighting, "_prev_tau"), tau))
    delta_beta = beta - float(_or(_at(weighting, "_prev_beta"), beta))
    kl = _or(_at(payload, "diagnostics.kl_value"), _at(payload, "loss_outputs.kl_loss_scalar"))
    plain = bool(_at(weighting, "train_grpo_objective"))
    found: dict[str, Any] = {
        "train/objective/maximize": -metrics["train/loss"] if "train/loss" in metrics else None,
        "train/grpo_objective": float(plain),
        "train/maxent_objective": float(not plain),
        "train/kl_per_completion_token": groups.per_token(metrics.get("train/loss/kl", 0.0), tokens),
        "train/loss_per_completion_token": groups.per_token(metrics.get("train/loss", 0.0), tokens),
        "train/completions/clipped_frac": _clamped(_at(payload, "length_stats.clipped_ratio")),
        "train/tau_log": _or(_at(weighting, "_tau_log"), math.log(max(tau, 1e-8))),
        "train/tau_target_entropy": _or(target, 0.0),
        "train/tau_target_enabled": float(target is not None),
        "train/tau_schedule_active": float(not meta_on and target is not None and step > max(0, warmup)),
        "train/kl_controller_enabled": float(not meta_on and steered),
        "train/len_norm_ref": float(bool(_at(weighting, "len_norm_ref"))),
        "train/delta_tau": delta_tau,
        "train/delta_tau_abs": abs(delta_tau),
        "train/delta_beta": delta_beta,
        "train/delta_beta_abs": abs(delta_beta),
        "train/kl_error_to_target": kl - kl_target if kl is not None and kl_target > 0 else None,
        "train/kl_ratio_to_target": kl / max(kl_target, 1e-8) if kl is not None and kl_target > 0 else None,
    }
    if target is not None and "train/weight_entropy" in metrics:
        error = metrics["train/weight_entropy"] - float(target)
        found |= {"train/weight_entropy_error": error, "train/weight_entropy_abs_error": abs(error)}
        found["train/tau_loss"] = 0.5 * error * error
    found |= _meta(weighting, meta, meta_on)
    return {name: value for name, value in found.items() if value is not None}


def _meta(weighting: Any, meta: Any, enabled: bool) -> dict[str, float]:
    tau, beta = (float(_at(weighting, f"_meta_last_{name}_grad") or 0.0) for name in ("tau", "beta"))
    return {
        "train/meta/enabled": float(enabled),
        "train/meta/lr": float(_at(meta, "learning_rate") or 0.0),
        "train/meta/update_interval": float(_at(meta, "update_interval") or 0.0),
        "train/meta/truncation_steps": float(_or(_at(meta, "truncation_steps"), _at(meta, "analytic_steps")) or 0.0),
        "train/meta/use_hessian": float(bool(_at(meta, "use_hessian"))),
        "train/meta/tau_grad": tau,
        "train/meta/beta_grad": beta,
        "train/meta/grad_norm": math.hypot(tau, beta),
        "train/meta/loss": float(_at(weighting, "_meta_last_loss") or 0.0),
        "train/meta/tau_projected": float(bool(_at(weighting, "_meta_tau_projected"))),
        "train/meta/beta_projected": float(bool(_at(weighting, "_meta_beta_projected"))),
    }


def _entropy_bonus(payload: Any, metrics: Mapping[str, Any]) -> dict[str, float]:
    bonus = metrics.get("train/rewards/entropy_bonus/mean")
    if bonus is None or "train/reward" not in metrics:
        return {}
    of = groups.entropy_bonus(metrics["train/reward"], bonus)
    return {
        "train/reward_without_entropy_bonus": of.without,
        "train/reward_with_entropy_bonus": metrics["train/reward"],
        "train/entropy_bonus_mean": bonus,
        "train/entropy_bonus_frac_of_base": of.of_base,
        "train/entropy_bonus_frac_of_total": of.of_total,
    }


def _at(owner: Any, path: str) -> Any:
    """Return the value at a path of attributes or keys, or `None`."""
    for name in path.split("."):
        owner = owner.get(name) if isinstance(owner, dict) else getattr(owner, name, None)
    return owner


def _members(payload: Any, path: str) -> dict[str, Any]:
    """Return a mapping at a path; if the last component is not an attribute, it is read from each member."""
    found = _at(payload, path)
    if isinstance(found, dict):
        return dict(sorted(found.items()))
    head, _, field = path.rpartition(".")
    members = _at(payload, head) if head else None
    if not isinstance(members, dict):
        return {}
    return {key: value for key, member in members.items() if (value := _at(member, field)) is not None}


def _components(reward_comp: Any) -> dict[str, list[float]]:
    found = _at(reward_comp, "per_reward_values") or {}
    return {name: [float(value) for value in values] for name, values in found.items()}


def _list(owner: Any, name: str) -> list[Any]:
    return list(_or(_at(owner, name), ()))


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _clamped(ratio: float | None) -> float | None:
    return None if ratio is None else groups.clipped_fraction(ratio, 1.0)
