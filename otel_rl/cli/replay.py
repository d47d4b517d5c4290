"""`otel-rl replay`: give what a run recorded to other exporters."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from pathlib import Path

import click

from otel_rl.cli.runs import Run
from otel_rl.cli.terminal import say, say_json
from otel_rl.journal.modes import own_process


@click.command(short_help="Give a run to other exporters, such as W&B.")
@click.argument("run", type=Run())
@click.option(
    "--to", "names", required=True, help="Exporters, separated by commas: wandb, mlflow, tensorboard, otlp, …"
)
@click.option(
    "-o",
    "--output",
    "into",
    type=click.Path(file_okay=False, path_type=Path),
    help="A directory for files that exporters write, by project and run.  [default: the run directory]",
)
@click.option("--again", is_flag=True, help="Forget earlier replays; destinations still say what they have.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def replay(run: Path, names: str, into: Path | None, *, again: bool, as_json: bool) -> None:
    """Give what RUN recorded to exporters that it did not have, with its own times, steps and attempts.

    RUN is a run directory, a directory of runs (the newest one), the id or the name of a run in OTEL_RL_DIR (runs), or
    newest. A run without an archive has the rows of its rows.jsonl.

    A second replay to the same destination adds what the run has recorded since, and nothing twice. Options of
    exporters come from their own variables, such as WANDB_MODE, and from the settings file, otel-rl.toml. Exits with 1
    if something was not delivered.
    """
    from otel_rl.agent.process import log_to_stderr

    log_to_stderr()
    own_process()
    is_complete = give(run, [one.strip() for one in names.split(",")], into, again=again, as_json=as_json)
    end(is_complete=is_complete)


def give(run: Path, names: list[str], into: Path | None, *, again: bool, as_json: bool) -> bool:
    """Replay a run, and print what was new to each exporter; return whether everything was delivered."""
    from otel_rl.agent.process import StartError
    from otel_rl.agent.replay import exporters_of
    from otel_rl.agent.replay import replay as deliver
    from otel_rl.errors import SettingsError

    try:
        found = deliver(run, exporters_of(names), partial(say, err=True), into=into, again=again)
    except BlockingIOError:
        raise click.ClickException(f"another process replays {run} to the same destination") from None
    except PermissionError as error:
        raise click.ClickException(f"{error.filename} cannot be written; give another directory: -o DIR") from None
    except (SettingsError, StartError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        say_json(found)
        return found.complete
    for name, new in found.new.items():
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(new.items()))
        nothing = "nothing new; --again asks the destination what it has" if found.complete else "nothing"
        say(f"{name}: {kinds or nothing}")
    return found.complete


def end(*, is_complete: bool) -> None:
    """End the process: an exporter that hangs must not keep it alive."""
    sys.stdout.flush()
    logging.shutdown()
    os._exit(0 if is_complete else 1)
