"""OTLP endpoints: does each answer, with its certificate, to an empty request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from otel_rl.autopsy.doctor.check import Check, split
from otel_rl.autopsy.doctor.network import PATIENCE_S, ask
from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.facts import wording
from otel_rl.recorder.otlp.connection import connection as connection_of
from otel_rl.recorder.settings import otel_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_rl.autopsy.doctor.check import CheckedMachine
    from otel_rl.recorder.otlp.connection import Connection, Signal

_NAME = "collector"
_REFUSED = (401, 403)


def collector(machine: CheckedMachine) -> Iterator[Check]:
    """Check the endpoint of each signal that would be sent."""
    plugins = [*otel_environment.otlp_exporters(machine.environ), *otel_environment.metric_readers(machine.environ)]
    wanted: tuple[tuple[Signal, str], ...] = (("TRACES", "otlp_traces"), ("LOGS", "otlp_logs"), ("METRICS", "otlp"))
    names = {name for name, _ in plugins}
    if machine.settings is not None and any(exporter.name == "otlp" for exporter in machine.settings.exporters):
        names |= {"otlp_traces", "otlp_logs"}
    connections: list[Connection] = []
    for signal, name in wanted:
        try:
            connections += [connection_of(machine.environ, signal)] if name in names else []
        except SettingsError as error:
            yield Check(_NAME, "failed", *split(str(error)))
    if not names & {name for _, name in wanted}:
        yield Check(_NAME, "skipped", "no OTLP endpoint is set")
    servers: dict[tuple[str, str], list[Connection]] = {}
    for connection in connections:
        parts = urlsplit(connection.address)
        where = connection.address if connection.protocol == "grpc" else f"{parts.scheme}://{parts.netloc}"
        servers.setdefault((connection.protocol, where), []).append(connection)
    for (protocol, where), some in servers.items():
        yield from _grpc(some) if protocol == "grpc" else _http(where, some)


def _http(where: str, connections: list[Connection]) -> Iterator[Check]:
    """Send an empty request for each signal, until the server does not answer."""
    taken = []
    for connection in connections:
        is_json = connection.protocol == "http/json"
        kind = "application/json" if is_json else "application/x-protobuf"
        answer = ask(
            connection.endpoint,
            data=b"{}" if is_json else b"",
            headers=connection.headers | {"Content-Type": kind},
            verify=connection.certificate,
            cert=(connection.client_certificate, connection.client_key or connection.client_certificate)
            if connection.client_certificate
            else None,
        )
        if answer.problem:
            yield Check(_NAME, "failed", answer.problem, answer.fix)
            return
        if answer.status in _REFUSED:
            fix = "Correct OTEL_EXPORTER_OTLP_HEADERS."
            yield Check(_NAME, "failed", f"{connection.address} refuses the credentials: status {answer.status}", fix)
        elif not 200 <= answer.status < 300:
            fix = "Check that it is the OTLP/HTTP port (4318 by default) and the path."
            yield Check(_NAME, "failed", f"{connection.address} answers with status {answer.status}", fix)
        else:
            taken.append(connection.signal.lower())
    if taken:
        yield Check(_NAME, "ok", f"{where} takes {wording.names(taken)}")


def _grpc(connections: list[Connection]) -> Iterator[Check]:
    """Connect, which takes the certificates too."""
    import grpc

    first, signals = connections[0], wording.names([connection.signal.lower() for connection in connections])
    if first.secure:
        files = (first.certificate, first.client_key or first.client_certificate, first.client_certificate)
        roots, key, chain = (Path(file).read_bytes() if file else None for file in files)
        channel = grpc.secure_channel(first.endpoint, grpc.ssl_channel_credentials(roots, key, chain))
    else:
        channel = grpc.insecure_channel(first.endpoint)
    try:
        grpc.channel_ready_future(channel).result(timeout=PATIENCE_S)
    except grpc.FutureTimeoutError:
        what = f"{first.endpoint} does not answer as a gRPC server within {wording.seconds(PATIENCE_S)}"
        fix = "Check the address, the gRPC port (4317 by default), its certificate, and that the server runs."
        yield Check(_NAME, "failed", what, fix)
    else:
        yield Check(_NAME, "ok", f"{first.endpoint} takes {signals} over gRPC")
    finally:
        channel.close()
