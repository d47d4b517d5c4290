"""Settings: files in TOML and YAML, variables of the environment, and keywords from JSON."""

from __future__ import annotations

import json
import re
import unicodedata  # noqa: F401 - `urlsplit` imports it at the first address that needs it

import msgspec

from otel_rl.recorder.errors import UNDECODABLE, SettingsError
from otel_rl.recorder.otlp.connection import connection
from otel_rl.recorder.settings import head, loading, otel_environment
from otel_rl.recorder.settings.launcher import LAUNCHERS, find_launch, find_place
from otel_rl.recorder.settings.settings import Settings
from tests.fuzz.targets import Target

_TOML = b"""
project = "grpo"
exporters = ["jsonl", {wandb = {mode = "offline"}}]
reduce = {loss = "max", "reward/*" = ["mean", "p95"]}
world_size = 4
id = "run-1"
idle_timeout = 30
[rows]
every = 10
quantiles = [0.5, 0.95]
metrics = "time/*"
[hardware]
engines = ["http://node1/metrics"]
"""
_YAML = b"""
project: grpo
exporters: [jsonl, {wandb: {mode: offline}}]
reduce: {loss: max, "reward/*": [mean, p95]}
rows: {every: 10, first: false}
flops: {parameters: 7e9}
head: node1:4318
hardware: false
"""
_LITERALS = b"a = 1979-05-27\nb = 0x1\nc = nan\nd = '''x'''\ne = 9223372036854775808\nf = 1_000\n[[rows]]\n"
_FIELDS = "\n".join(f"{name}: 1" for name in Settings.__struct_fields__).encode()
_BOMB = b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: &d [*c, *c]\nproject: *d\n"
_VARIABLES = tuple(setting.variable for setting in loading.known_settings().values())
_IMPORTED = re.compile(r"[\w.]+:[\w.]+")


class SettingsFile(Target):
    """A settings file, or keywords; the first byte says in which format.

    The settings are complete and can be written for the agent, or a `SettingsError` says why not.
    """

    def seeds(self) -> list[bytes]:
        keywords = {
            "rows": {"every": 5},
            "exporters": ["console"],
            "rank": 1,
            "world_size": 2,
            "id": "x",
            "hardware": True,
        }
        tagged = [
            f"project: !!{kind} x".encode() for kind in ("timestamp", "int", "float", "bool", "binary", "set", "omap")
        ]
        return [
            *(b"\0" + text for text in (_TOML, _LITERALS)),
            *(b"\1" + text for text in (_YAML, _BOMB, _FIELDS, *tagged)),
            b"\2" + json.dumps(keywords).encode(),
        ]

    def check(self, data: bytes) -> None:
        if not data or _imports(data):
            return
        keywords: dict[str, object] = {}
        environ: dict[str, str] = {}
        if data[0] % 3 == 2:
            try:
                keywords = msgspec.json.decode(data[1:], type=dict[str, object])
            except UNDECODABLE:
                return
        else:
            path = self.folder / ("otel-rl.toml" if data[0] % 3 == 0 else "otel-rl.yaml")
            path.write_bytes(data[1:])
            environ["OTEL_RL_CONFIG_FILE"] = str(path)
        _load(keywords, environ)


class Environment(Target):
    """Variables, one per line: those of otel-rl, of OpenTelemetry and of launchers."""

    def seeds(self) -> list[bytes]:
        own = [f"{name}=1\nOTEL_RL_ID=x".encode() for name in _VARIABLES]
        otlp = [
            "ENDPOINT=https://u:p@a:4317/x",
            "PROTOCOL=grpc",
            "HEADERS=a=b,c=%20d",
            "TIMEOUT=5000",
            "COMPRESSION=gzip",
        ]
        standard = [f"OTEL_EXPORTER_OTLP_{one}".encode() for one in (*otlp, "TRACES_ENDPOINT=unix:/x", "INSECURE=true")]
        others = [
            b"OTEL_TRACES_SAMPLER=traceidratio\nOTEL_TRACES_SAMPLER_ARG=0.5",
            b"OTEL_RESOURCE_ATTRIBUTES=a=b,c=d%20",
        ]
        others += [
            f"OTEL_{name}=5".encode() for name in ("SPAN_LINK_COUNT_LIMIT", "BSP_MAX_QUEUE_SIZE", "METRICS_EXPORTER")
        ]
        ranks = [f"{one.rank}=1\n{one.world_size}=4\nOTEL_RL_RUN_ID=x".encode() for one in LAUNCHERS]
        slurm = b"SLURM_PROCID=1\nSLURM_NTASKS=4\nSLURM_STEP_ID=0\nSLURM_JOB_ID=5\nSLURM_NTASKS_PER_NODE=2(x3),1"
        together = b"\n".join(
            (b"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", b"OTEL_EXPORTER_OTLP_ENDPOINT=dns:///a:1", standard[2])
        )
        return [*own, *standard, *others, *ranks, slurm + b"\nSLURM_STEP_NODELIST=a[1-3,7],b", together]

    def check(self, data: bytes) -> None:
        if _imports(data):
            return
        lines = data.replace(b"\0", b"").decode("utf-8", "surrogateescape").split("\n")
        environ = {name: text for name, equals, text in (line.partition("=") for line in lines) if equals and name}
        environ.pop("OTEL_RL_CONFIG_FILE", None)
        _load({}, environ)
        find_launch(environ)
        find_place(environ)
        for read in (otel_environment.otlp_exporters, otel_environment.limits):
            read(environ)
        msgspec.json.encode([otel_environment.resource(environ), otel_environment.metric_readers(environ)])
        otel_environment.batch_size(environ, "LOGS")
        otel_environment.log_level(environ)
        with otel_environment.only_valid(dict(environ)):
            pass
        for signal in ("TRACES", "LOGS", "METRICS"):
            try:
                connection(environ, signal)  # type: ignore[arg-type]
            except SettingsError:
                continue
        for text in environ.values():
            try:
                head.parse(text)
            except ValueError:
                continue


def _imports(data: bytes) -> bool:
    """Return whether an input names a function, which the user asks otel-rl to import."""
    return b"metrics" in data.lower() and _IMPORTED.search(data.decode("utf-8", "replace")) is not None


def _load(keywords: dict[str, object], environ: dict[str, str]) -> None:
    try:
        settings = loading.load(keywords, environ)
    except SettingsError as error:
        str(error).encode("utf-8", "surrogateescape")
        return
    exporters = [(one.name, one.options) for one in settings.exporters]
    sent = msgspec.structs.replace(settings, exporters=(), dir="", local_dir="")  # paths may be any bytes
    msgspec.json.encode([sent, exporters])  # for the agent
