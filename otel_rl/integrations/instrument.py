"""Instrumenting frameworks without a line in the trainer: which there are, and where they are hooked into.

`otel-rl run -- python train.py …` and `opentelemetry-instrument python train.py …` call this before the trainer begins;
in code it is `otel_rl.integrations.instrument.instrument("trl")`. A framework is touched when it is imported, never
imported for it.
"""

from __future__ import annotations

import importlib
import logging
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple

from otel_rl.integrations.patches import Patches, harmless
from otel_rl.setup.settings import CAPTURE_VARIABLE, INSTRUMENT_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

logger = logging.getLogger("otel_rl")


class Framework(NamedTuple):
    """A package that can be instrumented.

    Attributes:
        distribution: Its name on PyPI.
        tested: The versions that were tried, as a specifier; empty where it is on no package index.
        hooks: What is called when a module of it is imported, as `module:function`; it gets the module and `Patches`.
    """

    distribution: str
    tested: str
    hooks: Mapping[str, str]


_HERE = "otel_rl.integrations"
FRAMEWORKS: dict[str, Framework] = {
    "transformers": Framework("transformers", ">=5,<6", {"transformers.trainer": f"{_HERE}.trl:patch_trainer"}),
    "trl": Framework("trl", ">=1.0,<2", {"trl.extras.profiling": f"{_HERE}.trl:patch_profiling"}),
    "verl": Framework(
        "verl",
        ">=0.9,<0.10",
        {
            "verl.utils.tracking": f"{_HERE}.verl:patch_tracking",
            "verl.utils.profiler.performance": f"{_HERE}.verl:patch_timers",
            "verl.utils.profiler.nvtx_profile": f"{_HERE}.verl:patch_timers",
            "verl.utils.profiler.mstx_profile": f"{_HERE}.verl:patch_timers",
        },
    ),
    "skyrl": Framework(
        "skyrl",
        ">=0.3,<0.4",
        {
            "skyrl.train.utils.tracking": f"{_HERE}.skyrl:patch_tracking",
            "skyrl.train.utils.utils": f"{_HERE}.skyrl:patch_timer",
        },
    ),
    "openrlhf": Framework(
        "openrlhf",
        ">=0.11,<0.12",
        {
            "openrlhf.utils.logging_utils": f"{_HERE}.openrlhf:patch",
            "openrlhf.trainer.ppo_trainer": f"{_HERE}.openrlhf:patch_trainer",
        },
    ),
    "roll": Framework("roll", "", {"roll.utils.tracking": f"{_HERE}.roll:patch"}),
    "nemo_rl": Framework(
        "nemo-rl",
        "",
        {"nemo_rl.utils.logger": f"{_HERE}.nemo_rl:patch", "nemo_rl.utils.timer": f"{_HERE}.nemo_rl:patch_timer"},
    ),
    "trinity": Framework("trinity-rft", ">=0.6,<0.7", {"trinity.utils.monitor": f"{_HERE}.trinity:register"}),
    "accelerate": Framework("accelerate", ">=1.0,<2", {"accelerate.accelerator": f"{_HERE}.accelerate:patch"}),
}
"""What can be instrumented, by the name in `OTEL_RL_INSTRUMENT`."""

TRACKERS: dict[str, Framework] = {
    "wandb": Framework("wandb", ">=0.19,<1", {"wandb.sdk.wandb_run": f"{_HERE}.capture:patch_wandb"}),
    "tensorboard": Framework(
        "tensorboard",
        ">=2.16,<3",
        {
            "torch.utils.tensorboard.writer": f"{_HERE}.capture:patch_summary_writer",
            "tensorboardX.writer": f"{_HERE}.capture:patch_summary_writer",
        },
    ),
    "mlflow": Framework("mlflow", ">=3.1,<4", {"mlflow.tracking.client": f"{_HERE}.capture:patch_mlflow"}),
    "swanlab": Framework("swanlab", ">=0.10,<0.11", {"swanlab.sdk.internal.run": f"{_HERE}.capture:patch_swanlab"}),
}
"""What can be captured, by the name in `OTEL_RL_CAPTURE`."""

_active: dict[str, Patches] = {}


def instrument(*names: str) -> None:
    """Instrument frameworks, all that there are by default; those that are instrumented already stay so.

    Raises:
        ValueError: There is no framework of a name.
    """
    _hook_all(FRAMEWORKS, names or tuple(FRAMEWORKS))


def capture(*names: str) -> None:
    """Record what goes to trackers, too.

    Raises:
        ValueError: There is no tracker of a name.
    """
    _hook_all(TRACKERS, names)


def from_environment(environ: Mapping[str, str]) -> None:
    """Instrument and capture what the variables name, with commas between, "all" for all frameworks.

    A wrong name is logged: at the start of a process nobody is there to catch it.
    """
    for variable, call in ((INSTRUMENT_VARIABLE, instrument), (CAPTURE_VARIABLE, capture)):
        names = [name.strip() for name in environ.get(variable, "").split(",") if name.strip()]
        if names:
            try:
                call(*(() if names == ["all"] else names))
            except ValueError as error:
                logger.warning("%s: %s", variable, error)


def _hook_all(known: Mapping[str, Framework], names: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{name!r} is not among {', '.join(known)}")
        if name not in _active:
            _active[name] = hook(known[name])


def uninstrument(*names: str) -> None:
    """Take the hooks out again, all by default."""
    for name in names or tuple(_active):
        if (patches := _active.pop(name, None)) is not None:
            patches.undo()


def instrumented() -> Iterable[str]:
    """Return the names of what is instrumented."""
    return tuple(_active)


def hook(framework: Framework) -> Patches:
    """Hook into a framework as soon as it is imported; at once if it was."""
    import wrapt  # where something is instrumented

    patches = Patches()

    def hook_into(module: Any) -> None:
        with harmless(f"instrumenting {module.__name__}"):
            if patches.active:
                _check_version(framework)
                place, _, function = framework.hooks[module.__name__].partition(":")
                getattr(importlib.import_module(place), function)(module, patches)

    for module in framework.hooks:
        wrapt.register_post_import_hook(hook_into, module)
    return patches


def _check_version(framework: Framework) -> None:
    """Warn about a version that was not tried; it is instrumented as well as may be."""
    from packaging.specifiers import SpecifierSet

    try:
        version = metadata.version(framework.distribution)
    except metadata.PackageNotFoundError:
        return
    if not SpecifierSet(framework.tested).contains(version, prereleases=True) and framework not in _warned:
        _warned.append(framework)
        logger.warning(
            "%s %s was not tried with this version of otel-rl (%s was); it is recorded as far as its shape is the same",
            framework.distribution,
            version,
            framework.tested,
        )


_warned: list[Framework] = []
