"""MaxEnt-GRPO, both generations: `oat_drgrpo`, and the package `maxent_grpo` before it.

The learner of `oat_drgrpo` and its methods are recorded. The trainer of `maxent_grpo` is TRL's, so
`otel_rl.frameworks.trl` records it; loops that call `maxent_grpo.training.metrics` are recorded here. This module has
the names of that one, for use without `otel-rl run`. They are the package's own functions.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.frameworks.charted import numbers
from otel_rl.frameworks.instrument import instrument
from otel_rl.frameworks.maxent_grpo_slim import chosen_rows
from otel_rl.frameworks.patches import harmless
from otel_rl.frameworks.recording import Recordings
from otel_rl.frameworks.timers import Timers, attribute_of_self
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.trainer.current import turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.frameworks.patches import Patches

logger = log_of("otel_rl")
_CLAMPED = {"loss": "total_loss_scalar", "kl": "kl_loss_scalar"}
"""Values for each token, which the framework raises to 0, and where the values for all tokens are."""
_TABLE = "rich_completions"
_LEARNER = "ZeroMathRunMixin"
_PHASES = (
    *("process_feedback_data", "_pre_learning", "learn", "_post_learning", "sync_params_to_actors", "evaluate"),
    *("collector.collect_feedback", "eval_and_log", "strategy.save_model", "strategy.save_ckpt"),
)


def __getattr__(name: str) -> Any:
    """Return a function of `maxent_grpo.training.metrics`, hooked."""
    # An import looks for `__path__`, which must not load the framework (hooks/test_maxent_grpo.py).
    if name.startswith("__"):
        raise AttributeError(name)
    instrument("maxent_grpo")
    return getattr(import_module("maxent_grpo.training.metrics"), name)


def patch_metrics(module: Any, patches: Patches) -> None:
    """Record the metrics of each step, and the table of completions."""
    keys = [_TABLE]

    def build(function: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        metrics = function(*args, **kwargs)
        with harmless("build_training_metrics_dict"):
            given = dict(zip(("payload", "global_step"), args, strict=False)) | kwargs
            _run().log(numbers(metrics) | _for_each_token(given["payload"]), step=given["global_step"])
        return metrics

    def name(_: Any, given: dict[str, Any]) -> None:
        key = getattr(getattr(given["ctx"], "training_args", None), "rich_log_completions_key", None)
        keys[:] = [str(key or "").strip() or _TABLE]

    def table(function: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        columns, rows = function(*args, **kwargs)
        with harmless("completions"):
            step = kwargs["step"] if "step" in kwargs else args[1]
            _run().table(keys[0], [dict(zip(columns, row, strict=True)) for row in rows], step=step)
        return columns, rows

    patches.wrap(module, "build_training_metrics_dict", build)
    patches.observe(module, "_log_sample_table", ("ctx",), name, first=True)
    patches.wrap(module, "_build_sample_table", table)


def patch_evaluation(module: Any, patches: Patches) -> None:
    """Record what `run_validation_step` logs."""

    def log(_: Any, given: dict[str, Any]) -> None:
        _run().log(numbers(given["metrics"]), step=given["step"])

    patches.observe(module, "_log_wandb", ("run", "metrics", "step"), log)


def warn_of_wandb(module: Any, patches: Patches) -> None:
    """Say how the evaluation that logs to W&B alone is recorded."""
    logger.warning("maxent_grpo logs paper_eval/* to W&B alone; to record it: otel-rl run --capture wandb")


def patch_learner(module: Any, patches: Patches) -> None:
    """Record the steps, the phases and the values of `oat_drgrpo`'s learner."""
    recordings = Recordings()
    timers = Timers("step", attribute_of_self("steps"), before=None)

    def begin(learner: Any, _: dict[str, Any]) -> None:
        options = {"project": learner.args.wb_project, "name": learner._wandb_run_name}
        recordings.begin(learner, vars(learner.args), dialect="oat_drgrpo", **options)
        for path in _PHASES:
            timers.hook_method(patches, learner, path)

    def log(learner: Any, given: dict[str, Any]) -> None:
        recordings.log(learner, given["logs_dict"], learner.steps)

    def end(learner: Any, _: dict[str, Any]) -> None:
        recordings.finish(learner)

    patches.observe(module, f"{_LEARNER}._init_wandb", (), begin, first=True)
    patches.observe(module, f"{_LEARNER}._append_train_metrics_jsonl", ("logs_dict",), log)
    patches.observe(module, f"{_LEARNER}.run", (), end)


def _run() -> otel_rl.Run:
    with turn():
        return otel_rl.current() or otel_rl.init(dialect="maxent_grpo", **chosen_rows())


def _for_each_token(payload: Any) -> dict[str, float]:
    """Return the loss and the divergence for each completion token, which may be negative."""
    tokens = payload.scalars.num_completion_tokens
    totals = {name: getattr(payload.loss_outputs, path, None) for name, path in _CLAMPED.items()}
    return {f"train/{n}_per_completion_token": v / tokens for n, v in totals.items() if v is not None and tokens > 0}
