"""How every command names a run: its directory, a directory of runs, an id, a name, or `newest`."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from otel_rl.cli.output import say
from otel_rl.recorder.archive.runs import NEWEST, directory_of, places_of
from otel_rl.recorder.errors.sinks import one_line
from otel_rl.recorder.facts import wording

_RESPONDS_WITHIN_S = 30.0


def runs_directory() -> Path:
    """Return the directory in which runs are looked for by their names."""
    return Path(os.environ.get("OTEL_RL_DIR", "runs"))


class RunArgument(click.ParamType):  # type: ignore[type-arg] # generic for type checkers, since click 8.4
    """A run: its directory, a directory above it, or, below `OTEL_RL_DIR` (`runs`), its id, its name or `newest`.

    Of several runs of a directory or a name, the newest one is meant. With `several`, a directory means all of them.
    With `exact`, several runs are an error.
    """

    name = "run"

    def __init__(self, *, several: bool = False, exact: bool = False) -> None:
        self._several, self._exact = several, exact

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the directory of the run. A file system that does not respond ends the process."""
        if self._several and os.path.isdir(value):  # noqa: PTH112 - it may have a null byte
            return Path(value)
        results: list[Path | str] = []
        thread = threading.Thread(
            target=lambda: results.append(directory_of(str(value), runs_directory(), exact=self._exact)), daemon=True
        )
        thread.start()
        thread.join(_RESPONDS_WITHIN_S)
        if not results:
            say(
                f"Error: the file system of {value} has not responded for {wording.seconds(_RESPONDS_WITHIN_S)}",
                err=True,
            )
            os._exit(1)  # the waiting thread cannot be stopped
        if isinstance(results[0], str) and value == NEWEST:
            raise click.ClickException(results[0])
        if isinstance(results[0], str):
            takes_steps = ctx is not None and any(parameter.name == "steps" for parameter in ctx.command.params)
            hint = f"; for a step of the newest run, give: --steps {value}" if takes_steps and value.isdecimal() else ""
            self.fail(f"{results[0]}{hint}", param, ctx)
        return results[0]

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names and ids of runs that begin so, and that directories can be completed."""
        del ctx, param
        try:
            runs = places_of(runs_directory())
        except OSError:
            runs = []
        known = sorted({NEWEST, *(name for run in runs for name in (run.id, run.name))})
        begun = [name for name in known if name and name.startswith(incomplete) and name == one_line(name)]
        return [CompletionItem(incomplete, type="dir"), *(CompletionItem(name) for name in begun)]
