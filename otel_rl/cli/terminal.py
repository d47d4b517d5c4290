"""Output and errors of the commands, for people or as JSON: texts from outside cannot act on the terminal."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
import msgspec

from otel_rl.errors.sinks import one_line


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


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
"""The option of every command that can print what it found for programs, with `say_json`."""


def say_json(value: object) -> None:
    """Print a value as one line of JSON."""
    click.echo(msgspec.json.encode(value))


def say(text: str, *, err: bool = False) -> None:
    """Print a line, to standard error if `err` is true."""
    click.echo(one_line(text), err=err)
