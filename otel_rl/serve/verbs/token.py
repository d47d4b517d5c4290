"""`otel-rl token`: create the token that listeners and senders share."""

from __future__ import annotations

from pathlib import Path

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.output import say
from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.settings import tokens
from otel_rl.serve import token_file


@click.command(
    cls=Verb,
    section="operate",
    is_rare=True,
    short_help="Create the token for listeners that other machines reach.",
    examples={"token": "once for each user", "token --rotate": "a new one; the one before stays valid"},
)
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--rotate", is_flag=True, help="Add a new first token to the file; the one before it stays valid.")
def token(file: Path | None, *, rotate: bool) -> None:
    """Write a random token to FILE, and the one for scraping metrics to FILE.scrape, with mode 0600; print the paths.

    Without FILE, it is ~/.config/otel-rl/token, which agents and bridges read by themselves. Each line of the file is a
    valid token, and the first one is sent. The file is read again when it changes.
    """
    path = (file or tokens.usual_path()).absolute()
    try:
        token_file.create(path, rotate=rotate)
    except FileExistsError:
        raise click.ClickException(f"{path} exists; add --rotate to replace its token") from None
    except (SettingsError, OSError) as error:
        raise click.ClickException(str(error)) from error
    say(str(path))
    say(str(token_file.scrape_path(path)))
