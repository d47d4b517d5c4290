"""`otel-rl bridge`."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.options import takes_exporters
from otel_rl.cli.output import say
from otel_rl.recorder.errors import stop_signals
from otel_rl.recorder.files.modes import SHARED, own_process
from otel_rl.recorder.settings import listeners, tokens

_FILE, _PATH = click.Path(exists=True, path_type=Path), click.Path(path_type=Path)
_END_WITHIN_S = 45
"""Seconds after SIGTERM at which the kernel ends the process, even if it hangs, for example on a disk."""


@click.command(
    cls=Verb,
    section="send",
    is_rare=True,
    short_help="Receive OTLP from any SDK, and export its rows.",
    examples={"bridge --to wandb,tensorboard": "on the ports of OTLP of this machine"},
)
@takes_exporters(["jsonl"])
@click.option(
    "--dir", "directory", type=_PATH, default="runs", show_default=True, help="Parent of the run directories."
)
@click.option("--http", default="127.0.0.1:4318", show_default=True, help="Address of OTLP/HTTP.")
@click.option("--grpc", default="127.0.0.1:4317", show_default=True, help="Address of OTLP/gRPC; empty for none.")
@click.option(
    "--token-file",
    type=_FILE,
    help="File with the clients' bearer tokens, from `otel-rl token`. By default OTEL_RL_TOKEN, OTEL_RL_TOKEN_FILE or "
    "the user's own token.",
)
@click.option(
    "--insecure",
    is_flag=True,
    envvar=listeners.INSECURE_VARIABLE,
    help="Allow addresses that other machines reach without TLS. They need a token all the same.",
)
@click.option("--tls-cert", type=_FILE, help="Certificate, as PEM; needs --tls-key.")
@click.option("--tls-key", type=_FILE, help="Private key of the certificate, as PEM.")
@click.option(
    "--share",
    type=click.Choice([*SHARED]),
    default="none",
    show_default=True,
    envvar="OTEL_RL_SHARE",
    help="Other users who may read the files.",
)
def bridge(
    exporters: tuple[str, ...],
    directory: Path,
    http: str,
    grpc: str,
    token_file: Path | None,
    insecure: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    share: str,
) -> None:
    """Receive OTLP from any SDK, and export each rl.step.metrics event to trackers exactly once."""
    stopped = threading.Event()
    # first of all, since process 1 of a container has no default for them
    stop_signals.set_at((signal.SIGTERM, signal.SIGINT), stopped, kill_after_s=_END_WITHIN_S)
    from otel_rl import export
    from otel_rl.recorder.agent.process import log_to_stderr
    from otel_rl.recorder.delivery import plugins
    from otel_rl.recorder.errors import SettingsError
    from otel_rl.recorder.settings import head
    from otel_rl.serve.bridge import rpc
    from otel_rl.serve.bridge.forwarding import IntoRuns, to_collector
    from otel_rl.serve.bridge.http import HttpServer
    from otel_rl.serve.bridge.runs import Runs

    log_to_stderr()
    own_process(share)
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("set both --tls-cert and --tls-key, or neither")
    try:
        place = head.parse(http)
        valid = tokens.find(file=token_file)
        for option, address in (("--http", http), *([("--grpc", grpc)] if grpc else [])):
            listeners.check(
                f"{option} {address}",
                head.parse(address).host,
                has_token=bool(valid),
                is_encrypted=tls_cert is not None,
                insecure=insecure,
                fix="give --tls-cert and --tls-key",
            )
        tls = listeners.context(str(tls_cert), str(tls_key)) if tls_cert else None
        for name in exporters:
            plugins.check(export.ENTRY_POINT_GROUP, name, {})
        runs = Runs(directory.absolute(), [(name, {}) for name in exporters])
        runs.resume()
        passes_on = any(name.startswith("otlp") for name in exporters)
        sink = IntoRuns(runs, to_collector(["METRICS", "LOGS"] if passes_on else [], own=[http, grpc]))
        server = HttpServer((place.host, place.port), sink, valid, tls)
        other = rpc.serve(grpc, sink, valid, _credentials(tls_cert, tls_key)) if grpc else None
    except (SettingsError, OSError, RuntimeError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    shown = f"http {place.host}:{server.port}" + (f", grpc port {other[1]}" if other else "")
    say(f"otel-rl bridge: {shown}; {', '.join(exporters)} into {directory}", err=True)
    stop_signals.wait(stopped)
    # `stop` returns at once: gRPC ends its requests while the HTTP server closes.
    ended = other[0].stop(1) if other else None
    server.close()
    if ended:
        ended.wait(5)
    complete = runs.close()
    if not complete:
        say("not everything was delivered; the next bridge with this directory delivers the rest", err=True)
    logging.shutdown()
    os._exit(0)  # a hanging exporter must not keep the process alive


def _credentials(cert: Path | None, key: Path | None) -> object:
    if cert is None or key is None:
        return None
    import grpc

    return grpc.ssl_server_credentials([(key.read_bytes(), cert.read_bytes())])
