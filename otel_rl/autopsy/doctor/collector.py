"""OTLP endpoints: does each answer, with its certificate, to an empty request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from otel_rl.autopsy.doctor.check import Check, split
from otel_rl.autopsy.doctor.network import PATIENCE_S, ask
from otel_rl.errors import SettingsError
from otel_rl.insight import wording
from otel_rl.otlp.connection import connection
from otel_rl.setup import otel_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_rl.autopsy.doctor.check import Machine
    from otel_rl.otlp.connection import Connection, Signal

_NAME = "collector"
_REFUSED = (401, 403)


def collector(machine: Machine) -> Iterator[Check]:
    """Check the endpoint of each signal that would be sent."""
    plugins = [*otel_environment.otlp_exporters(machine.environ), *otel_environment.metric_readers(machine.environ)]
    wanted: tuple[tuple[Signal, str], ...] = (("TRACES", "otlp_traces"), ("LOGS", "otlp_logs"), ("METRICS", "otlp"))
    names = {name for name, _ in plugins}
    if machine.settings is not None and any(one.name == "otlp" for one in machine.settings.exporters):
        names |= {"otlp_traces", "otlp_logs"}
    found: list[Connection] = []
    for signal, name in wanted:
        try:
            found += [connection(machine.environ, signal)] if name in names else []
        except SettingsError as error:
            yield Check(_NAME, "failed", *split(str(error)))
    if not names & {name for _, name in wanted}:
        yield Check(_NAME, "skipped", "no OTLP endpoint is set")
    servers: dict[tuple[str, str], list[Connection]] = {}
    for one in found:
        parts = urlsplit(one.address)
        where = one.address if one.protocol == "grpc" else f"{parts.scheme}://{parts.netloc}"
        servers.setdefault((one.protocol, where), []).append(one)
    for (protocol, where), some in servers.items():
        yield from _grpc(some) if protocol == "grpc" else _http(where, some)


def _http(where: str, some: list[Connection]) -> Iterator[Check]:
    """Send an empty request for each signal, until the server does not answer."""
    taken = []
    for one in some:
        is_json = one.protocol == "http/json"
        kind = "application/json" if is_json else "application/x-protobuf"
        answer = ask(
            one.endpoint,
            data=b"{}" if is_json else b"",
            headers=one.headers | {"Content-Type": kind},
            verify=one.certificate or True,
            cert=(one.client_certificate, one.client_key or one.client_certificate) if one.client_certificate else None,
        )
        if answer.problem:
            yield Check(_NAME, "failed", answer.problem, answer.fix)
            return
        if answer.status in _REFUSED:
            fix = "Correct OTEL_EXPORTER_OTLP_HEADERS."
            yield Check(_NAME, "failed", f"{one.address} refuses the credentials: status {answer.status}", fix)
        elif not 200 <= answer.status < 300:
            fix = "Check that it is the OTLP/HTTP port (4318 by default) and the path."
            yield Check(_NAME, "failed", f"{one.address} answers with status {answer.status}", fix)
        else:
            taken.append(one.signal.lower())
    if taken:
        yield Check(_NAME, "ok", f"{where} takes {wording.names(taken)}")


def _grpc(some: list[Connection]) -> Iterator[Check]:
    """Connect, which takes the certificates too."""
    import grpc

    one, signals = some[0], wording.names([one.signal.lower() for one in some])
    if one.secure:
        files = (one.certificate, one.client_key or one.client_certificate, one.client_certificate)
        roots, key, chain = (Path(file).read_bytes() if file else None for file in files)
        channel = grpc.secure_channel(one.endpoint, grpc.ssl_channel_credentials(roots, key, chain))
    else:
        channel = grpc.insecure_channel(one.endpoint)
    try:
        grpc.channel_ready_future(channel).result(timeout=PATIENCE_S)
    except grpc.FutureTimeoutError:
        what = f"{one.endpoint} does not answer as a gRPC server within {PATIENCE_S:g} s"
        fix = "Check the address, the gRPC port (4317 by default), its certificate, and that the server runs."
        yield Check(_NAME, "failed", what, fix)
    else:
        yield Check(_NAME, "ok", f"{one.endpoint} takes {signals} over gRPC")
    finally:
        channel.close()
