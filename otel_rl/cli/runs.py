"""How every command names a run: a directory, an id, a name, or `newest`."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from otel_rl.cli.terminal import say

if TYPE_CHECKING:
    from collections.abc import Iterator

_RESPONDS_WITHIN_S = 30.0
NEWEST = "newest"
"""The name of the run that was created or resumed last."""


class _Identity(msgspec.Struct):
    """What `run.json` says about which run it is."""

    id: str
    name: str = ""


class _Found(NamedTuple):
    """A run below `OTEL_RL_DIR`, and when it was created or resumed, in seconds since the epoch."""

    path: Path
    begun: float
    identity: _Identity


class Run(click.ParamType):  # type: ignore[type-arg] # generic for type checkers, since click 8.4
    """A run: its directory, or, below `OTEL_RL_DIR` (`runs`), its id, its name (the newest such run) or `newest`."""

    name = "run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the directory of the run. A file system that does not respond ends the process."""
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
    place = Path(name)
    try:
        if place.is_dir():
            return place
        parent = Path(os.environ.get("OTEL_RL_DIR", "runs"))
        runs = list(_below(parent))
    except (OSError, ValueError) as error:  # a name with a null byte
        return f"{name}: {error}"
    ids = {run.path for run in runs if run.identity.id == name}
    if len(ids) > 1:
        return f"{name} is the id of {len(ids)} runs; give one of the directories: {', '.join(map(str, sorted(ids)))}"
    same = [run for run in runs if name == NEWEST or run.path in ids or (not ids and run.identity.name == name)]
    if not same and name == NEWEST:
        return f"no run in {parent}; record one with: otel-rl demo, or: otel-rl run -- COMMAND"
    if not same:
        return f"{name} is not a directory, and no run in {parent} has this id or name"
    return max(same, key=lambda run: run.begun).path


def _below(parent: Path) -> Iterator[_Found]:
    for manifest in parent.glob("*/*/run.json"):
        with contextlib.suppress(OSError, msgspec.DecodeError):  # damaged, or another user's: not found by its name
            identity = msgspec.json.decode(manifest.read_bytes(), type=_Identity)
            yield _Found(manifest.parent, manifest.stat().st_mtime, identity)
