"""`otel-rl run`: record a trainer without changing its code."""

from __future__ import annotations

import os
from pathlib import Path

import click

from otel_rl.semconv.frameworks import INSTRUMENTED

_SITE = Path(__file__).parents[1] / "integrations" / "site"


@click.command(
    short_help="Record a trainer without changing its code.", context_settings={"ignore_unknown_options": True}
)
@click.option(
    "--instrument",
    default="",
    help="Frameworks to instrument, separated by commas, or all: "
    f"{', '.join(INSTRUMENTED)}. In addition to all: torch, for loops of your own.  [default: all]",
)
@click.option(
    "--capture",
    default="",
    help="Trackers whose logged values are captured, separated by commas: wandb, tensorboard, mlflow, swanlab, "
    "trackio.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(instrument: str, capture: str, command: tuple[str, ...]) -> None:
    """Run a trainer and its child processes, and record them: otel-rl run -- python train.py.

    OTEL_RL_* variables and otel-rl.toml configure it, as for `otel_rl.init`.
    """
    from otel_rl.integrations.instrument import ON_REQUEST, TRACKERS
    from otel_rl.setup.settings import CAPTURE_VARIABLE, INSTRUMENT_VARIABLE

    chosen = instrument or os.environ.get(INSTRUMENT_VARIABLE, "") or "all"
    captured = capture or os.environ.get(CAPTURE_VARIABLE, "")
    for names, known in ((chosen, (*INSTRUMENTED, *ON_REQUEST)), (captured, TRACKERS)):
        unknown = [name for name in names.split(",") if name not in ("", "all", *known)]
        if unknown:
            raise click.UsageError(f"unknown name {unknown[0]!r}: must be one of {', '.join(known)}")
    paths = [str(_SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {INSTRUMENT_VARIABLE: chosen, "PYTHONPATH": os.pathsep.join(paths)}
    environment |= {CAPTURE_VARIABLE: captured} if captured else {}
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise click.ClickException(f"{command[0]}: {error.strerror}") from error
