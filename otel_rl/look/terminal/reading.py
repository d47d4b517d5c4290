"""Reads the past of a run in a thread, as screens ask for it, so that no key waits for the archive."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from otel_rl.recorder.archive.autopsies import read_autopsies, telling
from otel_rl.recorder.errors.sinks import log_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_rl.look.terminal.past import Past

logger = log_of(__name__)
_LOOKS_EVERY_S = 1.0
"""Seconds between two looks whether the program ends, for the case that nobody stops the thread."""


class Reply(NamedTuple):
    """An answer: what was asked for, and what was found; an exception if it could not be read."""

    question: tuple[object, ...]
    answer: Any


class HistoryReader:
    """Answers questions of screens one after another, the latest first.

    Args:
        path: The run directory.
        answer: Called in the thread with each answer.
    """

    def __init__(self, path: str, answer: Callable[[Reply], None]) -> None:
        self._path, self._answer = path, answer
        self._questions: queue.LifoQueue[tuple[object, ...] | None] = queue.LifoQueue()
        self._asked: set[tuple[object, ...]] = set()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._read, name="otel-rl-top")  # a daemon could be ended inside DuckDB
        self._facts_cost = 0.0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def ask(self, *question: object) -> None:
        """Ask for something, unless that waits already."""
        if question not in self._asked:
            self._asked.add(question)
            self._questions.put(question)

    def stop(self) -> None:
        """Let the thread end after what it reads now."""
        self._is_stopped = True
        self._questions.put(None)

    @property
    def pause(self) -> float:
        """Seconds after which the findings of a live run are read again, so that this takes a hundredth of a core."""
        return max(20.0, 100 * self._facts_cost)

    def _read(self) -> None:
        past: Past | None = None
        while not self._is_stopped and threading.main_thread().is_alive():
            try:
                question = self._questions.get(timeout=_LOOKS_EVERY_S)
            except queue.Empty:
                continue
            if question is None:
                return
            began = time.thread_time()
            try:
                if past is None:
                    from otel_rl.look.terminal.past import Past as Opened  # loads DuckDB

                    past = Opened(self._path)
                reply: Any = answer(past, question)
            except Exception as error:
                logger.debug("%s could not be read", question, exc_info=True)
                reply = error
            if question[0] == "facts":
                self._facts_cost = time.thread_time() - began
            self._asked.discard(question)
            if not self._is_stopped:
                self._answer(Reply(question, reply))


def answer(past: Past, question: tuple[Any, ...]) -> object:
    """Return the answer to a question."""
    match question:
        case ("present",):
            return past.present()
        case ("autopsy",):
            return telling(read_autopsies(past.path))
        case ("why", step, phase):
            return past.why(step, phase)
        case ("facts",):
            return past.facts()
        case ("names",):
            return past.names()
        case ("bounds",):
            return past.bounds()
        case ("curves", *names):
            return past.curves(names)
        case ("step", number):
            return past.step(number)
        case ("values", number):
            return past.values(number)
        case ("rank", role, rank):
            return past.rank(role, rank)
        case _:
            raise ValueError(f"unknown question {question!r}")
