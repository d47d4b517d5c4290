"""The servers that `otel-rl stack` runs without containers: programs, arguments, ports and configuration files."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.recorder.files.asked_programs import ask
from otel_rl.recorder.files.programs import TooLate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_ANSWERS_WITHIN_S = 30.0
"""Time in seconds in which a program prints its help or its version."""


class Server(NamedTuple):
    """A server of the stack."""

    programs: tuple[str, ...]  # its possible names on PATH, in order of preference
    arguments: tuple[str, ...]  # with `{state}` for the directory of the stack, and the names of `PORTS`
    ready: str  # the path that it answers with 200 once it is ready, on the port of its name
    get: str  # how to get it
    unless: str = ""  # the server that takes its place if that is on PATH
    needs: tuple[str, ...] = ()  # servers of which it needs one; empty if it needs none


PORTS = {
    "alertmanager": 9093,
    "prometheus": 9090,
    "tempo": 3200,
    "jaeger": 16686,
    "jaeger_grpc": 16685,
    "collector": 13133,
    "otlp_grpc": 4317,
    "otlp_http": 4318,
    "traces": 14317,
}
"""The ports on the loopback: one for each server, then others; agents send traces to `otlp_http`."""

SERVERS = {
    "alertmanager": Server(
        ("alertmanager", "prometheus-alertmanager"),
        (
            "--config.file={state}/alertmanager.yml",
            "--storage.path={state}/alertmanager",
            "--web.listen-address=127.0.0.1:{alertmanager}",
            "--cluster.listen-address=",
        ),
        "/-/ready",
        "https://prometheus.io/download, or apt-get install prometheus-alertmanager",
    ),
    "prometheus": Server(
        ("prometheus",),
        (
            "--config.file={state}/prometheus.yml",
            "--storage.tsdb.path={state}/prometheus",
            "--web.listen-address=127.0.0.1:{prometheus}",
            "--enable-feature=exemplar-storage",
        ),
        "/-/ready",
        "https://prometheus.io/download, or apt-get install prometheus",
    ),
    "tempo": Server(
        ("tempo",),
        ("-config.file={state}/tempo.yaml",),
        "/ready",
        "https://github.com/grafana/tempo/releases",
    ),
    "jaeger": Server(
        ("jaeger",),
        (
            "--config={state}/jaeger.yaml",
            "--set=receivers.otlp.protocols.grpc.endpoint=127.0.0.1:{traces}",
            "--set=extensions.jaeger_query.http.endpoint=127.0.0.1:{jaeger}",
            "--set=extensions.jaeger_query.grpc.endpoint=127.0.0.1:{jaeger_grpc}",
        ),
        "/api/services",
        "version 2 from https://www.jaegertracing.io/download",
        unless="tempo",
    ),
    "collector": Server(
        ("otelcol-contrib", "otelcol"),
        (
            "--config={state}/gateway.yaml",
            "--set=receivers.otlp.protocols.grpc.endpoint=127.0.0.1:{otlp_grpc}",
            "--set=receivers.otlp.protocols.http.endpoint=127.0.0.1:{otlp_http}",
            "--set=exporters.otlp_grpc.endpoint=127.0.0.1:{traces}",
            "--set=extensions.health_check.endpoint=127.0.0.1:{collector}",
            "--set=extensions.file_storage.directory={state}/collector",
            "--set=service.telemetry.metrics.level=none",
        ),
        "/",
        "otelcol-contrib from https://github.com/open-telemetry/opentelemetry-collector-releases/releases",
        needs=("tempo", "jaeger"),
    ),
}
"""All of them, in the order in which they are started; the compose file has Grafana too."""


def on_path() -> dict[str, str]:
    """Return the program of each server on PATH that can take part."""
    programs = {name: program for name, server in SERVERS.items() if (program := _on_path(server.programs))}
    return {name: program for name, program in programs.items() if _takes_part(SERVERS[name], programs)}


def _takes_part(server: Server, programs: Mapping[str, str]) -> bool:
    """Return whether a server whose program is there has what it needs, and nothing takes its place."""
    return server.unless not in programs and (not server.needs or any(name in programs for name in server.needs))


def why_not(name: str) -> str:
    """Return why a server is not among those that `on_path` returns, and what to do."""
    server = SERVERS[name]
    if server.unless and _on_path(SERVERS[server.unless].programs):
        return f"not needed: {server.unless} is there"
    if _on_path(server.programs):
        return f"not started: needs {' or '.join(server.needs)}"
    return f"not started: {' or '.join(server.programs)} is not on PATH; get it from {server.get}"


def configurations(deploy: Path, programs: Mapping[str, str]) -> dict[str, str]:
    """Return the files of the stack by name, for the versions of the programs that read them."""
    texts = {
        path.name: path.read_text()
        for path in (
            deploy / "prometheus" / "prometheus.yml",
            deploy / "alertmanager" / "alertmanager.yml",
            deploy / "jaeger" / "jaeger.yaml",
            deploy / "collector" / "gateway.yaml",
        )
    }
    if "prometheus" in programs and not is_prometheus_3(programs["prometheus"]):
        # Prometheus 2 does not start with a setting that it does not know.
        lines = texts["prometheus.yml"].splitlines(keepends=True)
        texts["prometheus.yml"] = "".join(line for line in lines if "fallback_scrape_protocol" not in line)
    if "tempo" in programs:
        version = _printed(programs["tempo"], "--version")
        name = "tempo.yaml" if "version 2." in version or "version v2." in version else "tempo-3.yaml"
        texts["tempo.yaml"] = _on_loopback((deploy / "tempo" / name).read_text())
    return texts


def _on_loopback(tempo: str) -> str:
    """Return Tempo's configuration without addresses and directories of a container."""
    server = f"http_listen_address: 127.0.0.1, http_listen_port: {PORTS['tempo']}, grpc_listen_address: 127.0.0.1"
    tempo = tempo.replace("http_listen_port: 3200", server)
    return tempo.replace("0.0.0.0:4317", f"127.0.0.1:{PORTS['traces']}").replace("/var/tempo", "{state}/tempo")


def is_prometheus_3(program: str) -> bool:
    """Return whether it is version 3 or later; a program that was not built by its makers does not say its version."""
    return "web.enable-otlp-receiver" in _printed(program, "--help")


def _printed(program: str, argument: str) -> str:
    try:
        answer = ask([program, argument], within=_ANSWERS_WITHIN_S)
    except TooLate:
        return ""
    return (answer.output + answer.errors).decode(errors="replace")


def _on_path(programs: tuple[str, ...]) -> str:
    return next(filter(None, map(shutil.which, programs)), "") or ""
