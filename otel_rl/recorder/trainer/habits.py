"""Attributes of W&B's run that otel-rl's has not: a script that uses them goes on, and reads what to write instead."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from otel_rl.recorder.convert.params import fields
from otel_rl.recorder.errors.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_FILES = "otel-rl stores no files; write them into run.dir, and note them with run.event()"
_OF_EXPORTER = "give it to W&B's exporter, as in exporters=[{{'wandb': {{'{}': …}}}}]"
_SHOWN = "`otel-rl top` shows the run in run.dir; W&B has it in the project run.project as run.name"
_STATE = "run.attempt, run.refused and the result of run.finish() say how the run is"
INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("log_artifact", "upsert_artifact", "finish_artifact", "link_artifact", "use_artifact"), _FILES),
    **dict.fromkeys(("log_model", "link_model", "use_model", "log_code", "save", "restore", "write_logs"), _FILES),
    **{name: _OF_EXPORTER.format(name) for name in ("entity", "group", "notes", "settings", "tags")},
    **dict.fromkeys(("url", "project_url", "sweep_url", "path", "display", "to_html"), _SHOWN),
    **dict.fromkeys(("disabled", "offline", "resumed", "starting_step", "start_time", "status", "sync_dir"), _STATE),
    "alert": "write run.event()",
    "config_static": "write run.params()",
    "job_type": "give W&B's exporter tags, as in exporters=[{'wandb': {'tags': ['eval']}}]",
    "define_metric": "the step of the RL loop is the axis of every value; leave the call out",
    "mark_preempting": "another start with the same id continues the run; leave the call out",
    "pin_config_keys": "leave the call out",
    "summary": "log the value with run.log(), whose last row W&B shows as its summary",
    "sweep_id": "write what a sweep chose with run.params()",
    "unwatch": "leave the call out",
    "watch": "log norms of gradients with run.log()",
}
"""Advice for each attribute that W&B's run has and otel-rl's has not."""
_NOTHING: Mapping[str, object] = MappingProxyType({})


def _itself(absent: Any, *_given: object, **_named: object) -> Any:
    return absent


def _nothing(*_given: object) -> None:
    pass


class Absent(str):
    """A stand-in for such an attribute: an empty text that can also be called, indexed, assigned to and entered."""

    __slots__ = ()
    __call__ = __enter__ = __getitem__ = _itself
    __exit__ = __setattr__ = __setitem__ = _nothing
    __lt__ = __gt__ = __le__ = __ge__ = lambda *_: False
    __add__ = __radd__ = __sub__ = __rsub__ = lambda _, other: other
    __hash__ = str.__hash__

    def __format__(self, _spec: str) -> str:
        return ""

    def __index__(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("_"):
            raise AttributeError(name)
        return self

    def get(self, _key: object, default: Any = None) -> Any:
        """Return the default."""
        return default


class Config(dict[str, Any]):
    """The hyper-parameters that `init` was given, which W&B's users read and extend by name; `record` gets the new."""

    def __init__(self, given: object, record: Callable[[object], None]) -> None:
        super().__init__(_named(given))
        object.__setattr__(self, "_record", record)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"config has no {name!r}; give it to init(config=…)") from None

    def __setattr__(self, name: str, value: object) -> None:
        self.update({name: value})

    def __setitem__(self, name: str, value: object) -> None:
        self.update({name: value})

    def __delattr__(self, name: str) -> None:
        self.pop(name, None)

    def as_dict(self) -> dict[str, Any]:
        """Return a copy."""
        return dict(self)

    def setdefaults(self, values: Mapping[str, object]) -> None:
        """Set and record those that are not set."""
        self.update({name: value for name, value in values.items() if name not in self})

    def update(self, values: object = _NOTHING, **_options: object) -> None:  # type: ignore[override]
        """Set and record hyper-parameters, of a mapping or of an object with fields."""
        self._record(values)
        super().update(_named(values))


class WithHabits:
    """The part of a run that answers habits of W&B's users."""

    if not TYPE_CHECKING:  # mypy would take any name for one that exists

        def __getattr__(self, name: str) -> object:
            """Return what W&B's users look for: what is known, or something harmless after a warning."""
            if name == "config":
                self.config = Config(self._asked_for.get("config"), self.params)
                return self.config
            if name in ("name", "project"):
                return getattr(self._session.settings, name)
            if name not in INSTEAD:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            self._recorder.refuse("wandb", f"run.{name}: only W&B's run has it; {INSTEAD[name]}")
            return Absent()

        def __setattr__(self, name: str, value: object) -> None:
            """Set an attribute; warn if it is one that W&B would show."""
            if name == "config" and not isinstance(value, Config):
                self.config.update(value)
            elif name in ("name", "project"):
                self._recorder.refuse("wandb", f"run.{name}: cannot be changed; give it to init({name}=…)")
            elif name not in INSTEAD:
                super().__setattr__(name, value)
            else:
                getattr(self, name)


def _named(values: object) -> dict[str, Any]:
    """Return the fields of an object by name; `Run.params` counts what cannot be read."""
    with Guard(lambda _: None):
        return dict(fields(values))
    return {}
