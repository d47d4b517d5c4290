"""Chooses the metrics of rows that trackers get."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Number = int | float

_MOST_REMEMBERED = 20_000


class Filter:
    """Chooses metrics by their names.

    Args:
        chosen: `"full"`; `"slim"`, which is MaxEnt-GRPO's slim mode; or name patterns, of which the last one that
            matches decides. A pattern after a `!` excludes; if the first pattern excludes, all other metrics
            are chosen.
    """

    def __init__(self, chosen: str | Sequence[str] = "full") -> None:
        mode = from_mode(chosen) if isinstance(chosen, str) else ""
        self._slim = mode == "slim"
        patterns = () if mode else (chosen,) if isinstance(chosen, str) else tuple(chosen)
        self._rules = [(not p.startswith("!"), re.compile(fnmatch.translate(p.removeprefix("!")))) for p in patterns]
        self._default = not self._rules or not self._rules[0][0]
        self._decided: dict[str, bool] = {}

    def select(self, values: Mapping[str, Number]) -> dict[str, Number]:
        """Return the chosen values."""
        if self._slim:
            return _slim(values)
        if not self._rules:
            return dict(values)
        return {name: value for name, value in values.items() if self._is_chosen(name)}

    def _is_chosen(self, name: str) -> bool:
        chosen = self._decided.get(name)
        if chosen is None:
            said = [includes for includes, pattern in self._rules if pattern.fullmatch(name)]
            chosen = said[-1] if said else self._default
            if len(self._decided) < _MOST_REMEMBERED:
                self._decided[name] = chosen
        return chosen


def from_mode(text: str) -> str:
    """Return "full" or "slim" for what MaxEnt-GRPO's users write for them, and "" for any other text."""
    word = text.strip().lower()
    if word in ("", "full", "all", "default"):
        return "full"
    return "slim" if word in ("slim", "compact", "minimal", "lite") else ""


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
        *("q_entropy_min", "q_entropy_max"),
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
_WEIGHT_ENTROPY_DETAILS = frozenset(f"train/weight_entropy_{name}" for name in ("min", "max", "ema"))


def _slim(values: Mapping[str, Number]) -> dict[str, Number]:
    """Leave out what says the same twice, or belongs to what is switched off."""
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
    """Return the patterns of metrics that mean nothing, as the values of others tell."""
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
        absent.append(re.compile("|".join(map(re.escape, _WEIGHT_ENTROPY_DETAILS))))
    return absent
