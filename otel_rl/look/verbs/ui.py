"""`otel-rl ui`: the page over all runs."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.output import say
from otel_rl.cli.runs import runs_directory
from otel_rl.recorder.errors import stop_signals
from otel_rl.recorder.settings import listeners, tokens

_PORT = 9470


@click.command(
    cls=Verb,
    section="look",
    extra="look",
    short_help="Show all runs in the browser, live.",
    examples={"ui": "all runs in OTEL_RL_DIR (runs)", "ui runs --port 9999": "those of a directory"},
)
@click.argument(
    "directories", metavar="[DIR]...", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address at which it listens.")
@click.option("--port", default=_PORT, show_default=True, help="The first port that is tried.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, path_type=Path),
    help="File with the token, from `otel-rl token`. By default OTEL_RL_TOKEN or OTEL_RL_TOKEN_FILE, else a new one.",
)
@click.option(
    "--insecure",
    is_flag=True,
    envvar=listeners.INSECURE_VARIABLE,
    help="Allow an address that other machines reach without TLS, for example behind an ingress that has it.",
)
def ui(directories: tuple[Path, ...], host: str, port: int, token_file: Path | None, insecure: bool) -> None:
    """Show the runs below directories in the browser, live: what each says, and what needs somebody.

    It reads files, and prints one link. The link has a token: whoever has it reads, marks and deletes the runs as you
    do. Without DIR, it is OTEL_RL_DIR (runs). On another machine, forward the port: ssh -L 9470:127.0.0.1:9470 HOST.
    """
    from otel_rl.look.ui.server import PageServer
    from otel_rl.recorder.errors import SettingsError

    stopped = threading.Event()
    stop_signals.set_at((signal.SIGTERM, signal.SIGINT), stopped)
    is_given = token_file or tokens.TOKEN_VARIABLE in os.environ or tokens.TOKEN_FILE_VARIABLE in os.environ
    try:
        valid = tokens.find(file=token_file) if is_given else None
        tls = listeners.server_tls(os.environ) if not listeners.is_loopback(host) else None
        listeners.check_endpoint(host, os.environ, has_token=True, insecure=insecure)
        server = PageServer(directories or (runs_directory(),), host=host, port=port, tokens=valid, tls=tls)
    except (SettingsError, OSError, ValueError, OverflowError) as error:
        raise click.ClickException(str(error)) from error
    say(server.link)
    say("The link has a token: whoever has it reads, marks and deletes these runs. Ctrl-C ends.", err=True)
    stop_signals.wait(stopped)
    server.close()
    logging.shutdown()
    os._exit(0)  # a verdict that is still being read must not keep the process alive
