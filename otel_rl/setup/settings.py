"""Settings of a run: keywords of `init`, then the environment, then one file, then the defaults.

Each field has a variable `OTEL_RL_<FIELD>`; OpenTelemetry's own `OTEL_*` variables keep their
standard meaning. A wrong setting raises `SettingsError`, which names the setting and the fix.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from otel_rl.errors import SettingsError, UnavailableError
from otel_rl.errors.occasional import Occasional
from otel_rl.errors.texts import shown, text_of
from otel_rl.setup import head
from otel_rl.setup.launcher import find_place, parent_job
from otel_rl.stats import statistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_warnings = Occasional(logging.getLogger(__name__))
_FILES = ("otel-rl.toml", "otel-rl.yaml", "otel-rl.yml")
_CONFIG_FILE_VARIABLE = "OTEL_RL_CONFIG_FILE"
INSTRUMENT_VARIABLE, CAPTURE_VARIABLE = "OTEL_RL_INSTRUMENT", "OTEL_RL_CAPTURE"
"""Which frameworks are instrumented, and which trackers captured, from the start of a process on."""
_NO_SETTINGS = (_CONFIG_FILE_VARIABLE, INSTRUMENT_VARIABLE, CAPTURE_VARIABLE, *head.VARIABLES)


_LONGEST_NAME = 128
"""Characters of what directories are named by: they may have 255, with what is added."""


class ExporterSpec(msgspec.Struct, frozen=True):
    """One exporter as it was asked for.

    Attributes:
        name: A registered name, or `module:qualname` of a factory.
        options: What the factory is called with besides the run.
        factory: What builds it, if only this process can; it runs in a thread here then.
    """

    name: str
    options: dict[str, Any] = {}
    factory: Any = None


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the agent: how it reduces and filters rows, and how it measures the machine.

    Attributes:
        reduce: Reducers by name pattern: one or several of mean, max, min, sum, last, std, count, geomean, and
            quantiles such as p95.
        quantiles: Quantiles of observations that rows have in addition to mean, max, min, std, sum and count.
        metrics: Metrics that trackers receive: "full", "slim", or name patterns; `!` excludes a pattern.
        log_every: Trackers receive one row every so many steps; 0 for never.
        log_first: If true, step 0 leaves a row.
        log_window: "mean" reduces a row over the steps since the last one; "last" sends the values of its own step.
        name_limit: Maximum number of metric names that trackers receive; more are counted.
        row_deadline: Seconds after which a step is closed even if ranks are missing.
        model_parameters: Trainable parameters of the model, for FLOP/s.
        flops_per_token: FLOPs for training on one token; 0 for 6 per parameter.
        peak_flops: Peak FLOP/s of one device, for the model FLOPs utilization.
        trace_ratio: Share of the steps whose traces are exported. Slow and failed steps, and steps with an evaluation
            or a checkpoint, are always exported.
        trace_budget: Maximum number of spans of a step that trained on trajectories with traces: its own spans, then
            the slowest, failed and extreme trajectories, then others at random.
        head: `host:port` of the agent that makes the rows of all machines, on the machine that owns the address; empty
            for one machine. `OTEL_RL_TOKEN` and the prefix `https://` protect it. The head also receives spans of
            inference servers.
        hardware: If true, GPUs, host, processes and cgroup are measured.
        collection_interval: Seconds between two measurements; at least 1 for GPUs.
        flush_interval: Seconds between two exports of measurements to trackers.
        gpu_io: If true, PCIe throughput is measured too, which takes the driver 20 ms each time.
        engines: URLs of the metrics endpoints of inference servers, such as `http://node1:8000/metrics`. A Prometheus
            that finds this run also finds them.
        strict: If true, `init` raises `SettingsError` where it would otherwise warn and record in another way: a
            directory that cannot be written, a port in use, a run that another process records.
    """

    reduce: dict[str, str | tuple[str, ...]] = {}
    quantiles: tuple[float, ...] = ()
    metrics: str | tuple[str, ...] = "full"
    log_every: int = 1
    log_first: bool = True
    log_window: Literal["mean", "last"] = "mean"
    name_limit: int = 10_000
    row_deadline: float = 10.0
    model_parameters: float = 0.0
    flops_per_token: float = 0.0
    peak_flops: float = 0.0
    trace_ratio: float = 1.0
    trace_budget: int = 2000
    head: str = ""
    hardware: bool = True
    collection_interval: float = 10.0
    flush_interval: float = 10.0
    gpu_io: bool = False
    engines: tuple[str, ...] = ()
    strict: bool = False


class Settings(AgentSettings, frozen=True, kw_only=True):
    """All settings of a process, complete and checked.

    Attributes:
        project: Name by which trackers group runs; by default the script's.
        name: Display name of the run; by default its id.
        id: Identity of the run. A second start with the same id is another attempt of the run.
        dir: Directory of the run directories.
        local_dir: Directory for journals if `dir` is shared by machines. Each machine needs its own, and it must
            outlive the job. If empty, `/var/tmp`, or the temporary directory if `/var/tmp` cannot be used.
        rank: Number of this process among the trainer processes of the run, from 0.
        world_size: Number of trainer processes of the run.
        local_world_size: Number of trainer processes on this machine; 0 if unknown.
        role: Role of this process, if it is not a trainer rank: driver, rollout, reward.
        exporters: Exporters by name, with options in a mapping, or classes and functions that build one.
        dialect: Framework whose metric names are expected; "auto" detects it.
        content: If true, texts such as prompts and completions may leave the process.
        agent: "auto" starts the agent of this machine; "off" only records.
        set_global: If true, this run's tracer provider becomes OpenTelemetry's global one.
        quiet: If true, `init` prints nothing.
        idle_timeout: Seconds without a living trainer or progress after which the agent ends.
        journal_limit: Maximum size in bytes of the undelivered journal of each process, and of the outbox.
        device_clock: If true, phases are also timed by the device's clock.
        memory_peaks: "shared" leaves the allocator's peaks alone; "reset" resets them at the start of each phase, so
            that its peak is exact.
        memory_history: Number of allocator events kept for a report of running out of memory; each takes some
            kilobytes of host memory.
    """

    project: str = ""
    name: str = ""
    id: str = ""
    dir: str = "runs"
    local_dir: str = ""
    rank: int = 0
    world_size: int = 1
    local_world_size: int = 0
    role: str = ""
    exporters: tuple[ExporterSpec, ...] = (ExporterSpec("jsonl"),)
    dialect: str = "auto"
    content: bool = False
    agent: Literal["auto", "off"] = "auto"
    set_global: bool = False
    quiet: bool = False
    idle_timeout: float = 60.0
    journal_limit: int = 1 << 30
    device_clock: bool = True
    memory_peaks: Literal["shared", "reset"] = "shared"
    memory_history: int = 0


class JobSettings(Settings, frozen=True, kw_only=True):
    """Settings whose `id` is the launcher's identity of a job, in which there may be several runs."""


_VARIABLES = {field: f"OTEL_RL_{field.upper()}" for field in Settings.__struct_fields__} | {"id": "OTEL_RL_RUN_ID"}
_ALSO = {
    "monitor_gpus": "hardware",
    "gpu_collection_interval": "collection_interval",
    "gpu_flush_interval": "flush_interval",
}
"""NeMo-RL's spellings, which a file or the environment may use."""


def load(keywords: Mapping[str, object], environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings; a keyword that is `None` counts as not given.

    Raises:
        SettingsError: A setting is unknown, has a wrong value, or contradicts another.
    """
    environ = os.environ if environ is None else environ
    place = find_place(environ)
    layers: dict[str, Mapping[str, object]] = {  # a later one wins
        "launcher": {name: value for name, value in msgspec.structs.asdict(place).items() if name != "node"}
        | _sampler(environ),
        "file": _from_file(environ),
        "environment": _from_environment(environ),
        "keyword": keywords,
    }
    chosen: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, values in layers.items():
        for name, value in values.items():
            if value is not None and not (name == "id" and type(value) is str and not value):
                chosen[name] = _convert(name, value, source)
                sources[name] = source
    if "id" not in chosen and sources.get("world_size") == "launcher" and chosen["world_size"] > 1:
        chosen["id"] = _id_of_this_machine(chosen, environ)
        sources["id"] = "launcher"
    return _complete((JobSettings if sources.get("id") == "launcher" else Settings)(**chosen))


def _id_of_this_machine(chosen: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Return an identity that the ranks of this machine share, where the launcher gives none to all of them.

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


def _sampler(environ: Mapping[str, str]) -> dict[str, object]:
    """Return the ratio that OpenTelemetry's own variables ask for; unknown values are ignored with a warning."""
    name = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    ratios = {"always_on": 1.0, "always_off": 0.0, "traceidratio": 1.0}  # the last one where no argument is given
    sampler = name.removeprefix("parentbased_")
    if sampler not in ratios:
        if name:
            known = ", ".join([*ratios, *(f"parentbased_{one}" for one in ratios)])
            _warnings.warn(f"OTEL_TRACES_SAMPLER={name!r} is unknown and ignored; known are: {known}")
        return {}
    text = environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip() if sampler == "traceidratio" else ""
    if not text:
        return {"trace_ratio": ratios[sampler]}
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        _warnings.warn(f"OTEL_TRACES_SAMPLER_ARG={text!r} is ignored: expected a ratio such as 0.1")
        return {"trace_ratio": 1.0}
    return {"trace_ratio": ratio}


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    fields = {variable: field for field, variable in _VARIABLES.items()}
    given = [name for name in environ if name.startswith("OTEL_RL_") and name not in _NO_SETTINGS]
    fields |= {f"OTEL_RL_{other.upper()}": field for other, field in _ALSO.items()}
    for name in given:
        if name not in fields:
            raise SettingsError(f"{name} is no setting of otel-rl{meant(name, fields)}")
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
    monitoring = _gpu_monitoring(values, path)
    values = {_ALSO.get(name, name): value for name, value in {**values, **monitoring}.items()}
    for name in values:
        if name not in _VARIABLES:
            raise SettingsError(f"{path}: `{name}` is no setting of otel-rl{meant(str(name), _VARIABLES)}")
    return values


def _gpu_monitoring(values: dict[str, object], path: Path) -> Mapping[str, object]:
    """Take NeMo-RL's section `gpu_monitoring` out, and return what is in it."""
    section = values.pop("gpu_monitoring", {})
    if not isinstance(section, dict):
        raise SettingsError(f"{path}: gpu_monitoring: expected collection_interval and flush_interval")
    return section


def meant(name: str, known: Iterable[str]) -> str:
    """Return what an error about an unknown name says of the known ones: the nearest, else all."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.8)
    return f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(sorted(known))}"


def _convert(name: str, value: object, source: str) -> object:
    value = _exact(value)
    given = {
        "environment": f"{_VARIABLES[name]}={shown(value)}",
        "file": f"{name}: {shown(value)} in the settings file",
    }
    label = given.get(source, f"{name}={shown(value)}")
    try:
        return _converted(name, value, label, strict=source != "environment")
    except SettingsError:
        raise
    except msgspec.ValidationError as error:
        raise SettingsError(f"{label}: {_allowed(name) or error}") from None
    except Exception as error:  # what a foreign object's methods may raise is not known
        raise SettingsError(f"{label}: {text_of(error)}") from None


def _exact(value: object) -> object:
    """Return a text or a number as just that, whatever a subclass of them makes of it."""
    if isinstance(value, str):
        return str.__str__(value)
    return int.__index__(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _converted(name: str, value: Any, label: str, *, strict: bool) -> object:
    if name == "exporters":
        return _exporters(value, label)
    if name == "reduce" and isinstance(value, str):
        parts = (part.partition("=") for part in value.split(",") if part.strip())
        value = {pattern.strip(): _one_or_several(chosen) for pattern, _, chosen in parts}
    if name in ("metrics", "quantiles", "engines") and isinstance(value, str) and (name != "metrics" or "," in value):
        value = tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    found = msgspec.convert(value, _type_of(name), strict=strict)
    if isinstance(found, str):
        found.encode()  # what is no Unicode text names no file and is no JSON
    if isinstance(found, int) and not -(1 << 63) <= found < 1 << 63:
        raise SettingsError(f"{label}: it has more than 64 bits")
    if isinstance(found, float) and found != found:  # noqa: PLR0124 - NaN
        raise SettingsError(f"{label}: not a number")
    return found


def _type_of(name: str) -> Any:
    return next(field.type for field in msgspec.structs.fields(Settings) if field.name == name)


def _allowed(name: str) -> str:
    """Return which values a setting may have, if they are listed; else an empty text."""
    listed = [value for value in get_args(_type_of(name)) if isinstance(value, str)]
    return f"must be one of {', '.join(map(repr, sorted(listed)))}" if listed else ""


def _one_or_several(text: str) -> str | tuple[str, ...]:
    several = tuple(part.strip() for part in text.split("|"))
    return several if len(several) > 1 else several[0]


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
        elif (name := _importable_name(item)) is not None:
            specs.append(ExporterSpec(name))
        elif callable(item) or hasattr(item, "log_scalar") or hasattr(item, "export"):
            specs.append(ExporterSpec(f"in_process.{len(specs)}", factory=item))
        else:
            raise SettingsError(f"{label}: {shown(item)} is neither a name, nor a mapping of options, nor a factory")
    names = [spec.name for spec in specs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SettingsError(f"{label}: {twice[0]!r} is there twice")
    return tuple(specs)


def _with_options(name: str, options: object, label: str) -> ExporterSpec:
    if options is not None and not isinstance(options, dict):
        raise SettingsError(f"{label}: the options of {name!r} are no mapping, such as {{'mode': 'offline'}}")
    return ExporterSpec(name, dict(options or {}))


def _importable_name(factory: object) -> str | None:
    """Return the name that another process can import it by; `None` if there is none."""
    module, qualname = getattr(factory, "__module__", ""), getattr(factory, "__qualname__", "")
    found: object = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return f"{module}:{qualname}" if found is factory and module != "__main__" else None


def _check_numbers(settings: Settings) -> None:
    for pattern, chosen in settings.reduce.items():
        for statistic in (chosen,) if isinstance(chosen, str) else chosen:
            try:
                statistics.parse(statistic)
            except ValueError as error:
                raise SettingsError(f"reduce={{{pattern!r}: {chosen!r}}}: {error}") from None
    if not 0 <= settings.trace_ratio <= 1:
        raise SettingsError(f"trace_ratio={settings.trace_ratio}: must be between 0 and 1")
    if settings.trace_budget < 0:
        raise SettingsError(f"trace_budget={settings.trace_budget}: must not be negative")
    for quantile in settings.quantiles:
        if not 0 <= quantile <= 1:
            raise SettingsError(f"quantiles={settings.quantiles}: {quantile} is not between 0 and 1")
    for name in (
        *("row_deadline", "idle_timeout", "journal_limit", "name_limit"),
        *("collection_interval", "flush_interval"),
    ):
        if getattr(settings, name) <= 0:
            raise SettingsError(f"{name}={getattr(settings, name)}: must be above 0")
    for name in ("log_every", "model_parameters", "flops_per_token", "peak_flops", "memory_history"):
        if getattr(settings, name) < 0:
            raise SettingsError(f"{name}={getattr(settings, name)}: must not be below 0")


def _check_addresses(settings: Settings) -> None:
    if settings.head:
        try:
            head.parse(settings.head)
        except ValueError as error:
            raise SettingsError(f"head={settings.head!r}: {error}") from None
    for url in settings.engines:
        if not re.fullmatch(r"https?://[^/\s]+(/\S*)?", url):
            raise SettingsError(f"engines: {url!r} is no URL such as http://node1:8000/metrics")


def _complete(settings: Settings) -> Settings:
    if not 0 <= settings.rank < settings.world_size:
        raise SettingsError(
            f"rank={settings.rank} is not below world_size={settings.world_size}; "
            "give both, or neither and let the launcher's variables say"
        )
    _check_numbers(settings)
    _check_addresses(settings)
    if not settings.id and settings.world_size > 1:
        raise SettingsError(
            f"world_size={settings.world_size}: {settings.world_size} ranks need one identity: "
            "set OTEL_RL_RUN_ID (or id=) to the same text in all of them"
        )
    run_id = settings.id or os.urandom(6).hex()
    for name, value in (("id", run_id), ("role", settings.role or "rank")):
        if not re.fullmatch(r"[\w.-]*\w[\w.-]*", value, re.ASCII):
            raise SettingsError(
                f"{name}={shown(value)}: letters, digits, '-', '_' and '.' only, since directories are named by it"
            )
        if len(value) > _LONGEST_NAME:
            raise SettingsError(f"{name}={shown(value)}: at most {_LONGEST_NAME} characters; it has {len(value)}")
    script = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] not in ("", "-c", "-m") else ""
    return msgspec.structs.replace(
        settings,
        id=run_id,
        project=settings.project or script or "otel-rl",
        name=settings.name or run_id,
    )
