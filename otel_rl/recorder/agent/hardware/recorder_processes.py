"""Which processes are the recorder's: the agent, and everything that it starts, which is not the trainer's work.

The agent is a child of the trainer that started it. So its autopsies and the commands of `on_event` descend from the
trainer, and would make a rank that hangs look busy.
"""

from __future__ import annotations

import os
import time

import psutil

from otel_rl.recorder.settings.settings import MARK_VARIABLE

_MOST = 4096
_YOUNG_S = 5.0
"""Age in seconds below which a process may still be between `fork` and `exec`, with the environment of its parent."""


class RecorderProcesses:
    """Tells processes of the recorder from those of a trainer, by a mark in their environment."""

    def __init__(self) -> None:
        self._marks: dict[tuple[int, float], str] = {}

    def has(self, process: psutil.Process, trainer: psutil.Process) -> bool:
        """Return whether a process is the recorder's, not the trainer's.

        A command of `on_event` can start another trainer, which inherits the mark of that agent. Its own agent has
        another one.
        """
        return process.pid == os.getpid() or self._mark(process) not in ("", self._mark(trainer))

    def descendants(self, trainer: psutil.Process) -> list[psutil.Process]:
        """Return the descendants of a trainer without the recorder's, and without what descends from these.

        Raises:
            psutil.Error: The trainer has ended.
        """
        of_recorder: set[int] = set()
        others: list[psutil.Process] = []
        for process in trainer.children(recursive=True):  # parents come before their children
            try:
                parent = process.ppid()
            except psutil.Error:  # it may end at any moment
                continue
            if parent in of_recorder or self.has(process, trainer):
                of_recorder.add(process.pid)
            else:
                others.append(process)
        return others

    def _mark(self, process: psutil.Process) -> str:
        """Return the mark of the agent that a process descends from; empty if it has none, or has ended."""
        try:
            key = process.pid, process.create_time()
            mark = self._marks.get(key)
            if mark is None:
                mark = process.environ().get(MARK_VARIABLE, "")
        except (psutil.Error, OSError):  # another user's processes hide their environment
            return ""
        if mark or time.time() - key[1] > _YOUNG_S:
            if len(self._marks) >= _MOST:
                self._marks.clear()
            self._marks[key] = mark
        return mark
