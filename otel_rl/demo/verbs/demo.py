"""`otel-rl demo`."""

from __future__ import annotations

import importlib.util

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.options import takes_exporters
from otel_rl.demo.options import Options

DEFAULTS = Options()


@click.command(
    cls=Verb,
    section="record",
    extra="demo",
    short_help="Train a small transformer by GRPO, recorded.",
    examples={"demo --steps 60": "about a minute on two cores"},
)
@click.option(
    "--steps", type=click.IntRange(min=1), default=DEFAULTS.steps, show_default=True, help="Number of GRPO steps."
)
@click.option(
    "--ranks", type=click.IntRange(1, 16), default=DEFAULTS.ranks, show_default=True, help="Trainer processes."
)
@click.option("--seed", type=int, default=DEFAULTS.seed, show_default=True, help="Seed of weights and prompts.")
@click.option("--dir", "directory", default=DEFAULTS.dir, show_default=True, help="Parent of the run directory.")
@click.option("--hold", is_flag=True, help="Keep the metrics endpoint up after training, until Ctrl-C.")
@takes_exporters(DEFAULTS.exporters)
def demo(steps: int, ranks: int, seed: int, directory: str, hold: bool, exporters: tuple[str, ...]) -> None:
    """Train a small transformer on arithmetic by GRPO, and show the run as `otel-rl top` does.

    A real training run on the CPU, of 2 to 5 minutes on two cores. W&B runs offline.
    """
    if importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError(name="torch")
    from otel_rl import SettingsError
    from otel_rl.demo.processes import perform
    from otel_rl.recorder.files.modes import own_process

    own_process()
    options = Options(steps=steps, ranks=ranks, seed=seed, dir=directory, exporters=exporters)
    try:
        code = perform(options, hold=hold)
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    raise SystemExit(code)
