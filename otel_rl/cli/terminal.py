"""Output and errors of the commands, for people or as JSON: texts from outside cannot act on the terminal."""

from __future__ import annotations

import os
import sys
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from otel_rl.errors.sinks import one_line
from otel_rl.view.answers import bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import msgspec

    from otel_rl.view.terminal.lines import Line


class Commands(click.Group):
    """Commands whose errors, those of files too, are one line each without control characters."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command line with the standard streams that were closed; those are `None` in Python."""
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:
                setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115
        try:
            return super().main(*args, **options)
        except OSError as error:  # not a broken pipe, as of `| head`, after which click ends quietly
            where = f"{error.filename}: " if error.filename else ""
            say(f"Error: {where}{error.strerror or error}", err=True)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.message = one_line(error.message)  # type: ignore[misc] # its subclasses are shown in other ways
            raise


class Output(NamedTuple):
    """How a verb that looks at runs prints what it found.

    Attributes:
        as_json: Whether it is JSON or text; `None` for text on a terminal, and JSON in a pipe or a file.
        ascii_alone: If true, text has no characters outside of ASCII.
    """

    as_json: bool | None
    ascii_alone: bool

    def is_json(self, *, is_text: bool = False) -> bool:
        """Return whether JSON is printed; `is_text` says that another option asks for text."""
        if self.as_json is None:
            return not (is_text or self.ascii_alone or sys.stdout.isatty())
        return self.as_json

    def show(self, found: msgspec.Struct, draw: Callable[[int], Iterable[Line]]) -> None:
        """Print what was found, or the lines that `draw` returns for a width."""
        if self.is_json():
            say_json(found)
            return
        from otel_rl.view.terminal.ansi import painted, this_terminal  # loads Rich
        from otel_rl.view.terminal.lines import folded, width

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


def say_json(found: msgspec.Struct) -> None:
    """Print what was found as one line of JSON, which is not larger than the limit of all answers."""
    click.echo(bounded(found))


def say(text: str, *, err: bool = False) -> None:
    """Print a line, to standard error if `err` is true."""
    click.echo(one_line(text), err=err)
