"""The frameworks that have a dialect, and the modules that tell them; light, since `init` asks in the trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

FRAMEWORKS: dict[str, tuple[str, ...]] = {
    "maxent_grpo": ("maxent_grpo",),
    "nemo_lens": ("nemo.lens", "nemo_lens"),
    "nemo_rl": ("nemo_rl",),
    "openrlhf": ("openrlhf",),
    "roll": ("roll",),
    "skyrl": ("skyrl_train", "skyrl"),
    "trinity": ("trinity",),
    "trl": ("trl",),
    "tunix": ("tunix",),
    "verl": ("verl",),
}
_BUILT_ON = {"trinity": "verl", "maxent_grpo": "trl", "nemo_rl": "nemo_lens"}
"""Frameworks that import another one, whose names they then log in their own way."""


def imported(modules: Container[str]) -> str | None:
    """Return the one framework whose modules are imported; `None` if there is none, or several."""
    found = [name for name, signs in FRAMEWORKS.items() if any(sign in modules for sign in signs)]
    below = {_BUILT_ON.get(name) for name in found}
    on_top = [name for name in found if name not in below]
    return on_top[0] if len(on_top) == 1 else None
