"""`otel-rl stack`: Prometheus with the rules, Alertmanager and optional servers for the runs of a directory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from otel_rl.agent.output.targets import sweep

_HERE = Path(__file__).parents[1]
_READY_WITHIN_S = 20.0


class Server(NamedTuple):
    """A server of the stack that can run without a container.

    Attributes:
        programs: Its possible names on PATH, in order of preference.
        arguments: With `{state}` for the directory of the stack and `{port}` for its port on loopback.
    """

    programs: tuple[str, ...]
    arguments: tuple[str, ...]
    port: int


SERVERS = {
    "alertmanager": Server(
        ("alertmanager", "prometheus-alertmanager"),
        (
            "--config.file={state}/alertmanager.yml",
            "--storage.path={state}/alertmanager",
            "--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ),
        9093,
    ),
    "prometheus": Server(
        ("prometheus",),
        (
            "--config.file={state}/prometheus.yml",
            "--storage.tsdb.path={state}/prometheus",
            "--web.listen-address=127.0.0.1:{port}",
            "--enable-feature=exemplar-storage",
        ),
        9090,
    ),
}
"""The servers that run without containers; the compose file adds Grafana, Tempo and the Collector."""


@click.group(short_help="Run Prometheus, Alertmanager and Grafana for your runs.")
def stack() -> None:
    """Run Prometheus, Alertmanager and Grafana for the runs of a directory.

    With a container engine, it starts deploy/compose.yaml. Otherwise it starts the servers found on PATH, with the same
    configuration files but without Grafana.
    """


_runs = click.option(
    "--runs", type=click.Path(path_type=Path), default="runs", show_default=True, help="Parent of the run directories."
)


@stack.command()
@_runs
@click.option("--local", is_flag=True, help="Use the servers on PATH even if there is a container engine.")
def up(runs: Path, *, local: bool) -> None:
    """Start the servers."""
    (runs / ".targets").mkdir(parents=True, exist_ok=True)
    sweep(runs / ".targets", now=time.time())
    if not local:
        _run_in_containers(runs, "up", "-d")
    state = prepare(runs)
    for name, server in SERVERS.items():
        program = next(filter(None, map(shutil.which, server.programs)), None)
        if program is None:
            click.echo(f"{name}: not started: {' or '.join(server.programs)} is not on PATH")
        elif _running(state, name):
            click.echo(f"{name}: running at http://127.0.0.1:{server.port}")
        else:
            _start(name, server, program, state)
    click.echo("grafana, tempo, collector: not started: no container engine; you can import dashboards/grafana/*.json")


@stack.command()
@_runs
def down(runs: Path) -> None:
    """Stop the servers; Prometheus's data stays."""
    state = _state(runs)
    pids = {name: pid for name in SERVERS if (pid := _running(state, name))}
    for name, pid in pids.items():
        os.kill(pid, signal.SIGTERM)
        click.echo(f"{name}: stopped")
    deadline = time.monotonic() + _READY_WITHIN_S
    while any(_running(state, name) for name in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    if not pids:
        _run_in_containers(runs, "down")


@stack.command()
@_runs
def status(runs: Path) -> None:
    """Show the status of the servers. Exits with 1 if any of them is down."""
    state = _state(runs)
    known = {name: server for name, server in SERVERS.items() if (state / f"{name}.pid").exists()}
    if not known:
        _run_in_containers(runs, "ps")
    ready = {name: _running(state, name) > 0 and _answers(server) for name, server in known.items()}
    for name, is_ready in ready.items():
        click.echo(f"{name}: {'ready' if is_ready else 'not running'}, http://127.0.0.1:{SERVERS[name].port}")
    if not known:
        click.echo("no server was started here")
    sys.exit(0 if ready and all(ready.values()) else 1)


def prepare(runs: Path) -> Path:
    """Write the configuration of the servers; return its directory."""
    state, deploy, dashboards = _state(runs), _files("deploy"), _files("dashboards")
    state.mkdir(parents=True, exist_ok=True)
    for source in (deploy / "prometheus" / "prometheus.yml", deploy / "alertmanager" / "alertmanager.yml"):
        shutil.copy(source, state)
    alertmanagers = [{"targets": [f"127.0.0.1:{SERVERS['alertmanager'].port}"]}]
    (state / "alertmanagers.json").write_bytes(msgspec.json.encode(alertmanagers))
    for link, target in (("rules", dashboards / "rules"), ("targets", (runs / ".targets").absolute())):
        (state / link).unlink(missing_ok=True)
        (state / link).symlink_to(target)
    return state


def _start(name: str, server: Server, program: str, state: Path) -> None:
    if _answers(server):
        raise click.ClickException(f"{name}: port {server.port} is in use by another program")
    arguments = [argument.format(state=state, port=server.port) for argument in server.arguments]
    with (state / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [program, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.monotonic() + _READY_WITHIN_S
    while not _answers(server):
        if process.poll() is not None or time.monotonic() > deadline:
            raise click.ClickException(f"{name} did not start; see {state / name}.log")
        time.sleep(0.1)
    (state / f"{name}.pid").write_text(str(process.pid))
    click.echo(f"{name}: http://127.0.0.1:{server.port}")


def _state(runs: Path) -> Path:
    return (runs / ".stack").absolute()


def _files(name: str) -> Path:
    """Return a directory of the distribution: next to the package in a checkout, inside it when installed."""
    installed = _HERE / "files" / name
    return installed if installed.is_dir() else _HERE.parent / name


def _run_in_containers(runs: Path, *arguments: str) -> None:
    """Run a command of compose and exit with its status, if there is a working container engine."""
    for engine in (["docker", "compose"], ["podman", "compose"]):
        if shutil.which(engine[0]) is None:
            continue
        asked = [[engine[0], "info"], [*engine, "version"]]
        if all(subprocess.run(command, capture_output=True, check=False).returncode == 0 for command in asked):
            command = [*engine, "-p", "otel-rl", "-f", str(_files("deploy") / "compose.yaml"), *arguments]
            environment = os.environ | {"RUNS": str(runs.absolute())}
            raise SystemExit(subprocess.run(command, env=environment, check=False).returncode)


def _running(state: Path, name: str) -> int:
    """Return the pid of a running server that was started here, else 0; a pid reused by another program is 0."""
    try:
        pid = int((state / f"{name}.pid").read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return 0
    return pid if os.fsencode(state) in command else 0


def _answers(server: Server) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
