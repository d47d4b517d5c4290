"""`otel-rl watch`: the agents of all runs below a directory, for trainers that do not start theirs."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from otel_rl import launch
from otel_rl.agent.process import log_to_stderr
from otel_rl.directory import RunDirectory
from otel_rl.settings import SettingsError


@click.command()
@click.argument("runs", type=click.Path(file_okay=False, path_type=Path))
@click.option("--every", default=1.0, show_default=True, help="Seconds between two looks.")
def watch(runs: Path, every: float) -> None:
    """Start an agent for each run below RUNS that has none and needs one, until told to end.

    For a sidecar or a service of the machine, beside trainers that record with OTEL_RL_AGENT=off. Both have to see the
    same files, and the same kernel: a journal's lock says whether its trainer is alive.
    """
    log_to_stderr()
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    failed: set[Path] = set()
    while not stopped.is_set():
        for directory in waiting(runs):
            if directory.path in failed:
                continue
            try:
                launch.ensure_agent(directory, show_output=False)
                click.echo(f"otel-rl watch: {directory.path}", err=True)
            except (SettingsError, OSError) as error:  # told once; the others go on
                failed.add(directory.path)
                click.echo(f"otel-rl watch: {directory.path}: {error}", err=True)
        stopped.wait(every)
    launch.end_agents(timeout=25.0)


def waiting(runs: Path) -> list[RunDirectory]:
    """Return the runs below a directory that have a journal which no agent has read to its end, and no agent."""
    found = [RunDirectory(path.parent.absolute()) for path in runs.glob("*/*/local")]
    return [directory for directory in found if _is_waiting(directory)]


def _is_waiting(directory: RunDirectory) -> bool:
    is_begun = directory.own_manifest.exists() or directory.manifest.exists()
    if not is_begun or not directory.journals.is_dir() or launch.agent_is_alive(directory):
        return False
    finished = launch.read_status(directory).finished
    return any(journal.name not in finished for journal in directory.journals.iterdir())
