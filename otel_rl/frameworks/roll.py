"""ROLL: hooks into its own trackers, timers and context managers, and trackers of the same call shape.

    from otel_rl.frameworks.roll import create_tracker      # in place of roll.utils.tracking

    tracker = create_tracker(config["track_with"], config, **config["tracker_kwargs"])
    tracker.log({"critic/score/mean": 0.5, "actor/clipfrac@sum": 0.1}, step=1)
    tracker.finish()

docs/how-to/migrate.md says what is different. API keys go into the environment, not into a file.
"""

from __future__ import annotations

import copy
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import otel_rl
from otel_rl.frameworks.charted import flat
from otel_rl.frameworks.patches import Patches, harmless
from otel_rl.frameworks.recording import Recording, unless_set
from otel_rl.frameworks.rollouts import RolloutBatch, record, run_with_texts
from otel_rl.frameworks.timers import Timers
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.trainer.no_span import NO_SPAN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

logger = log_of("otel_rl")

_KEYWORDS = {
    "tensorboard": ("log_dir",),
    "wandb": ("project", "name", "notes", "tags", "mode", "settings", "entity", "group"),
    "swanlab": ("project", "workspace", "logdir", "description", "experiment_name", "tags", "mode"),
    "trackio": ("project", "name", "group", "space_id"),
    "stdout": (),
}
_WITHOUT_EFFECT = ("max_queue", "flush_secs", "api_key", "login_kwargs")
_STEP = "pipeline_step"
_STEP_TIMERS = ("step_total", "pipeline_step_total")
_CALLS = Timers("", lambda _: None)
"""It looks at the pipeline that calls a function."""
_WORKERS = (
    "ROLL: the driver's values, steps and phases are recorded. Phases and memory of a worker are recorded only if its "
    "class has @otel_rl.frameworks.ray.traced_actor(role=...)"
)


class RunTracker:
    """Records into a run; without one, nothing."""

    def __init__(self, recording: Recording | None) -> None:
        self._recording = recording

    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Record numbers as values, arrays as observations and texts as tables; other keywords are ignored."""
        if self._recording is None:
            return
        run = self._recording.run
        with harmless("Tracker.log"):
            named = dict(flat(values))
            texts = {name: value for name, value in named.items() if isinstance(value, str)}
            self._recording.log(named, step)
            for name, text in texts.items():
                run.table(name, {"text": [text]}, step=step)

    def log_system(self, values: Mapping[str, Any]) -> None:
        """Record numbers that belong to no step, as ROLL's trackio tracker does."""
        self.log(values)

    def finish(self) -> None:
        """End the run, if this tracker began it, and wait until it is delivered."""
        if self._recording is not None:
            self._recording.finish()


def create_tracker(tracker_name: str | None, config: Mapping[str, Any], **kwargs: Any) -> Any:
    """Return the tracker of this name; one that records nothing for an empty name.

    Args:
        tracker_name: `tensorboard`, `wandb`, `swanlab`, `trackio`, `stdout`, or a name that is registered with ROLL.
        config: The run's hyper-parameters.
        kwargs: ROLL's `tracker_kwargs`. API keys among them go to the environment of the agent.

    Raises:
        KeyError: TensorBoard has no `log_dir`.
        ValueError: The name is unknown.
    """
    if not tracker_name:
        return RunTracker(None)
    if tracker_name not in _KEYWORDS:
        if "roll.utils.tracking" not in sys.modules:
            raise ValueError(f"unknown tracker {tracker_name!r}: must be one of {', '.join(_KEYWORDS)}")
        own = sys.modules["roll.utils.tracking"].create_tracker(tracker_name, config, **kwargs)
        # A tracker that `patch` has hooked, which wrapt's attribute shows, would be recorded twice.
        return own if hasattr(own.log, "_self_wrapper") else _recorded(own, config, kwargs, Patches())
    options = {key: value for key, value in kwargs.items() if key in _KEYWORDS[tracker_name]}
    if tracker_name == "tensorboard":
        options["log_dir"] = str(Path(options["log_dir"]).absolute())
    if unused := sorted(kwargs.keys() - options.keys() - set(_WITHOUT_EFFECT)):
        logger.warning("tracker %r: no effect of %s", tracker_name, ", ".join(unused))
    _put_keys(tracker_name, kwargs)
    name = kwargs.get("name") or kwargs.get("experiment_name")
    named = unless_set(project=kwargs.get("project") or "", name=name or "")
    return RunTracker(Recording(exporters=[{tracker_name: options}], config=config, dialect="roll", **named))


def _make(config: Any, **kwargs: Any) -> RunTracker:
    named = unless_set(**{key: kwargs[key] for key in ("project", "name") if kwargs.get(key)})
    return RunTracker(Recording(config=config, dialect="roll", **named))


def _recorded(tracker: Any, config: Any, kwargs: Mapping[str, Any], patches: Patches) -> Any:
    """Record the values that a tracker of ROLL gets, and return the tracker."""
    own = _make(config, **{name: kwargs[name] for name in ("project", "name") if name in kwargs})
    patches.observe(tracker, "log", ("values", "step"), lambda _, given: own.log(**given), first=True)
    patches.observe(tracker, "finish", (), lambda *_: own.finish(), first=True)
    return tracker


def patch(module: Any, patches: Patches) -> None:
    """Register `otel_rl` as a tracker of ROLL, and record the values of the other trackers."""

    def create(function: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = dict(zip(("tracker_name", "config"), args, strict=False)) | kwargs
        config = copy.copy(given.get("config"))  # TensorBoard's tracker replaces its values by texts
        tracker = function(*args, **kwargs)
        with harmless("create_tracker"):
            if not isinstance(tracker, RunTracker):
                _recorded(tracker, config, given, patches)
        return tracker

    module.tracker_registry.setdefault("otel_rl", _make)
    patches.wrap(module, "create_tracker", create)


def patch_pipeline(module: Any, patches: Patches) -> None:
    """Record the loop of a pipeline as steps, and the timers of the driver as phases."""

    def number(variables: Mapping[str, Any]) -> object:
        return variables.get("global_step") if isinstance(variables.get("self"), module.BasePipeline) else None

    def name(timer: Any) -> str:
        if not timer.name or timers.number_here() is None:  # another user of codetiming
            return ""
        return _STEP if timer.name in _STEP_TIMERS else str(timer.name).removeprefix("step_").removeprefix("cal_")

    timers = Timers(_STEP, number, before=None)
    logger.warning(_WORKERS)
    timers.hook_timer(patches, sys.modules["codetiming"], "Timer", name)
    timers.hook_method(patches, module, "BasePipeline.do_checkpoint")


def patch_advantages(module: Any, patches: Patches) -> None:
    """Record what the driver holds of each trajectory once it has computed the advantages."""

    def computed(_: object, given: dict[str, Any]) -> None:
        if (run := run_with_texts()) is not None:
            step, tokenizer = _CALLS.look(lambda variables: (variables["global_step"], variables["self"].tokenizer))
            record(run, step, _batch(given["return"]).rollouts(tokenizer))

    for name in ("compute_advantage", "agentic_compute_advantage"):
        if name in vars(module):
            patches.observe(module, name, (), computed)


def _batch(data: Any) -> RolloutBatch:
    """Return the trajectories of a `DataProto`, whose log-probabilities and advantages begin with the second token."""
    tensors, columns = data.batch, data.non_tensor_batch
    trainer, scores = tensors["old_log_probs"], tensors["scores"]
    return RolloutBatch(
        tokens=tensors["input_ids"],
        attention=tensors["attention_mask"],
        since=tensors["response_mask"],
        written=tensors["response_mask"],
        mask=tensors.get("final_response_mask", tensors["response_mask"]),
        advantages=tensors["advantages"],
        logprobs=tensors.get("infer_logprobs"),
        trainer_logprobs=trainer if trainer.is_floating_point() else None,  # zeros in their place are integers
        rewards=scores.reshape(len(scores), -1).sum(1).tolist(),
        groups=columns.get("traj_group_id", columns.get("domain", [""] * len(scores))),
    )


def patch_states(module: Any, patches: Patches) -> None:
    """Record where a worker loads states, computes and offloads states, as the parts of a phase."""

    def manage(function: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = dict(zip(("strategy", "metrics", "metric_infix"), args, strict=False)) | kwargs
        return _in_parts(function(*args, **kwargs), str(given.get("metric_infix")).rpartition("/")[2])

    patches.wrap(module, "state_offload_manger", manage)


@contextmanager
def _in_parts(own: AbstractContextManager[None], name: str) -> Iterator[None]:
    run = otel_rl.current()
    with NO_SPAN if run is None else run.phase(name) as phase:
        with phase.onload():
            own.__enter__()
        try:
            with phase.execute():
                yield
        except BaseException as error:
            if not own.__exit__(type(error), error, error.__traceback__):
                raise
        else:
            with phase.offload():
                own.__exit__(None, None, None)


def state_offload_manager(strategy: Any, metrics: Any, metric_infix: str, *args: Any, **kwargs: Any) -> Any:
    """Return ROLL's `state_offload_manger` for these arguments, with its parts recorded as those of a phase."""
    own = resolve_name("roll.utils.context_managers:state_offload_manger")
    manager = own(strategy, metrics, metric_infix, *args, **kwargs)
    return manager if hasattr(own, "_self_wrapper") else _in_parts(manager, metric_infix.rpartition("/")[2])


state_offload_manger = state_offload_manager  # as ROLL spells it


def reduce_metrics(metrics: dict[str, Any], reduce_func: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """Reduce each list in place: by the tag in its name, else by its last word, else by `reduce_func`; as ROLL does.

    Scalars, tensors and empty lists are unchanged, and names keep their tags. Log lists of several workers as
    observations instead: they are pooled, however many each worker has.

    Args:
        metrics: Scalars, tensors, and lists, tuples or arrays, by name.
        reduce_func: The mean by default.

    Raises:
        ValueError: A tag is unknown.
    """
    import numpy as np

    torch = sys.modules.get("torch")
    plain = (int, float, np.number, *(() if torch is None else (torch.Tensor,)))
    for name, value in metrics.items():
        is_list = isinstance(value, (list, tuple, np.ndarray))
        if not (isinstance(value, plain) or (is_list and len(value) == 0)):
            metrics[name] = float(
                _reducer(name, reduce_func or np.mean)(value) if is_list else (reduce_func or np.mean)(value)
            )
    return metrics


def _reducer(name: str, default: Callable[[Any], Any]) -> Callable[[Any], Any]:
    import numpy as np

    reducers: dict[str, Callable[[Any], Any]] = {
        "mean": np.mean, "max": np.max, "min": np.min, "std": np.std, "sum": np.sum,
        "p50": lambda values: np.percentile(values, 50), "p99": lambda values: np.percentile(values, 99),
    }  # fmt: skip
    _, at, tag = name.rpartition("@")
    if at and tag.strip() not in reducers:
        raise ValueError(f"Unknown reducer tag {tag.strip()!r} in metric {name!r}")
    _, line, suffix = name.rpartition("_")
    return reducers[tag.strip()] if at else reducers.get(suffix if line else "", default)


def _put_keys(tracker: str, kwargs: Mapping[str, Any]) -> None:
    """Put API keys into the environment, which the agent inherits, and never into the run's files."""
    keys = {
        "WANDB_API_KEY": kwargs.get("api_key") if tracker == "wandb" else None,
        "SWANLAB_API_KEY": (kwargs.get("login_kwargs") or {}).get("api_key") if tracker == "swanlab" else None,
    }
    os.environ.update({name: key for name, key in keys.items() if key})
