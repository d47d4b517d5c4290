"""Coming from ROLL.

Replace `from roll.utils.tracking import create_tracker` by `from otel_rl.integrations.roll import create_tracker`;
the configuration stays what it is:

    track_with: wandb
    tracker_kwargs:
      project: roll-agentic
      name: ${exp_name}
      tags: [grpo]

    tracker = create_tracker(config["track_with"], config, **config["tracker_kwargs"])
    tracker.log({"critic/score/mean": 0.5, "actor/clipfrac@sum": 0.1}, step=1)
    tracker.finish()

Or keep ROLL's own: `otel-rl run -- python examples/start_agentic_pipeline.py …` adds `track_with: otel_rl`, and records
the values of any other tracker as well.

`state_offload_manager` replaces the one of `roll.utils.context_managers`: its phases, times and memory are recorded.

The same: the names of trackers and their keywords, and reducer tags in names, which trackers do not receive. Different:
NumPy scalars and tensors are recorded too. A tracker that fails is reported and does not delay training. Two tags of
one name are two metrics. API keys go into the environment, not into a file. Texts are recorded as tables, with
`content=True` only.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import otel_rl
from otel_rl.convert.values import to_number
from otel_rl.integrations.patches import Patches, harmless
from otel_rl.integrations.recording import Recording, flat
from otel_rl.stats import statistics
from otel_rl.trainer.no_span import NO_SPAN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_KEYWORDS = {
    "tensorboard": {"log_dir": "log_dir"},
    "wandb": {"project": "project", "name": "name", "notes": "notes", "tags": "tags", "mode": "mode",
              "settings": "settings", "entity": "entity", "group": "group"},
    "swanlab": {"project": "project", "workspace": "workspace", "logdir": "logdir", "description": "description",
                "experiment_name": "experiment_name", "tags": "tags", "mode": "mode"},
    "trackio": {"project": "project", "name": "name", "group": "group", "space_id": "space_id"},
    "stdout": {},
}  # fmt: skip
_SUFFIXES = ("mean", "max", "min", "p50", "p99", "std", "sum")


class Tracker(Protocol):
    """The result of `create_tracker`."""

    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Log the values of a step."""

    def finish(self) -> None:
        """Deliver everything and end."""


class RunTracker:
    """Records into a run."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Record numbers as values, arrays as observations and texts as tables; other keywords are ignored."""
        run = self._recording.run
        named = dict(flat(values))
        texts = {name: value for name, value in named.items() if isinstance(value, str)}
        numbers = {name: value for name, value in named.items() if name not in texts}
        if numbers:
            run.log(numbers, step=step)
        for name, text in texts.items():
            run.table(name, {"text": [text]}, step=step)

    def finish(self) -> None:
        """End the run, if this tracker began it, and wait until it is delivered."""
        self._recording.finish()


class NoTracker:
    """Records nothing."""

    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


def create_tracker(tracker_name: str | None, config: Mapping[str, Any], **kwargs: Any) -> Tracker:
    """Return the tracker of this name; one that records nothing for an empty name.

    Args:
        tracker_name: `tensorboard`, `wandb`, `swanlab`, `trackio` or `stdout`.
        config: The run's hyper-parameters.
        kwargs: ROLL's `tracker_kwargs`. API keys among them go to the environment of the agent.

    Raises:
        ValueError: The name is unknown, or TensorBoard has no `log_dir`.
    """
    if not tracker_name:
        return NoTracker()
    if tracker_name not in _KEYWORDS:
        raise ValueError(f"unknown tracker {tracker_name!r}: must be one of {', '.join(_KEYWORDS)}")
    known = _KEYWORDS[tracker_name]
    options = {known[key]: value for key, value in kwargs.items() if key in known}
    if tracker_name == "tensorboard":
        if "log_dir" not in options:
            raise ValueError("tracker 'tensorboard' needs log_dir=")
        options["log_dir"] = str(Path(options["log_dir"]).absolute())
    _take_keys(tracker_name, kwargs)
    name = kwargs.get("name") or kwargs.get("experiment_name")
    named: dict[str, Any] = {"project": kwargs.get("project") or None, "name": name or None}
    return RunTracker(Recording(exporters=[{tracker_name: options}], config=config, dialect="roll", **named))


def patch(module: Any, patches: Patches) -> None:
    """Register `otel_rl` as a tracker of ROLL, and record the values of the other trackers."""

    def make(config: Mapping[str, Any], **kwargs: Any) -> RunTracker:
        named = {key: kwargs[key] for key in ("project", "name") if kwargs.get(key)}
        return RunTracker(Recording(config=config, dialect="roll", **named))

    def create(function: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tracker = function(*args, **kwargs)
        with harmless("create_tracker"):
            given = dict(zip(("tracker_name", "config"), args, strict=False)) | kwargs
            if given.pop("tracker_name", None) and not isinstance(tracker, RunTracker):
                own = make(**given)
                patches.observe(tracker, "log", ("values", "step"), lambda _, told: own.log(**told), first=True)
                patches.observe(tracker, "finish", (), lambda *_: own.finish(), first=True)
        return tracker

    module.tracker_registry.setdefault("otel_rl", make)
    patches.wrap(module, "create_tracker", create)


class Strategy(Protocol):
    """A strategy of ROLL."""

    def load_states(self, **kwargs: Any) -> None:
        """Load states to the device."""

    def offload_states(self) -> None:
        """Offload states from the device."""


@contextmanager
def state_offload_manager(
    strategy: Strategy,
    metrics: Mapping[str, Any],
    metric_infix: str,
    is_offload_states: bool = True,
    load_kwargs: Mapping[str, Any] | None = None,
) -> Iterator[None]:
    """Load states, run the body, and offload the states, as three parts of a phase; ROLL's `state_offload_manger`.

    Times and memory are in the step's row under ROLL's names, also if the body raises. Then the states stay on the
    device, as in ROLL.

    Args:
        strategy: The owner of the states.
        metrics: Not changed.
        metric_infix: Name of the phase: train_step, generate, …
        is_offload_states: If true, states are offloaded at the end.
        load_kwargs: Arguments of `load_states`.
    """
    run = otel_rl.current()
    with NO_SPAN if run is None else run.phase(metric_infix) as phase:
        with phase.onload():
            strategy.load_states(**(load_kwargs or {}))
        with phase.execute():
            yield
        if is_offload_states:
            with phase.offload():
                strategy.offload_states()


state_offload_manger = state_offload_manager  # as ROLL spells it


def reduce_metrics(
    metrics: Mapping[str, Any], reduce_func: Callable[[Sequence[float]], float] | None = None
) -> dict[str, Any]:
    """Return metrics with each list reduced: by the tag in its name, else by its last word, else by `reduce_func`.

    Scalars are unchanged, empty lists are omitted, and names keep their tags. Log lists of several workers as
    observations instead: they are pooled, however many each worker has.

    Args:
        metrics: Scalars, and lists or 1-D arrays, by name.
        reduce_func: The mean by default.

    Raises:
        ValueError: A tag is unknown.
    """
    found: dict[str, Any] = {}
    for name, value in metrics.items():
        if not hasattr(value, "__len__") or isinstance(value, str):
            found[name] = value
        elif len(value):
            samples = [to_number(item) for item in value]
            statistic = _statistic(name)
            if statistic is None:
                found[name] = reduce_func(samples) if reduce_func else statistics.mean(samples)
            else:
                found[name] = statistics.reduce(statistic, samples)
    return found


def _statistic(name: str) -> str | None:
    _, at, tag = name.rpartition("@")
    if at:
        if tag not in _SUFFIXES:
            raise ValueError(f"{name!r}: unknown reducer {tag!r}: must be one of {', '.join(_SUFFIXES)}")
        return tag
    suffix = name.rpartition("_")[2]
    return suffix if suffix in _SUFFIXES and suffix != name else None


def _take_keys(tracker: str, kwargs: Mapping[str, Any]) -> None:
    """Put API keys into the environment, which the agent inherits, and never into the run's files."""
    keys = {
        "WANDB_API_KEY": kwargs.get("api_key") if tracker == "wandb" else None,
        "SWANLAB_API_KEY": kwargs.get("login_kwargs", {}).get("api_key") if tracker == "swanlab" else None,
    }
    os.environ.update({name: key for name, key in keys.items() if key})
