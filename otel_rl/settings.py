"""Settings of a run: keywords of `init`, then the environment, then one file, then the defaults.

Each field has a variable `OTEL_RL_<FIELD>`; OpenTelemetry's own `OTEL_*` variables keep their
standard meaning. A wrong setting raises `SettingsError`, which names the setting and the fix.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from otel_rl.launcher import Place, find_place

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILES = ("otel-rl.toml", "otel-rl.yaml", "otel-rl.yml")
_CONFIG_FILE_VARIABLE = "OTEL_RL_CONFIG_FILE"
REDUCERS = ("mean", "sum", "max", "min", "last")


class SettingsError(ValueError):
    """A setting is wrong; the message names it and says what to do."""


class ExporterSpec(msgspec.Struct, frozen=True):
    """One destination as it was asked for.

    Attributes:
        name: A registered name, or `module:qualname` of a factory.
        options: What the factory is called with besides the run.
    """

    name: str
    options: dict[str, Any] = {}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What `init` was asked for, complete and checked.

    Attributes:
        project: What trackers group runs by.
        name: What people call the run.
        id: Identity of the run; starting again with the same one is another attempt of it.
        dir: Where run directories are made.
        rank: This process among the trainer processes of the run, from 0.
        world_size: How many trainer processes the run has.
        local_world_size: How many of them are on this machine; 0 if unknown.
        role: What this process does, if it is no ordinary rank: driver, reward, …
        exporters: Where rows go.
        dialect: Which framework's metric names to expect; "auto" knows all of them.
        reduce: How ranks are reduced, by name pattern: mean (if none matches), sum, max, min, last.
        agent: "auto" starts the agent of this machine; "off" records only.
        set_global: Whether OpenTelemetry's global tracer provider becomes this run's.
        quiet: Whether nothing is printed.
        row_deadline: Seconds after which a step is closed though not all ranks reported it.
        idle_timeout: Seconds without life or progress after which the agent ends.
        journal_limit: Bytes of journal that each process keeps.
    """

    project: str = ""
    name: str = ""
    id: str = ""
    dir: str = "runs"
    rank: int = 0
    world_size: int = 1
    local_world_size: int = 0
    role: str = ""
    exporters: tuple[ExporterSpec, ...] = (ExporterSpec("jsonl"),)
    dialect: str = "auto"
    reduce: dict[str, str] = {}
    agent: Literal["auto", "off"] = "auto"
    set_global: bool = False
    quiet: bool = False
    row_deadline: float = 10.0
    idle_timeout: float = 60.0
    journal_limit: int = 1 << 30


_VARIABLES = {field: f"OTEL_RL_{field.upper()}" for field in Settings.__struct_fields__} | {"id": "OTEL_RL_RUN_ID"}


def load(keywords: Mapping[str, object], environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings; a keyword that is `None` counts as not given.

    Raises:
        SettingsError: A setting is unknown, has a wrong value, or contradicts another.
    """
    environ = os.environ if environ is None else environ
    place = find_place(environ)
    layers: dict[str, Mapping[str, object]] = {  # a later one wins
        "launcher": msgspec.structs.asdict(place),
        "file": _from_file(environ),
        "environment": _from_environment(environ),
        "keyword": keywords,
    }
    chosen: dict[str, Any] = {}
    for source, values in layers.items():
        for name, value in values.items():
            if value is not None and (name, value) != ("id", ""):
                chosen[name] = _convert(name, value, source)
    return _complete(Settings(**chosen), place)


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    fields = {variable: field for field, variable in _VARIABLES.items()}
    given = [name for name in environ if name.startswith("OTEL_RL_") and name not in (_CONFIG_FILE_VARIABLE,)]
    for name in given:
        if name not in fields:
            raise SettingsError(f"{name} is no setting of otel-rl{_meant(name, fields)}")
    return {fields[name]: environ[name] for name in given}


def _from_file(environ: Mapping[str, str]) -> dict[str, object]:
    named = environ.get(_CONFIG_FILE_VARIABLE)
    path = Path(named) if named else next((Path(f) for f in _FILES if Path(f).is_file()), None)
    if path is None:
        return {}
    try:
        content = path.read_bytes()
        decode = msgspec.toml.decode if path.suffix == ".toml" else msgspec.yaml.decode
        values: object = decode(content)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise SettingsError(f"{path}: cannot be read as settings: {error}") from error
    if not isinstance(values, dict):
        raise SettingsError(f"{path}: expected settings by name, e.g. `project: grpo`")
    for name in values:
        if name not in _VARIABLES:
            raise SettingsError(f"{path}: `{name}` is no setting of otel-rl{_meant(str(name), _VARIABLES)}")
    return values


def _meant(name: str, known: Mapping[str, str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(sorted(known))}"


def _convert(name: str, value: object, source: str) -> object:
    shown = {"environment": f"{_VARIABLES[name]}={value!r}", "file": f"{name}: {value!r} in the settings file"}
    label = shown.get(source, f"{name}={value!r}")
    if name == "exporters":
        return _exporters(value, label)
    if name == "reduce" and isinstance(value, str):
        parts = (part.partition("=") for part in value.split(",") if part.strip())
        value = {pattern.strip(): reducer.strip() for pattern, _, reducer in parts}
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    field_type = next(field.type for field in msgspec.structs.fields(Settings) if field.name == name)
    try:
        return msgspec.convert(value, field_type, strict=source != "environment")
    except msgspec.ValidationError as error:
        raise SettingsError(f"{label}: {error}") from None


def _exporters(value: object, label: str) -> tuple[ExporterSpec, ...]:
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",") if name.strip()]
    if not isinstance(value, (list, tuple)):
        raise SettingsError(f"{label}: expected a list such as ['tensorboard', {{'wandb': {{'mode': 'offline'}}}}]")
    specs: list[ExporterSpec] = []
    for item in value:
        if isinstance(item, str):
            specs.append(ExporterSpec(item))
        elif isinstance(item, dict):
            specs.extend(_with_options(str(name), options, label) for name, options in item.items())
        elif callable(item):
            specs.append(ExporterSpec(_importable_name(item)))
        else:
            raise SettingsError(f"{label}: {item!r} is neither a name, nor a mapping of options, nor a factory")
    names = [spec.name for spec in specs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SettingsError(f"{label}: {twice[0]!r} is there twice")
    return tuple(specs)


def _with_options(name: str, options: object, label: str) -> ExporterSpec:
    if options is not None and not isinstance(options, dict):
        raise SettingsError(f"{label}: the options of {name!r} are no mapping, such as {{'mode': 'offline'}}")
    return ExporterSpec(name, dict(options or {}))


def _importable_name(factory: object) -> str:
    module, qualname = getattr(factory, "__module__", ""), getattr(factory, "__qualname__", "")
    found: object = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is not factory or module == "__main__":
        raise SettingsError(
            f"exporters: {factory!r} cannot be imported by name, and the agent is another process; "
            "define it at the top of a module that can be imported"
        )
    return f"{module}:{qualname}"


def _complete(settings: Settings, place: Place) -> Settings:
    if not 0 <= settings.rank < settings.world_size:
        raise SettingsError(
            f"rank={settings.rank} is not below world_size={settings.world_size}; "
            "give both, or neither and let the launcher's variables say"
        )
    for pattern, reducer in settings.reduce.items():
        if reducer not in REDUCERS:
            raise SettingsError(f"reduce={{{pattern!r}: {reducer!r}}}: there are {', '.join(REDUCERS)}")
    for name in ("row_deadline", "idle_timeout", "journal_limit"):
        if getattr(settings, name) <= 0:
            raise SettingsError(f"{name}={getattr(settings, name)}: must be above 0")
    if not settings.id and settings.world_size > 1 and not place.id:
        raise SettingsError(
            f"{settings.world_size} ranks need one identity: "
            "set OTEL_RL_RUN_ID (or id=) to the same text in all of them"
        )
    run_id = settings.id or os.urandom(6).hex()
    for name, value in (("id", run_id), ("role", settings.role or "rank")):
        if not re.fullmatch(r"[\w.-]*\w[\w.-]*", value, re.ASCII):
            raise SettingsError(
                f"{name}={value!r}: letters, digits, '-', '_' and '.' only, since directories are named by it"
            )
    script = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] not in ("", "-c", "-m") else ""
    return msgspec.structs.replace(
        settings,
        id=run_id,
        project=settings.project or script or "otel-rl",
        name=settings.name or run_id,
    )
