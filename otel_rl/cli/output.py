"""Output of the verbs, for people or as JSON: texts from outside cannot act on the terminal."""

from __future__ import annotations

import sys
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from otel_rl.cli.answers import bounded
from otel_rl.recorder.errors.sinks import one_line, print_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import msgspec

    from otel_rl.cli.lines import Line


class Output(NamedTuple):
    """How a verb that looks at runs prints what it found."""

    as_json: bool | None  # whether it is JSON or text; `None` for text on a terminal, and JSON in a pipe or a file
    ascii_alone: bool  # if true, text has no characters outside of ASCII

    def is_json(self, *, is_text: bool = False) -> bool:
        """Return whether JSON is printed; `is_text` says that another option asks for text."""
        if self.as_json is None:
            return not (is_text or self.ascii_alone or sys.stdout.isatty())
        return self.as_json

    def show(self, answer: msgspec.Struct, draw: Callable[[int], Iterable[Line]]) -> None:
        """Print what was found, or the lines that `draw` returns for a width."""
        if self.is_json():
            say_json(answer)
            return
        from otel_rl.cli.ansi import painted, this_terminal
        from otel_rl.cli.lines import folded, width

        terminal = this_terminal(ascii_alone=self.ascii_alone)
        rows = list(draw(terminal.width))
        if terminal.is_terminal:
            rows = [
                part for row in rows for part in (folded(row, terminal.width) if width(row) > terminal.width else [row])
            ]
        for row in painted(rows, terminal):
            click.echo(row)


def shows(command: Callable[..., None]) -> Callable[..., None]:
    """Give a verb that looks at runs the options of its output, as the keyword `output`."""

    @click.option(
        "--json/--text", "as_json", default=None, help="Print JSON, or text. Default: text on a terminal, else JSON."
    )
    @click.option("--ascii", "ascii_alone", is_flag=True, help="Print text without characters outside of ASCII.")
    @wraps(command)
    def shown(*args: Any, as_json: bool | None, ascii_alone: bool, **options: Any) -> None:
        command(*args, output=Output(as_json, ascii_alone), **options)

    return shown


def say_json(answer: msgspec.Struct) -> None:
    """Print what was found as one line of JSON, which is not larger than the limit of all answers."""
    click.echo(bounded(answer))


def say(text: str, *, err: bool = False) -> None:
    """Print a line, to standard error if `err` is true, where one that cannot be written is left out."""
    if err:
        print_line(one_line(text))
    else:
        click.echo(one_line(text))
