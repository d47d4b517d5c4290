"""Tunix: one more backend of its own logger, which records.

    from otel_rl.frameworks.tunix import MetricsLogger, MetricsLoggerOptions  # not tunix.sft.metrics_logger

They are Tunix's own classes: TensorBoard, W&B and custom backends get the same values at the same time. The options
create one more backend. They also accept `backend_factories=[…]`, the list of `backend_kwargs={"custom_backend": […]}`.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from typing import TYPE_CHECKING, Any

import jax
from tunix.sft import metrics_logger

from otel_rl.frameworks.metrax import LoggingBackend
from otel_rl.frameworks.patches import Patches
from otel_rl.frameworks.recording import unless_set
from otel_rl.frameworks.rollouts import ScoredRollout, record, run_with_texts
from otel_rl.frameworks.timers import Timers
from otel_rl.recorder.settings.loading import set_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["LoggingBackend", "MetricsLogger", "MetricsLoggerOptions", "Mode"]
MetricsLogger = metrics_logger.MetricsLogger
Mode = metrics_logger.Mode
_METHODS = {
    "tunix.sft.peft_trainer:PeftTrainer._run_eval": "evaluate",
    "tunix.sft.peft_trainer:PeftTrainer._write_train_metrics": "log_metrics",
    "tunix.sft.checkpoint_manager:CheckpointManager.save": "save_checkpoint",
    "tunix.sft.inflight_throttler:InflightThrottler.wait_for_next": "wait_for_device",
    "tunix.sft.inflight_throttler:InflightThrottler.wait_for_all": "wait_for_device",
}
"""Methods that are phases."""
_TRACERS = {"tunix.perf.trace": "span_group", "tunix.perf.experimental.tracer": "span"}
"""The method of each performance tracer that is recorded. Each span of the first is a span of the second too."""

_GENERATED, _REWARDS = "_otel_rl_generated", "_otel_rl_rewards"


@dataclasses.dataclass
class MetricsLoggerOptions(metrics_logger.MetricsLoggerOptions):  # type: ignore[misc] # mypy does not read Tunix's types
    """Tunix's options, which also create a backend that records."""

    backend_factories: list[Callable[[], Any]] = dataclasses.field(default_factory=list)
    """Factories of backends, instead of TensorBoard and W&B."""

    def create_backends(self) -> list[Any]:
        """Return Tunix's backends and one that records, on the main process."""
        own = self
        if self.backend_factories:
            custom = [*self.backend_factories, *self.backend_kwargs.get("custom_backend", ())]
            own = copy.copy(self)
            own.backend_kwargs = {**self.backend_kwargs, "custom_backend": custom}
        backends: list[Any] = super(MetricsLoggerOptions, own).create_backends()
        if recorders := _recorders(self, backends):
            _hook_timers(Patches())
        return backends + recorders


def patch(module: Any, patches: Patches) -> None:
    """Add a backend that records to every new logger, and record learners and trainers as steps and phases."""
    patches.observe(metrics_logger, "MetricsLogger.__init__", ("metrics_logger_options",), _begin, what="MetricsLogger")
    _hook_timers(patches)


def patch_cluster(module: Any, patches: Patches) -> None:
    """Keep what a cluster has generated last, until its learner has computed the advantages."""

    def generated(cluster: Any, given: dict[str, Any]) -> None:
        cluster.__dict__[_GENERATED] = given["return"]

    patches.observe(module, "RLCluster.generate", (), generated)


def patch_rewards(module: Any, patches: Patches) -> None:
    """Keep the rewards that a learner has computed last."""

    def rewarded(learner: Any, given: dict[str, Any]) -> None:
        learner.__dict__[_REWARDS] = given["return"]

    patches.observe(module, "RLLearner._compute_rewards", (), rewarded)


def patch_learner(module: Any, patches: Patches) -> None:
    """Record what a learner trains on, once it has computed the advantages."""

    def computed(learner: Any, given: dict[str, Any]) -> None:
        written = learner.rl_cluster.__dict__.pop(_GENERATED)
        rewards = learner.__dict__.pop(_REWARDS, [None] * len(written.text))
        run = run_with_texts()
        if run is not None and str(given.get("mode", Mode.TRAIN)) == str(Mode.TRAIN):
            prompts, advantages = given["training_input"]["prompts"], given["return"].advantages
            record(run, learner.rl_cluster.global_steps, _rollouts(prompts, written, rewards, advantages))

    for name in ("GRPOLearner", "PPOLearner"):
        if name in vars(module):
            method = f"{name}._generate_and_compute_advantage"
            patches.observe(module, method, ("training_input", "mode"), computed)


def _rollouts(prompts: Any, written: Any, rewards: Any, advantages: Any) -> list[ScoredRollout]:
    """Return trajectories. Advantages are read if there is one for each: Tunix has just computed them on the host."""
    of_each = advantages.tolist() if advantages.ndim == 1 else [None] * len(written.text)
    return [
        ScoredRollout(
            prompt=str(prompts[n]),
            completion=text,
            group="",
            tokens=written.tokens[n].tolist(),
            mask=[True] * len(written.tokens[n]),
            logprobs=None if written.logprobs is None else written.logprobs[n].tolist(),
            reward=rewards[n],
            advantage=of_each[n],
        )
        for n, text in enumerate(written.text)
    ]


def _hook_timers(patches: Patches) -> None:
    """Record learners and trainers as steps and phases, once for all that ask."""
    if any(patches_of.active for patches_of in _hooked):
        return
    _hooked.append(patches)
    for path, phase in _METHODS.items():
        owner, _, name = path.partition(":")
        _TIMERS.hook_method(patches, owner, name, phase)
    for tracer, method in _TRACERS.items():
        for name in ("NoopTracer", "PerfTracer"):
            _TIMERS.hook_context(patches, tracer, f"{name}.{method}")


def _begin(logger: Any, given: dict[str, Any]) -> None:
    for backend in _recorders(given.get("metrics_logger_options"), logger._backends):
        logger._backends.append(backend)
        jax.monitoring.register_scalar_listener(backend.log_scalar)


def _recorders(options: Any, backends: list[Any]) -> list[Any]:
    """Return a backend that records, if this is the main process and there is none yet."""
    if jax.process_index() != 0 or any(isinstance(backend, LoggingBackend) for backend in backends):
        return []
    if options is None:
        return [LoggingBackend()]
    # As Tunix names its runs of W&B; an id that the user gives is a name too.
    name = options.run_name or ("" if "id" in set_outside() else time.strftime("%Y-%m-%d_%H-%M-%S"))
    return [LoggingBackend(dir=options.log_dir, **unless_set(project=options.project_name, name=name))]


def _number_of_step(variables: Mapping[str, Any]) -> int:
    """Return the learner's global step, which its trainers know too, or the update that a trainer begins alone."""
    caller: Any = variables["self"]
    learner = getattr(caller, "rl_engine", None) or getattr(caller, "rl_cluster", None)
    number = variables.get("global_step") if learner is None else learner.global_steps
    return int(caller.train_steps + 1 if number is None else number)


_hooked: list[Patches] = []
"""The hooks of the timers; the last ones may have been removed again."""
_TIMERS = Timers("global_step", _number_of_step, before=("peft_train",))
