"""Output and errors of the commands, for people or as JSON: texts from outside cannot act on the terminal."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from otel_rl.errors.sinks import one_line


class Commands(click.Group):
    """Commands whose errors are one line each without control characters."""

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
