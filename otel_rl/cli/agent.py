"""`otel-rl agent`: the agent of a run directory."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from otel_rl import directory as directories
from otel_rl import launch
from otel_rl.agent.process import GoneError, StartError, log_to_stderr, read_manifest, run_agent
from otel_rl.locks import is_held

if TYPE_CHECKING:
    from otel_rl.directory import RunDirectory

_SPARE_S = 30.0
"""Seconds beyond `idle_timeout` in which an agent that has nothing to do closes its exporters and ends."""


@click.command()
@click.argument("run_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--once", is_flag=True, help="Deliver what is there and exit: 0 if all of the run was delivered, 1 if some was not."
)
def agent(run_dir: Path, *, once: bool) -> None:
    """Run the agent of a run directory: deliver what its journals hold.

    With --once, an agent that is still at work after the training is waited for.
    """
    log_to_stderr()
    directory = directories.at(run_dir)
    try:
        complete = _deliver_once(directory) if once else run_agent(directory)
    except BlockingIOError:
        raise click.ClickException(f"another agent{_pid(directory)} is at work in {run_dir}") from None
    except (StartError, GoneError) as error:
        raise click.ClickException(str(error)) from None
    except FileNotFoundError as error:
        raise click.ClickException(f"{run_dir} is not a run directory: {error.filename} is missing") from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    if not complete:
        click.echo(launch.incomplete(launch.read_status(directory)), err=True)
    if recording := _recording(directory):
        complete = False
        click.echo(f"{recording} is still being recorded; run this again when the training has ended", err=True)
    sys.stdout.flush()
    logging.shutdown()
    os._exit(0 if complete else 1)  # a destination that hangs must not keep the process


def _deliver_once(directory: RunDirectory) -> bool:
    """Deliver what is there, when the agent that is at work has ended; return whether that was all."""
    if not launch.agent_is_alive(directory):
        return run_agent(directory, once=True)
    other = f"another agent{_pid(directory)} is at work in {directory.path}"
    if recording := _recording(directory):
        raise click.ClickException(
            f"{other} and delivers what {recording} records; run this again when the training has ended"
        )
    patience = read_manifest(directory).idle_timeout + _SPARE_S
    click.echo(f"{other}; waiting for its end, at most {patience:.0f} s", err=True)
    try:
        return run_agent(directory, once=True, patience=patience)
    except BlockingIOError:
        raise click.ClickException(
            f"{other} and has not ended within {patience:.0f} s; wait for it, or end it by SIGTERM and run this again"
        ) from None


def _recording(directory: RunDirectory) -> str:
    """Return the name of a journal whose process lives; empty if there is none."""
    return min((path.name for path in directory.journals.iterdir() if is_held(path)), default="")


def _pid(directory: RunDirectory) -> str:
    pid = launch.read_status(directory).pid
    return f" (pid {pid})" if pid else ""
