"""Lines that the commands print: texts from outside cannot act on the terminal."""

from __future__ import annotations

from typing import Any

import click

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


def say(text: str, *, err: bool = False) -> None:
    """Print a line, to standard error if `err` is true."""
    click.echo(one_line(text), err=err)
