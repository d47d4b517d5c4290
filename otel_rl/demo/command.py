"""`otel-rl demo`."""

from __future__ import annotations

import importlib.util

import click

from otel_rl.demo.options import Options

DEFAULTS = Options()


@click.command(short_help="Train a small transformer by GRPO, recorded.")
@click.option(
    "--steps", type=click.IntRange(min=1), default=DEFAULTS.steps, show_default=True, help="Number of GRPO steps."
)
@click.option(
    "--ranks", type=click.IntRange(1, 16), default=DEFAULTS.ranks, show_default=True, help="Trainer processes."
)
@click.option("--seed", type=int, default=DEFAULTS.seed, show_default=True, help="Seed of weights and prompts.")
@click.option("--dir", "directory", default=DEFAULTS.dir, show_default=True, help="Parent of the run directory.")
@click.option("--hold", is_flag=True, help="Keep the metrics endpoint up after training, until Ctrl-C.")
@click.option(
    "--exporter",
    "exporters",
    multiple=True,
    default=DEFAULTS.exporters,
    show_default=True,
    help="An exporter; may be repeated. W&B runs offline.",
)
def demo(steps: int, ranks: int, seed: int, directory: str, hold: bool, exporters: tuple[str, ...]) -> None:
    """Train a small transformer on arithmetic by GRPO, and show the run as `otel-rl top` does.

    A real training run on the CPU, of 2 to 5 minutes on two cores.
    """
    if importlib.util.find_spec("torch") is None:
        raise click.ClickException("the demo needs torch: pip install 'otel-rl[demo]'")
    from otel_rl import SettingsError
    from otel_rl.demo.processes import perform
    from otel_rl.journal.modes import own_process

    own_process()
    options = Options(steps=steps, ranks=ranks, seed=seed, dir=directory, exporters=exporters)
    try:
        code = perform(options, hold=hold)
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    raise SystemExit(code)
