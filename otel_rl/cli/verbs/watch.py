"""`otel-rl watch`: start the agents of all runs in a directory, for trainers that do not start their own."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.output import say
from otel_rl.recorder.agent.output.targets import REFRESH_S, sweep
from otel_rl.recorder.archive.runs import in_projects
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.errors import SettingsError, stop_signals
from otel_rl.recorder.files.locks import is_held
from otel_rl.recorder.files.modes import own_process

if TYPE_CHECKING:
    from otel_rl.recorder.directory.directory import RunDirectory

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 300.0


class _Failure(NamedTuple):
    """A failure to start the agent of a run."""

    pause: float = _FIRST_PAUSE_S  # seconds to wait after the next failure
    again_at: float = 0.0  # when it is retried, in seconds of the monotonic clock
    text: str = ""


@click.command(
    cls=Verb,
    section="operate",
    is_rare=True,
    short_help="Start the missing agents of all runs in a directory.",
    examples={"watch runs": "for trainers with OTEL_RL_AGENT=off"},
)
@click.argument("runs", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--every", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, help="Seconds between two scans."
)
def watch(runs: Path, every: float) -> None:
    """Start an agent for each run in RUNS that needs one, until SIGTERM or Ctrl-C.

    It also removes the scrape targets of killed agents. Use it in a sidecar or a service, for trainers that record with
    OTEL_RL_AGENT=off. It must share the files and the kernel with the trainers, because a file lock shows whether a
    trainer is alive.
    """
    from otel_rl.recorder.agent.process import log_to_stderr

    log_to_stderr()
    own_process()
    stopped = threading.Event()
    stop_signals.set_at((signal.SIGTERM, signal.SIGINT), stopped)
    failed: dict[Path, _Failure] = {}
    sweep_at = 0.0
    while not stopped.is_set():
        if time.monotonic() >= sweep_at:
            sweep_at = time.monotonic() + REFRESH_S
            sweep(runs / ".targets", now=time.time())
        for directory in waiting(runs):
            failure = failed.get(directory.path, _Failure())
            if time.monotonic() < failure.again_at:
                continue
            try:
                _check_code(directory)
                agent_start.ensure_agent(directory, show_output=False)
            except (SettingsError, OSError) as error:
                pause, again_at = min(2 * failure.pause, _LONGEST_PAUSE_S), time.monotonic() + failure.pause
                failed[directory.path] = _Failure(pause, again_at, str(error))
                if failure.text != str(error):
                    say(f"otel-rl watch: {directory.path}: {error}; will retry", err=True)
            else:
                failed.pop(directory.path, None)
                say(f"otel-rl watch: {directory.path}", err=True)
        stopped.wait(every)
    agent_start.end_agents(timeout=25.0)


def _check_code(directory: RunDirectory) -> None:
    """Check that an agent imports what a trainer named, and not a run that somebody has put here.

    Only a trainer of this user holds a lock of its journal. Whoever holds one can run code anyway.

    Raises:
        SettingsError: The run names code of its own, and none of its processes lives here.
    """
    try:
        named = [name for name, _ in directories.read_manifest(directory).exporters if ":" in name]
    except ValueError:
        return  # the agent itself says how it is damaged
    if named and not any(map(is_held, directory.journals.iterdir())):
        raise SettingsError(
            f"run.json names code, {named[0]}, and no process of the run lives: read it, then deliver the run with: "
            f"otel-rl agent {directory.path} --once"
        )


def waiting(runs: Path) -> list[RunDirectory]:
    """Return the runs that have no agent, and a journal that was not completely delivered."""
    directories_of_runs: list[RunDirectory] = []
    for run in in_projects(runs.absolute()):
        with contextlib.suppress(OSError):  # what others put there must not keep this user's runs from their agents
            directories_of_runs += filter(_is_waiting, directories.here(run))
    return directories_of_runs


def _is_waiting(directory: RunDirectory) -> bool:
    is_begun = directory.own_manifest.exists() or directory.manifest.exists()
    if not is_begun or not directory.journals.is_dir() or agent_start.is_looked_after(directory):
        return False
    finished = agent_start.read_status(directory).finished
    return any(journal.name not in finished for journal in directory.journals.iterdir())
