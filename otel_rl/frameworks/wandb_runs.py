"""The hooks into W&B that record what a trainer logs there itself; `wandb_axes` says at which step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from otel_rl.frameworks.instrument import capture
from otel_rl.frameworks.tracker import Tracker, whole
from otel_rl.frameworks.wandb_axes import Axes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.frameworks.patches import Patches
    from otel_rl.frameworks.tracker_run import TrackerRun

_DESCRIBES = ("id", "group", "notes", "job_type", "tags")
_LOGGED = ("data", "step", "commit")


class _WandbRuns:
    """The runs of W&B that this process logs to: what each is here, and its axes."""

    def __init__(self) -> None:
        self.tracker = Tracker("wandb", between=".")
        self._axes: WeakKeyDictionary[Any, Axes] = WeakKeyDictionary()

    def axes(self, run: Any) -> Axes:
        """Return the axes of a run."""
        return self._axes.setdefault(run, Axes(self.tracker.say_once))

    def define(self, run: Any, given: Mapping[str, Any]) -> None:
        """Declare an axis of a run."""
        axis = given.get("step_metric")
        self.axes(run).define(given["name"], getattr(axis, "name", axis), overwrite=bool(given.get("overwrite")))

    def of(self, run: Any) -> TrackerRun:
        """Return what a run is here, with its parameters if it is new."""
        known = self.tracker.run(f"{run.project}/{run.id}", run, name=run.name or run.id, project=run.project)
        if not known.has_params:
            known.params({name: value for name, value in dict(run.config).items() if name != "_wandb"})
            self.describe(run, known)
        return known

    def describe(self, run: Any, known: TrackerRun) -> None:
        """Record what describes a run, and may change."""
        own = {f"wandb.{name}": value for name in _DESCRIBES if (value := getattr(run, name))}
        known.params(own)

    def log(self, run: Any, given: Mapping[str, Any]) -> None:
        """Record the values of a call, each at the step of its axis, else at W&B's count of calls."""
        step, commit = given.get("step"), given.get("commit")
        stays = not (commit or (commit is None and step is None))
        known, first = self.of(run), whole(getattr(run, "starting_step", 0)) or 0
        counter = self.tracker.count(known, run, step, first, stays=stays)
        values = self.tracker.flat(given.get("data") or {})
        for step, of_step in self.axes(run).by_step(values, given.get("step"), counter).items():
            own = step == counter and given.get("step") is None
            self.tracker.record(known, of_step, step, own=own)

    def configure(self, run: Any, given: Mapping[str, Any]) -> None:
        """Record a change of the configuration."""
        key, data = given.get("key"), given.get("data")
        changed = data if data is not None else {".".join(key) if isinstance(key, tuple) else key: given.get("val")}
        self.of(run).params({str(k): v for k, v in changed.items() if not str(k).startswith("_wandb")})

    def summarize(self, run: Any, given: Mapping[str, Any]) -> None:
        """Record values of the summary."""
        self.tracker.summarize(self.of(run), {".".join(each.key): each.value for each in given["record"].update})

    def publish(self, run: Any) -> None:
        """Record what has changed of a run: its name, its tags, its notes."""
        self.describe(run, self.of(run))

    def begin(self, run: Any, given: Mapping[str, Any]) -> None:
        """Know a run from its beginning: where it is attached to, as in a forked child, its configuration is empty."""
        self.of(run)

    def finish(self, run: Any, given: Mapping[str, Any]) -> None:
        """End the run."""
        self.tracker.end(self.of(run), run, ends=True)


_WANDB = _WandbRuns()


def patch_wandb(module: Any, patches: Patches) -> None:
    """Record what goes through `wandb.Run.log`, at the steps of the axes that `define_metric` declares."""
    for name, names, record, first in (
        ("log", _LOGGED, _WANDB.log, False),
        ("define_metric", ("name", "step_metric"), _WANDB.define, False),
        ("_config_callback", ("key", "val", "data"), _WANDB.configure, False),
        ("_summary_update_callback", ("record",), _WANDB.summarize, False),
        ("_on_start", (), _WANDB.begin, False),
        ("finish", (), _WANDB.finish, True),
    ):
        patches.observe(module, f"Run.{name}", names, record, what="capture", first=first)


def patch_wandb_disabled(module: Any, patches: Patches) -> None:
    """Record the runs of W&B that `WANDB_MODE=disabled` switches off: then somebody needs another recorder."""
    given_to: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()  # the last values, which are in its summary

    def log(run: Any, given: dict[str, Any]) -> None:
        _WANDB.tracker.say_off()
        given_to.setdefault(run, {}).update(given.get("data") or {})
        _WANDB.log(run, given)

    def finish(run: Any, given: dict[str, Any]) -> None:
        known = _WANDB.of(run)
        _WANDB.describe(run, known)
        known.params({name: value for name, value in dict(run.config).items() if name != "_wandb"})
        logged = given_to.pop(run, {})
        summary = {name: value for name, value in dict(run.summary).items() if logged.get(name) is not value}
        _WANDB.tracker.summarize(known, summary)
        _WANDB.tracker.end(known, run, ends=True)

    patches.observe(module, "NoopRun.log", _LOGGED, log, what="capture")
    patches.observe(module, "NoopRun.define_metric", ("name", "step_metric"), _WANDB.define, what="capture")
    patches.observe(module, "NoopRun.finish", (), finish, what="capture", first=True)


def patch_wandb_interface(module: Any, patches: Patches) -> None:
    """Record the name, tags and notes that a script gives a run after its beginning."""
    patches.observe(
        module, "InterfaceBase.publish_run", ("run",), lambda _, given: _WANDB.publish(given["run"]), what="capture"
    )


def patch_wandb_tensorboard(module: Any, patches: Patches) -> None:
    """Capture TensorBoard too where W&B reads its files: `sync_tensorboard=True`."""
    patches.observe(module, "patch", (), lambda _, given: capture("tensorboard"), what="capture")
