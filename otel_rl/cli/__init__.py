"""The command line: `otel-rl demo`, `run`, `agent`, `watch`, `bridge` and `stack`."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import click

from otel_rl import launch
from otel_rl.agent.process import StartError, log_to_stderr, run_agent
from otel_rl.cli.bridge import bridge
from otel_rl.cli.demo.command import demo
from otel_rl.cli.run import run
from otel_rl.cli.stack import stack
from otel_rl.cli.watch import watch
from otel_rl.directory import RunDirectory


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="otel-rl")
def main() -> None:
    """The flight recorder for RL post-training."""


@main.command()
@click.argument("run_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--once", is_flag=True, help="Deliver what is there and exit: 0 if all of the run was delivered, 1 if some was not."
)
def agent(run_dir: Path, *, once: bool) -> None:
    """Run the agent of a run directory: deliver what its journals hold."""
    log_to_stderr()
    try:
        complete = run_agent(run_dir, once=once)
    except BlockingIOError:
        raise click.ClickException(f"another agent is at work in {run_dir}") from None
    except StartError as error:
        raise click.ClickException(str(error)) from None
    except FileNotFoundError as error:
        raise click.ClickException(f"{run_dir} is no run directory: {error.filename} is missing") from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    if not complete:
        click.echo(launch.incomplete(launch.read_status(RunDirectory(run_dir.absolute()))), err=True)
    sys.stdout.flush()
    logging.shutdown()
    os._exit(0 if complete else 1)  # a destination that hangs must not keep the process


main.add_command(bridge)
main.add_command(demo)
main.add_command(run)
main.add_command(stack)
main.add_command(watch)
