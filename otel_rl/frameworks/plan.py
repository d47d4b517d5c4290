"""The run of otel-rl for a tracker's run that has no value when a process forks."""

from __future__ import annotations

import os
from mmap import PAGESIZE, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from otel_rl.frameworks.recording import unless_set
from otel_rl.recorder.settings.joining import WORKER
from otel_rl.recorder.settings.loading import load
from otel_rl.recorder.settings.settings import NewSettings

if TYPE_CHECKING:
    from otel_rl.recorder.trainer.run import Run

_LENGTH = slice(0, 4)  # the place of the length of the announcement, which follows


class Plan:
    """A run that a process or its forked children begin, whichever has the first value; the children are workers of it.

    They share the memory of the plan.
    """

    def __init__(self, project: str, name: str) -> None:
        self._named = {"project": project, "name": name}
        self._id, self._working_directory = os.urandom(6).hex(), Path.cwd()
        self._shared = mmap(-1, PAGESIZE)

    @property
    def is_announced(self) -> bool:
        """Whether one of the processes has begun the run."""
        return bool(self._announced())

    def options(self, *, in_child: bool, **named: str) -> dict[str, Any]:
        """Return the keywords of `otel_rl.init` that begin or join the run.

        Args:
            in_child: If true, this process was forked since.
            named: The project and the name, as the process that opened the tracker's run knows them now.

        Raises:
            SettingsError: A setting is wrong.
        """
        role = WORKER if in_child else ""
        if announced := self._announced():
            return announced | unless_set(role=role)
        options = unless_set(**self._named if in_child else named, role=role)
        settings = load(options)
        if isinstance(settings, NewSettings):  # otherwise all of them know the id
            options |= {"id": self._id, "dir": str(self._working_directory / settings.dir)}
        return options

    def announce(self, run: Run) -> str:
        """Let the other processes join a run; return its id, or that of the one that was announced before."""
        if not (before := self._announced()):
            own = run._session.settings
            place = {"project": own.project, "name": own.name, "id": own.id, "dir": str(Path(own.dir).absolute())}
            text = msgspec.json.encode(place)
            if _LENGTH.stop + len(text) <= PAGESIZE:
                self._shared[_LENGTH.stop : _LENGTH.stop + len(text)] = text
                self._shared[_LENGTH] = len(text).to_bytes(4, "little")  # last: another process may read now
        return before.get("id", run.id)

    def _announced(self) -> dict[str, str]:
        length = int.from_bytes(self._shared[_LENGTH], "little")
        text = self._shared[_LENGTH.stop : _LENGTH.stop + length]
        return msgspec.json.decode(text, type=dict[str, str]) if length else {}
