"""MaxEnt-GRPO's slim mode: `rows={"metrics": slim}` leaves out repeated metrics and those of disabled features.

`MAXENT_WANDB_METRICS_MODE` or `MAXENT_METRICS_MODE` chooses it too, where the framework's hooks begin the run.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from otel_rl.recorder.settings.loading import set_outside

if TYPE_CHECKING:
    from collections.abc import Mapping

Number = int | float
_ALWAYS = (
    r"train/(?:weighting|kl_controller|kl_per_token_bucket|kl_per_token_bucket_tokens|clip_ratio)/.*",
    r"train/(?:loss/total|objective/minimize|objective/maximize|kl_coeff|grpo_objective|maxent_objective)",
    r"train/(?:len_norm_ref|weight_norm_denom|tau_log|delta_tau_abs|delta_beta_abs)",
    r"train/completions/(?!(?:mean_length_sampled|mean_length_terminated|clipped_frac)$|diversity/).*",
    r"train/completions/diversity/(?!(?:jaccard|distinct_1|distinct_2)(?:_micro)?$).*",
    r"train/(?:reward_|rewards/.+/)p(?!(?:05|50|95)$)\d+",
)
_META = r"train/meta/.*"
_ENTROPY_BONUS = r"train/(?:.*/)?(?:\w+_)?entropy_bonus(?:_\w+)?(?:/.*)?"
_WEIGHT_ENTROPY = r"train/(?:weight_entropy|advantage_entropy)(?:_\w+)?"
_ENTROPY_DETAILS = r"train/(?:weight_entropy_(?:min|max|ema)|q_entropy_(?:min|max))"
_TAU = r"train/tau(?:_\w+)?"
_COMPONENT_MEAN = re.compile(r"train/rewards/(.+)/mean")


def slim(values: Mapping[str, Number]) -> dict[str, Number]:
    """Return the values without repeated metrics and those of disabled features, which other metrics show."""
    dropped = list(_ALWAYS)
    components = [match[1] for name in values if (match := _COMPONENT_MEAN.fullmatch(name))]
    if len(components) == 1 and values[f"train/rewards/{components[0]}/mean"] == values.get("train/reward"):
        dropped.append(re.escape(f"train/rewards/{components[0]}/") + ".*")
    if values.get("train/meta/enabled") == 0:
        dropped.append(_META)
    if not values.get("train/entropy_bonus_coef"):
        dropped.append(_ENTROPY_BONUS)
    if values.get("train/maxent_objective") != 0:
        dropped.append(_ENTROPY_DETAILS)
    else:
        dropped += [_WEIGHT_ENTROPY] if values.get("train/tau") else [_WEIGHT_ENTROPY, _TAU]
    pattern = re.compile("|".join(dropped))
    return {name: value for name, value in values.items() if not pattern.fullmatch(name)}


def from_mode(text: str) -> object:
    """Return what `rows.metrics` takes for a mode of MaxEnt-GRPO, such as "compact"; `None` for an unknown mode."""
    word = text.strip().lower()
    if word in ("", "full", "all", "default"):
        return "full"
    return slim if word in ("slim", "compact", "minimal", "lite") else None


def chosen_rows() -> dict[str, Any]:
    """Return `rows` of `otel_rl.init` for the mode that MaxEnt-GRPO's variables set, unless the user's settings do.

    Raises:
        SettingsError: The environment or the file has an unknown setting.
    """
    text = os.environ.get("MAXENT_WANDB_METRICS_MODE") or os.environ.get("MAXENT_METRICS_MODE", "")
    return {"rows": {"metrics": slim}} if from_mode(text) is slim and "rows.metrics" not in set_outside() else {}
