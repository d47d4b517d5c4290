"""How every command names a run: its directory, a directory of runs, an id, a name, or `newest`."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otel_rl.archive.runs import Place, places_of
from otel_rl.cli.terminal import say

if TYPE_CHECKING:
    from collections.abc import Sequence

_RESPONDS_WITHIN_S = 30.0
NEWEST = "newest"
"""The name of the run that was created or resumed last."""


class Run(click.ParamType):  # type: ignore[type-arg] # generic for type checkers, since click 8.4
    """A run: its directory, a directory above it, or, below `OTEL_RL_DIR` (`runs`), its id, its name or `newest`.

    Of several runs of a directory or a name, the newest one is meant. With `several`, a directory means all of them.
    """

    name = "run"

    def __init__(self, *, several: bool = False) -> None:
        self._several = several

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the directory of the run. A file system that does not respond ends the process."""
        if self._several and os.path.isdir(value):  # noqa: PTH112 - it may have a null byte
            return Path(value)
        results: list[Path | str] = []
        thread = threading.Thread(target=lambda: results.append(_resolve(str(value))), daemon=True)
        thread.start()
        thread.join(_RESPONDS_WITHIN_S)
        if not results:
            say(f"Error: the file system of {value} has not responded for {_RESPONDS_WITHIN_S:.0f} s", err=True)
            os._exit(1)  # the waiting thread cannot be stopped
        if isinstance(results[0], str) and value == NEWEST:
            raise click.ClickException(results[0])
        if isinstance(results[0], str):
            self.fail(results[0], param, ctx)
        return results[0]


def _resolve(name: str) -> Path | str:
    """Return the directory of a run, or why there is none."""
    place, parent = Path(name), Path(os.environ.get("OTEL_RL_DIR", "runs"))
    try:
        if place.is_dir():
            return _newest(_below(place)) or place  # the command says what such a directory lacks
        runs = _below(parent)
    except (OSError, ValueError) as error:  # a name with a null byte
        return f"{name}: {error}"
    same = [run for run in runs if run.id == name]
    if len(same) > 1:
        places = ", ".join(sorted(str(run.path) for run in same))
        return f"{name} is the id of {len(same)} runs; give one of the directories: {places}"
    found = _newest(runs if name == NEWEST else same or [run for run in runs if run.name == name])
    if found is None and name == NEWEST:
        return f"no run in {parent}; record one with: otel-rl demo, or: otel-rl run -- COMMAND"
    return found or f"{name} is not a directory, and no run in {parent} has this id or name"


def _below(directory: Path) -> list[Place]:
    try:
        return places_of(directory)
    except FileNotFoundError:
        return []


def _newest(runs: Sequence[Place]) -> Path | None:
    """Return the directory of the run that was created or resumed last."""
    begun: dict[Path, float] = {}
    for run in runs:
        with contextlib.suppress(OSError):  # it was removed meanwhile, or has rows alone
            begun[run.path] = (run.path / "run.json").stat().st_mtime
    return max((run.path for run in runs), key=lambda path: begun.get(path, 0.0), default=None)
