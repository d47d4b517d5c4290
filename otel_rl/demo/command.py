"""`otel-rl demo`."""

from __future__ import annotations

import importlib.util

import click

from otel_rl.demo.options import Options

DEFAULTS = Options()


@click.command()
@click.option("--steps", type=click.IntRange(min=1), default=DEFAULTS.steps, show_default=True, help="Steps of GRPO.")
@click.option("--ranks", type=click.IntRange(1, 16), default=DEFAULTS.ranks, show_default=True, help="Processes.")
@click.option("--seed", type=int, default=DEFAULTS.seed, show_default=True, help="The same seed trains the same.")
@click.option("--dir", "directory", default=DEFAULTS.dir, show_default=True, help="Where the run directory is made.")
@click.option("--hold", is_flag=True, help="Stay after training, and with it the metrics endpoint, until Ctrl-C.")
@click.option(
    "--exporter",
    "exporters",
    multiple=True,
    default=DEFAULTS.exporters,
    show_default=True,
    help="An exporter; may be repeated. W&B is offline.",
)
def demo(steps: int, ranks: int, seed: int, directory: str, hold: bool, exporters: tuple[str, ...]) -> None:
    """Train a small transformer by GRPO on arithmetic, and watch it being recorded.

    A real training run of about a minute, on the CPU.
    """
    if importlib.util.find_spec("torch") is None:
        raise click.ClickException("the demo trains with torch, which is not installed: pip install 'otel-rl[demo]'")
    from rich.console import Console

    from otel_rl import SettingsError
    from otel_rl.demo.perform import perform

    wanted = tuple(dict.fromkeys(("jsonl", *exporters)))  # the display reads what jsonl writes
    options = Options(steps=steps, ranks=ranks, seed=seed, dir=directory, exporters=wanted)
    try:
        code = perform(options, Console(), hold=hold)
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    raise SystemExit(code)
