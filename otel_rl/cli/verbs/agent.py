"""`otel-rl agent`: the agent of a run directory."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.output import say
from otel_rl.cli.runs import RunArgument
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.files.modes import own_process

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    cls=Verb,
    section="operate",
    short_help="Deliver the records of a run directory.",
    examples={"agent newest --once": "deliver what is on this disk, and exit"},
)
@click.argument("run_dir", metavar="RUN", type=RunArgument())
@click.option(
    "--once", is_flag=True, help="Deliver all recorded data and exit, with 1 if some of the run was not delivered."
)
def agent(run_dir: Path, *, once: bool) -> None:
    """Run the agent of a run: deliver the records of its journals.

    RUN is a run directory, a directory of runs (the newest one), the id or the name of a run in OTEL_RL_DIR (runs), or
    newest.

    With --once, it delivers everything that this machine can reach, and reports data that is only on other machines. If
    another agent is still delivering after the training, it waits for that agent. It opens no ports.
    """
    from otel_rl.cli.late.once import LateDelivery
    from otel_rl.recorder.agent.agent import GoneError
    from otel_rl.recorder.agent.process import StartError, log_to_stderr

    log_to_stderr()
    own_process()
    try:
        complete = LateDelivery(run_dir, partial(say, err=True)).deliver() if once else _run(run_dir)
    except FileNotFoundError as error:
        raise click.ClickException(f"{run_dir} is not a run directory: {error.filename} is missing") from None
    except (StartError, GoneError, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from None
    sys.stdout.flush()
    logging.shutdown()
    os._exit(0 if complete else 1)  # a hanging exporter must not keep the process alive


def _run(run_dir: Path) -> bool:
    from otel_rl.recorder.agent.process import run_agent

    directory = directories.at(run_dir)
    try:
        complete = run_agent(directory)
    except BlockingIOError:
        pid = agent_start.read_status(directory).pid
        raise click.ClickException(f"another agent{f' (pid {pid})' if pid else ''} runs in {run_dir}") from None
    if not complete:
        say(agent_start.incomplete(agent_start.read_status(directory)), err=True)
    return complete
