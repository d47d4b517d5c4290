"""MaxEnt-GRPO's slim mode: `rows={"metrics": slim}` leaves out repeated metrics and those of disabled features."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

Number = int | float

_DROPPED_SUBTREES = (
    "train/weighting/",
    "train/kl_controller/",
    "train/kl_per_token_bucket/",
    "train/kl_per_token_bucket_tokens/",
    "train/clip_ratio/",
)
_DROPPED = frozenset(
    f"train/{name}"
    for name in (
        *("loss/total", "objective/minimize", "objective/maximize", "kl_coeff", "grpo_objective", "maxent_objective"),
        *("len_norm_ref", "weight_norm_denom", "tau_log", "delta_tau_abs", "delta_beta_abs"),
    )
)
_COMPLETIONS = "train/completions/"
_KEPT_COMPLETIONS = frozenset(
    f"{_COMPLETIONS}{name}"
    for name in (
        *("mean_length_sampled", "mean_length_terminated", "clipped_frac"),
        *("diversity/jaccard", "diversity/jaccard_micro", "diversity/distinct_1", "diversity/distinct_2"),
        *("diversity/distinct_1_micro", "diversity/distinct_2_micro"),
    )
)
_QUANTILE = re.compile(r"train/(?:reward_|rewards/.+/)(p\d+)")
_KEPT_QUANTILES = ("p05", "p50", "p95")
_COMPONENT_MEAN = re.compile(r"train/rewards/(.+)/mean")
_ENTROPY_BONUS = re.compile(r"train/(?:.*/)?(?:\w+_)?entropy_bonus(?:_\w+)?(?:/.*)?")
_WEIGHT_ENTROPY = re.compile(r"train/(?:weight_entropy|advantage_entropy)(?:_\w+)?")
_TAU = re.compile(r"train/tau(?:_\w+)?")
_ENTROPY_DETAILS = re.compile(r"train/(?:weight_entropy_(?:min|max|ema)|q_entropy_(?:min|max))")


def slim(values: Mapping[str, Number]) -> dict[str, Number]:
    """Return the values without repeated metrics and those of disabled features."""
    components = [match[1] for name in values if (match := _COMPONENT_MEAN.fullmatch(name))]
    only = f"train/rewards/{components[0]}/" if len(components) == 1 else None
    if only is not None and values[f"{only}mean"] != values.get("train/reward"):
        only = None
    absent = _switched_off(values)
    return {
        name: value
        for name, value in values.items()
        if name not in _DROPPED
        and not name.startswith(_DROPPED_SUBTREES)
        and (not name.startswith(_COMPLETIONS) or name in _KEPT_COMPLETIONS)
        and ((quantile := _QUANTILE.fullmatch(name)) is None or quantile[1] in _KEPT_QUANTILES)
        and (only is None or not name.startswith(only))
        and not any(pattern.fullmatch(name) for pattern in absent)
    }


def _switched_off(values: Mapping[str, Number]) -> list[re.Pattern[str]]:
    """Return patterns of the metrics of disabled features, which the values of other metrics show."""
    absent: list[re.Pattern[str]] = []
    if values.get("train/meta/enabled") == 0:
        absent.append(re.compile(r"train/meta/.*"))
    if not values.get("train/entropy_bonus_coef"):
        absent.append(_ENTROPY_BONUS)
    if values.get("train/maxent_objective") == 0:
        absent.append(_WEIGHT_ENTROPY)
        if not values.get("train/tau"):
            absent.append(_TAU)
    else:
        absent.append(_ENTROPY_DETAILS)
    return absent


def from_mode(text: str) -> object:
    """Return what `rows.metrics` takes for a mode of MaxEnt-GRPO, such as "compact"; `None` for an unknown mode."""
    word = text.strip().lower()
    if word in ("", "full", "all", "default"):
        return "full"
    return slim if word in ("slim", "compact", "minimal", "lite") else None
