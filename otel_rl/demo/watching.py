"""Watches the training of the demo: with the screen of `otel-rl top`, or with a line every ten steps."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from otel_rl.cli.ansi import this_terminal
from otel_rl.look.terminal import show, words
from otel_rl.recorder.archive.present import present_of
from otel_rl.recorder.archive.runs import place_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from otel_rl.recorder.archive.present import RunPresent

_EVERY_S = 0.2
_LINE_EVERY = 10
_SHOWN = {
    "reward": "reward",
    "exact match": "rewards/exact_match/mean",
    "seconds": "time/step",
}
"""Metrics of the lines, by what they are called there."""


class Watch:
    """Follows a run until its training has ended.

    Args:
        directory: The run directory, which the ranks are to make.
        steps: Number of steps that are trained.
        is_over: Returns whether the training has ended.
    """

    def __init__(self, directory: Path, steps: int, is_over: Callable[[], bool]) -> None:
        self._directory, self._steps, self._is_over = directory, steps, is_over
        self._has_screen = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
        self._printed = -1
        self._waits_for_row = False

    def follow(self, *, until_last_row: bool) -> None:
        """Show the run until the training has ended, or until there is a row of each step.

        Raises:
            KeyboardInterrupt: The reader pressed Ctrl-C.
        """
        self._waits_for_row = until_last_row
        while not self._has_begun():
            if self._is_over():
                return
            time.sleep(_EVERY_S)
        if self._has_screen and not show.live(
            place_of(self._directory), this_terminal(ascii_alone=False), self._is_done
        ):
            raise KeyboardInterrupt
        while not self._is_done():
            self._print_lines()
            time.sleep(_EVERY_S)

    def print_screen(self) -> None:
        """Print what is still missing, and the screen of the run."""
        if self._has_begun():
            if not self._has_screen:
                self._print_lines()
            for row in ("", *show.once(place_of(self._directory), this_terminal(ascii_alone=False)), ""):
                click.echo(row)

    def metrics(self) -> str | None:
        """Return the URL of the metrics endpoint."""
        return self._present().metrics if self._has_begun() else None

    def _has_begun(self) -> bool:
        return (self._directory / "run.json").exists()

    def _present(self) -> RunPresent:
        return present_of(place_of(self._directory))

    def _is_done(self) -> bool:
        if self._waits_for_row and self._has_begun():
            last = self._present().progress.last_step
            if last is not None and last + 1 >= self._steps:
                return True
        return self._is_over()

    def _print_lines(self) -> None:
        progress = self._present().progress
        values = {curve.name: dict(curve.points) for curve in progress.curves}
        for step in range(self._printed + 1, (-1 if progress.last_step is None else progress.last_step) + 1):
            self._printed = step
            if step == 0 or (step + 1) % _LINE_EVERY == 0 or step + 1 == self._steps:
                shown = {label: values.get(name, {}).get(step) for label, name in _SHOWN.items()}
                texts = (f"{label} {words.number(value)}" for label, value in shown.items() if value is not None)
                click.echo(f"step {step + 1:>4}/{self._steps}  {'  '.join(texts)}")
