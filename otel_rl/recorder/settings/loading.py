"""Where settings come from: keywords of `init`, then the environment, then one file, then the launcher.

Each setting has a variable: `OTEL_RL_RANK` for `rank`, `OTEL_RL_ROWS_EVERY` for `every` of the group `rows`.
OpenTelemetry's own `OTEL_*` variables keep their standard meaning and win over the variables and the file.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from otel_rl.recorder.errors import UNDECODABLE, SettingsError, UnavailableError
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.errors.texts import encodable_text, meant, shown, text_of
from otel_rl.recorder.files.own_files import ForeignError, read_found
from otel_rl.recorder.secrets import REDACTED, is_secret
from otel_rl.recorder.settings import head
from otel_rl.recorder.settings.conversion import convert
from otel_rl.recorder.settings.joining import PARENT_VARIABLE, WORKER, find_parent, own_place, without_inherited
from otel_rl.recorder.settings.launcher import parent_job
from otel_rl.recorder.settings.settings import (
    CAPTURE_VARIABLE,
    GROUPS,
    INSTRUMENT_VARIABLE,
    MARK_VARIABLE,
    SECRET_OPTIONS_VARIABLE,
    STARTED_VARIABLE,
    GivenIdSettings,
    JobSettings,
    NewSettings,
    Settings,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_warnings = Occasional(log_of(__name__))
_FILES = ("otel-rl.toml", "otel-rl.yaml", "otel-rl.yml")
_CONFIG_FILE_VARIABLE = "OTEL_RL_CONFIG_FILE"
_OTHER_VARIABLES = (
    MARK_VARIABLE,
    _CONFIG_FILE_VARIABLE,
    INSTRUMENT_VARIABLE,
    CAPTURE_VARIABLE,
    STARTED_VARIABLE,
    *head.VARIABLES,
    SECRET_OPTIONS_VARIABLE,
    PARENT_VARIABLE,
)
_VARIABLES = {"id": "OTEL_RL_RUN_ID", "hardware.enabled": "OTEL_RL_HARDWARE", "output.enabled": "OTEL_RL_OUTPUT"}
"""The variables that are not called like their setting."""
_COMMON = {"hardware": "interval", "output": "tee", "memory": "peaks"}
"""The field that an example of a group has, if it is not the first one."""
_SWITCHES = {"hardware": ("enabled",), "output": ("enabled", "tee")}
"""The fields that a truth value in place of a group sets."""
_KEYWORD, _ENVIRONMENT, _LAUNCHER = "keyword", "environment", "launcher"


class Setting(NamedTuple):
    """The type of a setting, with its bounds, and its variable in the environment."""

    kind: Any
    variable: str


@cache
def known_settings() -> dict[str, Setting]:
    """Return all settings by their name, with the group if it has one: `rank`, `rows.every`."""
    kinds: dict[str, Any] = {}
    for field in msgspec.structs.fields(Settings):
        if group := GROUPS.get(field.name):
            kinds |= {f"{field.name}.{member.name}": member.type for member in msgspec.structs.fields(group)}
        else:
            kinds[field.name] = field.type
    return {path: Setting(kind, _variable(path)) for path, kind in kinds.items()}


def _variable(path: str) -> str:
    return _VARIABLES.get(path) or f"OTEL_RL_{path.upper().replace('.', '_')}"


def load(keywords: Mapping[str, object], environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of this process.

    Args:
        keywords: Keywords of `init` by name; one that is `None` counts as not given.
        environ: The environment; by default that of this process.

    Raises:
        SettingsError: A setting is unknown or invalid, or contradicts another.
    """
    environ = os.environ if environ is None else environ
    place, launched_parent = own_place(environ)
    environ, numbered_parent = without_inherited(environ)
    path, in_file = _from_file(environ)
    layers: dict[str, Mapping[str, object]] = {  # a later one wins
        _LAUNCHER: {name: value for name, value in msgspec.structs.asdict(place).items() if name != "node"},
        path: _flat(in_file, path),
        _ENVIRONMENT: _from_environment(environ),
        "OpenTelemetry": _otel_sampler(environ),
        _KEYWORD: _flat(keywords, _KEYWORD),
    }
    chosen: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, values in layers.items():
        for name, value in values.items():
            if value is not None and not (name == "id" and type(value) is str and not value):
                label = label_of(name, value, source)
                from_text = source not in (_KEYWORD, _LAUNCHER)
                chosen[name] = convert(value, known_settings()[name].kind, label, from_text=from_text)
                sources[name] = source
    if (parent := find_parent(environ)) is not None:
        is_parent = f"rank{chosen.get('rank', 0)}" == parent.rank or launched_parent or numbered_parent
        if is_parent and not chosen.get("role") and sources.get("rank") != _KEYWORD:
            chosen["role"] = WORKER
        _warn_of_another_run(chosen, sources, layers[_ENVIRONMENT])
    if "id" not in chosen and sources.get("world_size") == _LAUNCHER and chosen["world_size"] > 1:
        chosen["id"] = _id_of_this_machine(chosen, environ)
        sources["id"] = _LAUNCHER
    if not chosen.get("head") and not chosen.get("local_world_size") and chosen.get("world_size", 1) > 1:
        chosen["local_world_size"] = chosen["world_size"]  # one machine has all ranks
    return _complete(_grouped(chosen, _kind(sources)))


def _kind(sources: Mapping[str, str]) -> type[Settings]:
    """Return the kind of settings by who gave the identity."""
    source = sources.get("id")
    if source in (None, _LAUNCHER):
        return JobSettings if source else NewSettings
    return Settings if source == sources.get("dir") == _KEYWORD else GivenIdSettings


def _warn_of_another_run(chosen: Mapping[str, object], sources: Mapping[str, str], told: Mapping[str, object]) -> None:
    """Warn if the keywords of a process that was asked to join a run are those of another one."""
    identity = ("id", "project", "name", "dir")
    others = [
        name for name in identity if sources.get(name) == _KEYWORD and chosen[name] != told.get(name, chosen[name])
    ]
    if others:
        given = ", ".join(label_of(name, chosen[name]) for name in others)
        _warnings.warn(
            f"init({given}) begins another run than {told.get('id')}, which run.environment() asks this process to "
            f"join: leave {' and '.join(others)} out to join it"
        )


def set_outside(environ: Mapping[str, str] | None = None) -> set[str]:
    """Return the paths of the settings that the environment or the settings file sets."""
    environ = os.environ if environ is None else environ
    path, in_file = _from_file(environ)
    return {*_flat(in_file, path), *_from_environment(environ)}


def label_of(path: str, value: object, source: str = _KEYWORD) -> str:
    """Return a setting and its value as the user wrote them."""
    if source == _ENVIRONMENT:
        return f"{_variable(path)}={shown(value)}"
    if source not in (_KEYWORD, _LAUNCHER):
        return f"{path}: {shown(value)} in {source}"
    group, _, name = path.rpartition(".")
    return f"{group}={{{name!r}: {shown(value)}}}" if group else f"{name}={shown(value)}"


def _flat(values: Mapping[Any, object], source: str) -> dict[str, object]:
    """Return settings by path, with those of groups taken out of their groups.

    Raises:
        SettingsError: A setting is unknown, or a group is not a mapping.
    """
    values_by_path: dict[str, object] = {}
    names = Settings.__struct_fields__
    for name, value in values.items():
        if name not in names:
            raise unknown_setting(str(name), value, names, source)
        if name in GROUPS:
            values_by_path |= {f"{name}.{key}": member for key, member in _of_group(name, value, source).items()}
        else:
            values_by_path[name] = value
    return values_by_path


_OF_WANDB = ("entity", "group", "mode", "notes", "tags")
"""Keywords of W&B's `init` that are options of its exporter."""


def unknown_setting(name: str, value: object, known: Iterable[str], source: str = _KEYWORD) -> SettingsError:
    """Return the error about an unknown setting; the fields of groups are suggested with their group."""
    fields = {path: label_of(path, ..., source).replace("Ellipsis", "…") for path in known_settings() if "." in path}
    others = fields | {path.replace(".", "_"): shown for path, shown in fields.items()}
    others |= {path.partition(".")[2]: shown for path, shown in fields.items()}
    others |= {name: f"exporters=[{{'wandb': {{'{name}': …}}}}]" for name in _OF_WANDB} | {"resume": "id=…"}
    return SettingsError(f"unknown setting {label_of(name, _public(name, value), source)}{meant(name, known, others)}")


def _public(name: str, value: object) -> object:
    """Return the value of an unknown setting for an error; not that of a name which may be that of a secret."""
    return REDACTED if is_secret(name) or re.search("token|key", name, re.IGNORECASE) else value


def _of_group(group: str, value: object, source: str) -> Mapping[str, object]:
    fields = GROUPS[group].__struct_fields__
    if value is None:
        return {}
    if isinstance(value, GROUPS[group]):
        return msgspec.structs.asdict(value)
    if group in _SWITCHES and isinstance(value, bool):
        return dict.fromkeys(_SWITCHES[group], value)
    label = label_of(group, value, source)
    if not isinstance(value, Mapping):
        example = f"{{'{_COMMON.get(group, fields[0])}': …}}{' or false' if group in _SWITCHES else ''}"
        raise SettingsError(f"invalid {label}: must be a mapping such as {example}")
    try:
        values = {str.__str__(key) if isinstance(key, str) else shown(key): member for key, member in value.items()}
    except Exception as error:  # a foreign mapping's methods may raise anything
        raise SettingsError(f"invalid {label}: {text_of(error)}") from None
    for name, member in values.items():
        if name not in fields:
            label = label_of(f"{group}.{name}", _public(name, member), source)
            raise SettingsError(f"unknown setting {label}{meant(name, fields)}")
    return values


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    """Return what variables set; an empty one counts as unset, as in OpenTelemetry."""
    paths = {setting.variable: path for path, setting in known_settings().items()}
    given = [name for name in environ if name.startswith("OTEL_RL_") and name not in _OTHER_VARIABLES and environ[name]]
    for name in given:
        if name not in paths:
            regular = {f"OTEL_RL_{path.upper().replace('.', '_')}": variable for path, variable in _VARIABLES.items()}
            others = {variable: variable for variable in _OTHER_VARIABLES} | regular
            members = ", ".join(variable for variable in paths if variable.startswith(f"{name}_"))
            is_group = name.removeprefix("OTEL_RL_").lower() in GROUPS
            ending = f": a group; set {members}" if is_group else meant(name, paths, others)
            raise SettingsError(f"unknown variable {name}={shown(_public(name, environ[name]))}{ending}")
    return {paths[name]: environ[name] for name in given}


def _from_file(environ: Mapping[str, str]) -> tuple[str, dict[str, object]]:
    """Return the settings file and what is in it; nothing if there is none."""
    named = environ.get(_CONFIG_FILE_VARIABLE)
    paths = [Path(named)] if named else [Path(name) for name in _FILES if Path(name).is_file()]
    if not paths:
        return "file", {}
    path, *others = paths
    if others:
        _warnings.warn(f"{path} has the settings; {', '.join(map(str, others))} is ignored: keep one of them")
    try:
        content = path.read_bytes() if named else read_found(path.absolute())
        values: object = msgspec.toml.decode(content) if path.suffix == ".toml" else _yaml(content)
    except ForeignError as error:  # it may name code that the agent imports
        _warnings.warn(f"{error}: its settings are not used; set {_CONFIG_FILE_VARIABLE}={path} to use them")
        return "file", {}
    except (OSError, *UNDECODABLE) as error:
        raise SettingsError(f"{path}: cannot be read as settings: {error}") from error
    if not isinstance(values, dict):
        raise SettingsError(f"{path}: expected settings by name, e.g. `project: grpo`")
    return str(path), values


def _yaml(content: bytes) -> object:
    """Return what YAML says; a key that is written twice is an error, as in TOML.

    Raises:
        DecodeError: The content is invalid.
    """
    import yaml  # only a YAML file needs it

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            before: list[object] = []
            for key, _ in node.value:
                if key.value in before:
                    raise yaml.YAMLError(f"`{key.value}` is written twice, again in line {key.start_mark.line + 1}")
                before.append(key.value)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(content, Loader)
    except Exception as error:  # the constructors of `!!timestamp`, `!!int` and others raise whatever they stumble on
        raise msgspec.DecodeError(text_of(error)) from error


def _otel_sampler(environ: Mapping[str, str]) -> dict[str, object]:
    """Return the trace ratio of OpenTelemetry's own variables; unknown values are ignored with a warning."""
    name = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    ratios = {"always_on": 1.0, "always_off": 0.0, "traceidratio": 1.0}  # the last one without an argument
    sampler = name.removeprefix("parentbased_")
    if sampler not in ratios:
        if name:
            known = ", ".join([*ratios, *(f"parentbased_{ratio_name}" for ratio_name in ratios)])
            _warnings.warn(f"unknown OTEL_TRACES_SAMPLER={name!r} is ignored; known are: {known}")
        return {}
    text = environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip() if sampler == "traceidratio" else ""
    if not text:
        return {"traces.ratio": ratios[sampler]}
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        _warnings.warn(f"invalid OTEL_TRACES_SAMPLER_ARG={text!r} is ignored: expected a ratio such as 0.1")
        return {"traces.ratio": 1.0}
    return {"traces.ratio": ratio}


def _id_of_this_machine(chosen: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Return an identity that the ranks of this machine share, if the launcher gives no identity to all ranks.

    Raises:
        UnavailableError: The run is strict.
    """
    size = chosen["world_size"]
    problem = f"the launcher gives its {size} ranks no identity in common"
    fix = "set OTEL_RL_RUN_ID to the same text in all of them"
    if chosen.get("strict"):
        raise UnavailableError(f"{problem}: {fix}")
    _warnings.warn(f"{problem}; each machine, or each process, records a run of its own: {fix}")
    return parent_job("local", environ)


def _grouped(chosen: Mapping[str, Any], kind: type[Settings]) -> Settings:
    chosen_fields: dict[str, Any] = {path: value for path, value in chosen.items() if "." not in path}
    for group, struct in GROUPS.items():
        fields = struct.__struct_fields__
        chosen_fields[group] = struct(
            **{name: chosen[f"{group}.{name}"] for name in fields if f"{group}.{name}" in chosen}
        )
    return kind(**chosen_fields)


def _complete(settings: Settings) -> Settings:
    if settings.rank >= settings.world_size:
        raise SettingsError(
            f"rank={settings.rank} must be below world_size={settings.world_size}; "
            "give both, or neither to use the launcher's variables"
        )
    if not settings.id and settings.world_size > 1:
        raise SettingsError(
            f"world_size={settings.world_size}: {settings.world_size} ranks need one identity: "
            "set OTEL_RL_RUN_ID (or id=) to the same text in all of them"
        )
    run_id = settings.id or os.urandom(6).hex()
    script = encodable_text(Path(sys.argv[0]).stem) if sys.argv and sys.argv[0] not in ("", "-c", "-m") else ""
    project, name = settings.project or script or "otel-rl", settings.name or run_id
    return msgspec.structs.replace(settings, id=run_id, project=project, name=name)
