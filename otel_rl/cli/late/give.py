"""Gives a run to exporters, prints what was new to each, and ends the process."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import click

from otel_rl.cli.late.replay import exporters_of, replay
from otel_rl.cli.output import say, say_json
from otel_rl.recorder.agent.process import StartError, log_to_stderr
from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.files.own_files import ForeignError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from otel_rl.cli.late.exported import Exported


def give(run: Path, names: Sequence[str], into: Path | None, *, again: bool, as_json: bool) -> NoReturn:
    """Give a run to exporters, print what was new to each, and end the process: an exporter may hang.

    Args:
        run: The run directory.
        names: Names of exporters.
        into: A directory for the files that exporters write, in place of the run directory.
        again: If true, what earlier calls gave them is given again.
        as_json: If true, print JSON.
    """
    log_to_stderr()
    try:
        exported = replay(run, exporters_of(names), partial(say, err=True), into=into, again=again)
    except BlockingIOError:
        raise click.ClickException(f"another process gives {run} to the same destination") from None
    except PermissionError as error:
        why = str(error) if isinstance(error, ForeignError) else f"{error.filename} cannot be written"
        raise click.ClickException(f"{why}; give another directory: -o DIR") from None
    except (SettingsError, StartError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        say_json(exported)
    else:
        _say(exported)
    sys.stdout.flush()
    logging.shutdown()
    os._exit(0 if exported.complete else 1)


def _say(exported: Exported) -> None:
    nothing = "nothing new; --again asks the destination what it has" if exported.complete else "nothing"
    for name, new in exported.new.items():
        say(f"{name}: {', '.join(f'{count} {kind}' for kind, count in sorted(new.items())) or nothing}")
