"""`otel-rl stack`: Prometheus with the rules, Alertmanager, and servers for traces, for the runs of a directory."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from otel_rl.cli.commands import VerbGroup
from otel_rl.cli.options import RenamedOption
from otel_rl.cli.output import say
from otel_rl.recorder.agent.output.targets import opened, sweep
from otel_rl.recorder.files import programs
from otel_rl.recorder.files.asked_programs import ask
from otel_rl.recorder.files.atomic_files import write_atomically
from otel_rl.recorder.files.modes import PRIVATE, TRAVERSED, make_directory, open_file, own_process
from otel_rl.recorder.files.own_directory import OwnDirectory
from otel_rl.recorder.files.own_files import check_place, read_own
from otel_rl.recorder.settings import tokens
from otel_rl.serve.servers import PORTS, SERVERS, configurations, on_path, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_WING = Path(__file__).parents[1]
_READY_WITHIN_S = 60.0
"""Tempo alone waits for 15 s."""


@click.group(
    cls=VerbGroup,
    section="operate",
    short_help="Run Prometheus, Alertmanager and Grafana for your runs.",
    examples={"stack up": "for the runs in runs/", "stack status --json": "which of them are up"},
)
def stack() -> None:
    """Run Prometheus, Alertmanager and Grafana for the runs of a directory.

    With a container engine, it starts deploy/compose.yaml. Otherwise it starts the servers found on PATH, with the same
    configuration files: Prometheus, Alertmanager, Tempo or Jaeger, and the Collector. It says how to get those that are
    missing.
    """


_runs = click.option(
    "--dir",
    "runs",
    cls=RenamedOption,
    old=["--runs"],
    type=click.Path(path_type=Path),
    default="runs",
    show_default=True,
    help="Parent of the run directories.",
)


@stack.command()
@_runs
@click.option("--local", is_flag=True, help="Use the servers on PATH even if there is a container engine.")
def up(runs: Path, *, local: bool) -> None:
    """Start the servers."""
    own_process()
    make_directory(runs, PRIVATE.directory | TRAVERSED)
    _state(runs, makes=True)
    with _explained(runs / ".targets"), opened(runs / ".targets"):
        pass
    sweep(runs / ".targets", now=time.time())
    if not local:
        _run_in_containers(runs, "up", "-d")
    programs = on_path()
    state = prepare(runs, programs)
    failed = False
    for name in SERVERS:
        if name not in programs:
            say(f"{name}: {why_not(name)}")
        elif _running(state, name):
            say(f"{name}: running at http://127.0.0.1:{PORTS[name]}")
        elif problem := _start(name, programs[name], state):
            failed = True
            say(f"{name}: {problem}", err=True)
        else:
            say(f"{name}: http://127.0.0.1:{PORTS[name]} ({programs[name]})")
    say("grafana: not started: no container engine; you can import dashboards/grafana/*.json into yours")
    if "collector" in programs:
        say(f"for traces: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:{PORTS['otlp_http']}/v1/traces")
    sys.exit(int(failed))


@stack.command()
@_runs
def down(runs: Path) -> None:
    """Stop the servers; Prometheus's data stays."""
    state = _state(runs)
    pids = {name: pid for name in SERVERS if (pid := _running(state, name))}
    for name, pid in pids.items():
        os.kill(pid, signal.SIGTERM)
        say(f"{name}: stopped")
    deadline = time.monotonic() + _READY_WITHIN_S
    while any(_running(state, name) for name in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    if not pids:
        _run_in_containers(runs, "down")


@stack.command()
@_runs
@click.option("--json/--text", "as_json", default=False, help="Print JSON, or text.  [default: text]")
def status(runs: Path, *, as_json: bool) -> None:
    """Show the status of the servers. Exits with 1 if any of them is down."""
    state = _state(runs)
    known = [name for name in SERVERS if (state / f"{name}.pid").exists()]
    if not known:
        _run_in_containers(runs, "ps", *(["--format", "json"] if as_json else []))
    ready = {name: _running(state, name) > 0 and _answers(name) for name in known}
    if as_json:
        servers = [{"server": name, "ready": ready[name], "url": f"http://127.0.0.1:{PORTS[name]}"} for name in known]
        click.echo(msgspec.json.encode(servers))
    elif not known:
        say("no server was started here")
    else:
        for name, is_ready in ready.items():
            say(f"{name}: {'ready' if is_ready else 'not running'}, http://127.0.0.1:{PORTS[name]}")
    sys.exit(0 if ready and all(ready.values()) else 1)


def prepare(runs: Path, programs: Mapping[str, str]) -> Path:
    """Write the configuration of the servers; return its directory."""
    state, deploy, dashboards = _state(runs, makes=True), _files("deploy"), _files("dashboards")
    texts = configurations(deploy, programs)
    write_atomically(state / "scrape-token", tokens.find(use="scrape").first.encode(), PRIVATE.file)
    for name, text in texts.items():
        write_atomically(state / name, text.replace("{state}", str(state)).encode())
    alertmanagers = [{"targets": [f"127.0.0.1:{PORTS['alertmanager']}"]}]
    write_atomically(state / "alertmanagers.json", msgspec.json.encode(alertmanagers))
    for link, target in (("rules", dashboards / "rules"), ("targets", (runs / ".targets").absolute())):
        (state / link).unlink(missing_ok=True)
        (state / link).symlink_to(target)
    return state


def _start(name: str, program: str, state: Path) -> str:
    """Start a server; return what went wrong, empty if it answers."""
    # Before the start: a server of somebody else on the port would count as this one being ready.
    if _answers(name):
        return f"port {PORTS[name]} is in use by another program"
    arguments = [argument.format(state=state, **PORTS) for argument in SERVERS[name].arguments]
    with open(state / f"{name}.log", "ab", opener=open_file) as log:
        process = programs.start([program, *arguments], output=log, errors=log, is_detached=True)
    deadline = time.monotonic() + _READY_WITHIN_S
    while not _answers(name):
        if process.poll() is not None or time.monotonic() > deadline:
            process.terminate()
            return f"{program} did not start; see {state / name}.log"
        time.sleep(0.1)
    write_atomically(state / f"{name}.pid", str(process.pid).encode())
    return ""


def _state(runs: Path, *, makes: bool = False) -> Path:
    """Return the directory of the servers, which no other user made or can replace: programs believe what it has.

    Raises:
        ClickException: Another user can have, or it cannot be made.
    """
    state = (runs / ".stack").absolute()
    if makes or os.path.lexists(state):
        with _explained(state), OwnDirectory(state, PRIVATE.directory, makes=makes):
            check_place(state.parent)
    return state


@contextlib.contextmanager
def _explained(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise click.ClickException(f"{place} cannot be used: {error}") from error


def _files(name: str) -> Path:
    """Return a directory of the distribution: next to the package in a checkout, inside this wing when installed."""
    installed = _WING / "files" / name
    return installed if installed.is_dir() else _WING.parents[1] / name


def _run_in_containers(runs: Path, *arguments: str) -> None:
    """Run a command of compose and exit with its status, if there is a working container engine."""
    for engine in (["docker", "compose"], ["podman", "compose"]):
        if shutil.which(engine[0]) is None:
            continue
        asked = [[engine[0], "info"], [*engine, "version"]]
        if all(map(_succeeds, asked)):
            command = [*engine, "-p", "otel-rl", "-f", str(_files("deploy") / "compose.yaml"), *arguments]
            environment = os.environ | {"RUNS": str(runs.absolute())}
            raise SystemExit(programs.start(command, environment=environment, reads=None).wait())


def _succeeds(command: list[str]) -> bool:
    """Return whether a program ends well; a daemon that hangs may hold it up."""
    try:
        return ask(command, within=30.0).code == 0
    except programs.TooLate:
        return False


def _running(state: Path, name: str) -> int:
    """Return the pid of a running server that was started here, else 0; a pid reused by another program is 0."""
    try:
        pid = int(read_own(state / f"{name}.pid"))
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return 0
    # After a reboot, the number in the file can be another program's, which `down` would end.
    return pid if os.fsencode(state) in command else 0


def _answers(name: str) -> bool:
    try:
        url = f"http://127.0.0.1:{PORTS[name]}{SERVERS[name].ready}"
        from otel_rl.recorder.otlp import http_client  # nothing else of the command line needs it

        return http_client.ask(url, within=2, uses_proxies=False).is_good
    except OSError:
        return False
