"""Shows a run: once as text, or until the reader quits, with a first screen at once while Textual is loaded."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from otel_rl.cli.ansi import painted
from otel_rl.look.insight.facts import Facts
from otel_rl.look.terminal import overview, text_pages
from otel_rl.look.terminal.scene import Scene
from otel_rl.recorder.archive.present import RunPresent, present_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from otel_rl.cli.ansi import Terminal
    from otel_rl.recorder.archive.runs import Place


class RunStatus(Facts, frozen=True, kw_only=True):
    """The facts of a run, and its present at the same moment."""

    present: RunPresent  # its processes, its last steps, and who waits for whom


class Statuses(msgspec.Struct, frozen=True, kw_only=True):
    """The present of runs, in the order in which they are named."""

    runs: tuple[RunStatus, ...]


_ALTERNATE, _BACK = "\x1b[?1049h\x1b[H\x1b[2J\x1b[?25l", "\x1b[?1049l\x1b[?25h"
_ROWS_ALONE = 64
"""Processes that a text shows which nobody can scroll."""


def once(place: Place, terminal: Terminal) -> list[str]:
    """Return the screen of a run as lines of text, with what was found; to a pipe, as high as it needs to be."""
    from otel_rl.look.terminal.past import Past  # loads DuckDB

    past, at = Past(str(place.path)), time.time_ns()
    present = past.present(at)
    curves = past.curves(curve.name for curve in present.progress.curves)
    scene = Scene(present=present, facts=past.facts(at), curves=curves)
    height = terminal.height - 1 if terminal.is_terminal else 28 + min(len(scene.present.processes), _ROWS_ALONE)
    drawn = overview.draw(scene, terminal.width, height, None)
    return painted(drawn.lines, terminal)


def statuses(places: Sequence[Place]) -> Statuses:
    """Return the present of runs and what was found, for programs."""
    return Statuses(runs=tuple(status(place) for place in places))


def status(place: Place) -> RunStatus:
    """Return the present of a run and what was found."""
    from otel_rl.look.terminal.past import Past  # loads DuckDB

    past, at = Past(str(place.path)), time.time_ns()
    facts = past.facts(at)
    known = {field: getattr(facts, field) for field in facts.__struct_fields__}
    return RunStatus(present=past.present(at), **known)


def live(
    place: Place,
    terminal: Terminal,
    is_over: Callable[[], bool] | None = None,
    newest: Callable[[], Place | None] | None = None,
) -> bool:
    """Show a run until the reader quits, or `is_over` returns true; return false after Ctrl-C.

    Args:
        place: The run directory.
        terminal: The terminal.
        is_over: Returns whether to end.
        newest: Returns the run to show instead; by default, it stays the same.
    """
    present = present_of(place)
    with _taken():
        scene = Scene(present=present)
        drawn = overview.draw(scene, terminal.width, terminal.height - 1, 0)
        lines = [*drawn.lines, *[()] * (terminal.height - 1 - len(drawn.lines))][: terminal.height - 1]
        keys = text_pages.keys(scene, terminal.width, "run")
        sys.stdout.write(_ALTERNATE + "\r\n".join(painted([*lines, keys], terminal)))
        sys.stdout.flush()
        from otel_rl.look.terminal.app import Top  # loads Textual, which takes most of a second

        app = Top(place, present, has_unicode=terminal.has_unicode, is_over=is_over, newest=newest)
        return bool(app.run())


@contextlib.contextmanager
def _taken() -> Iterator[None]:
    """Take the terminal: keys are not echoed before the application reads them; give it back in any case."""
    import termios

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    quiet = termios.tcgetattr(keyboard)
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(keyboard, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        sys.stdout.write(_BACK)
        sys.stdout.flush()
