"""`otel-rl token`: create the token that listeners and senders share."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.output import say
from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.files.atomic_files import write_atomically
from otel_rl.recorder.files.modes import PRIVATE
from otel_rl.recorder.settings import tokens

_BYTES = 32


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
        create(path, rotate=rotate)
    except FileExistsError:
        raise click.ClickException(f"{path} exists; add --rotate to replace its token") from None
    except (SettingsError, OSError) as error:
        raise click.ClickException(str(error)) from error
    say(str(path))
    say(str(scrape_path(path)))


def create(path: Path, *, rotate: bool = False) -> None:
    """Write a new token, and to `scrape_path` the one for scraping, to files that only this user can read.

    Args:
        path: The file; its directory is created with mode 0700.
        rotate: If true, the token that was sent until now stays valid, in the second line.

    Raises:
        FileExistsError: There is a file, and `rotate` is false.
        SettingsError: The present file cannot be used.
        OSError: It cannot be written.
    """
    lines = [secrets.token_urlsafe(_BYTES), *(tokens.read(path)[:1] if rotate else ())]
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and not rotate:
        raise FileExistsError(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # Mode 0600 from the start: a file that is made private later can be read in between.
        with os.fdopen(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write("\n".join([*lines, ""]))
            file.flush()
            os.fsync(file.fileno())
        if rotate:
            beside.replace(path)
        else:
            os.link(beside, path)  # fails if another process has just written the file
    finally:
        beside.unlink(missing_ok=True)
    write_atomically(scrape_path(path), tokens.following(lines[0], "scrape").encode(), PRIVATE.file)


def scrape_path(path: Path) -> Path:
    """Return the file with the token for scraping that follows from the first one of a file."""
    return path.with_name(path.name + tokens.SCRAPE_SUFFIX)
