"""A run on the screen, and when which part of it is read: its present each second, its past where a page shows it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from otel_rl.look.terminal.reading import HistoryReader, Reply
from otel_rl.look.terminal.scene import Scene
from otel_rl.recorder.archive.present import present_of
from otel_rl.semconv import EVENT_AUTOPSY_CONCLUDED as CONCLUDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.look.terminal.pages import Page
    from otel_rl.recorder.archive.present import RunPresent
    from otel_rl.recorder.archive.runs import Place

EVERY_S = 1.0
"""Seconds between two looks at the present."""
_OVER_EVERY_S = 5.0
_MOST_MATCHES = 24
"""Metrics that match a search whose curves are read."""


class WatchedRun:
    """A run that is read while it is shown.

    Args:
        place: The run directory.
        first: Its present, which was shown while the application was loaded.
        post: Called in another thread with each answer, and the path of the run.
        is_sorted: As in `Scene`.
        news: As in `Scene`.
    """

    def __init__(
        self,
        place: Place,
        first: RunPresent,
        post: Callable[[str, Reply], None],
        *,
        is_sorted: bool = False,
        news: str = "",
    ) -> None:
        self.place, self.path = place, str(place.path)
        self.scene = Scene(present=first, is_sorted=is_sorted, news=news)
        self._reading = HistoryReader(self.path, lambda reply: post(self.path, reply))
        self._read_at = self._facts_at = time.monotonic()

    def start(self) -> None:
        """Begin to read."""
        self._reading.start()
        self._ask_for_all()

    def stop(self) -> None:
        """Let the thread that reads end."""
        self._reading.stop()

    def renew(self) -> None:
        """Read the present, and ask for the past again where it is due."""
        scene, now = self.scene, time.monotonic()
        if now - self._read_at >= (_OVER_EVERY_S if scene.present.is_over else EVERY_S) - 0.1:
            self._read_at = now
            present = present_of(self.place)
            if present.is_complete or not scene.present.is_complete:
                if _stage(present) != _stage(scene.present):
                    scene.facts, self._facts_at = None, 0.0
                scene.renew(present)
        if not self._facts_at or (not scene.present.is_over and now - self._facts_at > self._reading.pause):
            self._ask_for_all()

    def _ask_for_all(self) -> None:
        """Ask for what the first screen shows of the past; the last one asked for is answered first."""
        self._facts_at = time.monotonic()
        for question in (("facts",), ("names",), ("bounds",), ("curves", *self._main_metrics())):
            self._reading.ask(*question)
        if not self.scene.present.is_complete:
            self.scene.note = "reading what the run recorded …"
            self._reading.ask("present")

    def _main_metrics(self) -> list[str]:
        return [curve.name for curve in self.scene.present.progress.curves]

    def learn(self, reply: Reply) -> None:
        """Keep an answer."""
        question, answer = reply
        if isinstance(answer, Exception):
            self.scene.note = f"the archive could not be read: {type(answer).__name__}: {answer}"
            return
        self.scene.learn(question, answer)
        if question == ("present",):
            self._reading.ask("curves", *self._main_metrics())

    def need(self, page: Page) -> None:
        """Ask for what a page shows."""
        if page.kind == "autopsy":
            self._reading.ask("autopsy")
        if page.kind == "why":
            self._reading.ask("why", *page.question)
        if page.kind in ("rank", "step", "phase"):
            self._reading.ask("rank", *page.who)
        if page.kind in ("step", "phase") and page.step >= 0:
            self._need_step(page.step)
        if page.kind == "run" and self.scene.step is not None:
            self._need_step(self.scene.step)

    def _need_step(self, step: int) -> None:
        for kind, known in (("values", self.scene.values), ("step", self.scene.of_step)):
            if step not in known:
                self._reading.ask(kind, step)

    def search(self, pattern: str) -> None:
        """Search for a text, and ask for the curves of the metrics that match."""
        scene = self.scene
        scene.pattern = pattern
        matching = [name for name in scene.names if pattern and scene.matches(name)][:_MOST_MATCHES]
        if missing := [name for name in matching if name not in scene.curves]:
            self._reading.ask("curves", *missing)


def _stage(present: RunPresent) -> tuple[object, ...]:
    """Return what makes the findings old at once when it changes."""
    return (
        present.state,
        present.progress.attempt,
        present.progress.steps > 0,
        {(process.role, process.rank): process.outcome for process in present.processes},
        {(wait.cause, wait.culprits) for wait in present.waits if wait.cause},
        {(stall.kind, stall.role, stall.rank, stall.since_unix_nano) for stall in present.stalled},
        max((event.time_unix_nano for event in present.progress.events if event.name == CONCLUDED), default=0),
    )
