"""`otel-rl run`: record a trainer without changing its code."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.output import say
from otel_rl.semconv.frameworks import hooked

if TYPE_CHECKING:
    from collections.abc import Sequence

_FRAMEWORKS = ", ".join(hooked("framework"))
_SITE = Path(__file__).parents[1] / "site"


@click.command(
    cls=Verb,
    section="record",
    short_help="Record a trainer without changing its code.",
    examples={
        "run -- python train.py": "all known frameworks",
        "run --instrument trl --capture wandb -- torchrun train.py": "one of them, and what it logs to W&B",
    },
    context_settings={"ignore_unknown_options": True},
)
@click.option(
    "--instrument",
    default="",
    help=f"Frameworks to instrument, separated by commas, or all: {_FRAMEWORKS}. In addition to all: torch, for loops "
    "of your own.  [default: all]",
)
@click.option(
    "--capture",
    default="",
    help="Trackers whose logged values are captured, separated by commas: wandb, tensorboard, mlflow, swanlab, "
    "trackio.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(instrument: str, capture: str, command: tuple[str, ...]) -> None:
    """Run a trainer and its child processes, and record them.

    OTEL_RL_* variables and otel-rl.toml configure it, as for `otel_rl.init`.
    """
    from otel_rl.recorder.settings.settings import CAPTURE_VARIABLE, INSTRUMENT_VARIABLE, STARTED_VARIABLE, TEE_VARIABLE

    chosen = instrument or os.environ.get(INSTRUMENT_VARIABLE, "") or "all"
    captured = capture or os.environ.get(CAPTURE_VARIABLE, "")
    for names, known in ((chosen, hooked("framework") | hooked("library")), (captured, hooked("tracker"))):
        unknown = [name for name in names.split(",") if name not in ("", "all", *known)]
        if unknown:
            raise click.UsageError(f"unknown name {unknown[0]!r}: must be one of {', '.join(known)}")
    if option := _isolating(command):
        say(
            f"otel-rl: nothing is recorded: with {option}, Python ignores PYTHONPATH, which has otel-rl's hooks; leave "
            "it out, or call otel_rl.frameworks.instrument.from_environment(os.environ) in the script",
            err=True,
        )
    paths = [str(_SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {INSTRUMENT_VARIABLE: chosen, "PYTHONPATH": os.pathsep.join(paths)}
    environment |= {CAPTURE_VARIABLE: captured} if captured else {}
    environment[STARTED_VARIABLE] = str(os.getpid())
    environment.setdefault(TEE_VARIABLE, "1")
    try:
        # The trainer takes the place of this process: signals of a batch system and the exit code need no forwarding.
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise click.ClickException(f"{command[0]}: {error.strerror}") from error


def _isolating(command: Sequence[str]) -> str:
    """Return the option with which the first Python of a command does not import otel-rl's hooks; empty if none."""
    is_python = [bool(re.fullmatch(r"python[0-9.]*", Path(argument).name)) for argument in command]
    options = iter(command[is_python.index(True) + 1 :] if any(is_python) else ())
    for option in options:
        if not re.fullmatch("-[a-zA-Z].*", option) or option[1] in "cm":
            break
        if option in ("-W", "-X"):
            next(options, None)
        elif option[1] not in "WX" and not {"I", "E", "S"}.isdisjoint(option):
            return option
    return ""
