"""One run on the page: its sections, and the data of its parts, of one moment for all who look at it."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from otel_rl.look.page.body import Piece
from otel_rl.look.page.moment import RunMoment
from otel_rl.look.page.verdict import header_of
from otel_rl.look.page.verdict import verdict_of as verdict_shown
from otel_rl.look.terminal.scene import as_of
from otel_rl.look.ui import changes
from otel_rl.look.ui.budget import ReadingBudget
from otel_rl.look.ui.kept_files import PAGE, keep, key_of
from otel_rl.look.ui.processes_now import processes_now
from otel_rl.look.ui.run_reading import PageSection, RunReading, kept_reading, readings_of, section_of
from otel_rl.look.ui.run_tail import RunTail, place_in
from otel_rl.look.ui.verdicts import verdict_of
from otel_rl.recorder.archive.lease import RENEW_S, hold_lease
from otel_rl.recorder.archive.present import present_of
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.facts.states import State, goes_on

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from otel_rl.look.ui.changes import Fingerprint
    from otel_rl.look.ui.index import RunIndex
    from otel_rl.look.ui.run_tail import TailSteps
    from otel_rl.recorder.archive.present import RunPresent
    from otel_rl.recorder.archive.runs import Place

    _Readings = Callable[..., Iterator[tuple[RunReading, RunTail | None]]]

_PRESENT_S = 0.9
"""Seconds for which the processes are those of now: each page asks once a second."""
_MOST_RUNS = 4
"""Runs whose parts are kept: up to 14 MB each."""
_READERS = 2
_warnings = Occasional(log_of("otel_rl"))


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """The page of a run: the report in pieces, and which data they are drawn from."""

    title: str  # the title of the page
    state: State  # the state of the run
    goes_on: bool  # whether more is to come
    is_held: bool  # whether its agent saves the archive each second since somebody looks; if not, each 10 s
    is_incomplete: bool  # whether lines of its archive are missing
    problem: str  # why it cannot be read; empty if it can
    header: str  # its title line
    sections: tuple[PageSection, ...]  # its sections; none before it was read
    parts: dict[str, str]  # the digests of the data of its parts, of those that were read already
    tail: int = 0  # number of steps that were recorded since its parts were read, whose values can be asked for


class RunPages:
    """The pages of the runs that somebody looks at; each is read again while somebody does, on other threads.

    Args:
        index: The index that shares the verdicts of runs; `None` for none.
        cache: The directory in which pages of ended runs are kept; `None` to keep none.
    """

    def __init__(self, index: RunIndex | None = None, cache: Path | None = None) -> None:
        self._index, self._cache = index, cache
        self._budget = ReadingBudget() if index is None else index.budget
        self._looks: OrderedDict[Path, _Look] = OrderedDict()
        self._lock = threading.Lock()
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="otel-rl-run")
        self._closing = threading.Event()

    def page(self, place: Place, known: Collection[str]) -> RunPage:
        """Return the page of a run, without the content of sections whose digests are known."""
        return self._look(place).page(known)

    def part(self, place: Place, name: str) -> tuple[str, bytes]:
        """Return the digest and the data of a part.

        Raises:
            LookupError: It has not been read yet, or there is no such part.
        """
        read = self._look(place).read
        if read is None or name not in read.parts:
            raise LookupError(f"{name} has not been read")
        return read.parts[name]

    def tail(self, place: Place, first: int) -> TailSteps:
        """Return the steps that were recorded since the parts were read, from a place on.

        Raises:
            LookupError: There is no tail.
        """
        if (tail := self._look(place).tail_since(first)) is None:
            raise LookupError("the run has no tail")
        return tail

    def close(self) -> None:
        """End the threads, each after the part that it reads: later, the reader could start no thread of its own."""
        self._closing.set()
        self._readers.shutdown(cancel_futures=True)

    def _read(self, path: Path, *, is_over: bool) -> Iterator[tuple[RunReading, RunTail | None]]:
        """Yield what there is to show of a run, more and more, and what follows its steps while it goes on."""
        key, files = key_of(path), changes.of_facts(path, is_over=is_over)
        if is_over and (kept := kept_reading(self._cache, key, files)) is not None:
            yield kept, None
            return
        verdict, in_files = None if self._index is None else self._index.verdict(path), place_in(path)
        moment = RunMoment(path, verdict.facts if verdict is not None and verdict.fingerprint == files else None)
        if self._index is not None and (verdict is None or verdict.facts is not moment.facts):
            self._index.concluded(path, verdict_of(moment.recorded, moment.facts, files))
        tail = None if is_over else RunTail(moment.steps, moment.origin, in_files)
        for reading in readings_of(moment, files):
            if self._closing.is_set():
                return
            yield reading, tail
        if is_over:
            keep(self._cache, key, PAGE, msgspec.msgpack.encode(reading))

    def _look(self, place: Place) -> _Look:
        with self._lock:
            if place.path not in self._looks:
                self._looks[place.path] = _Look(place, self._read, self._readers, self._budget)
            look = self._looks[place.path]
            look.place = place  # its marks may have changed
            self._looks.move_to_end(place.path)
            while len(self._looks) > _MOST_RUNS:
                self._looks.popitem(last=False)
        return look


class _Look:
    """A run that somebody looks at."""

    def __init__(self, place: Place, readings: _Readings, readers: ThreadPoolExecutor, budget: ReadingBudget) -> None:
        self.read: RunReading | None = None
        self._tail: RunTail | None = None
        self.place, self._readings, self._readers, self._budget = place, readings, readers, budget
        self._present = present_of(place)
        self._present_at, self._due = time.monotonic(), 0.0
        self._is_reading, self._problem = False, ""
        self._seen: tuple[RunPresent, RunReading | None] = self._present, None
        self._sections: tuple[PageSection, ...] = ()
        self._is_held, self._held_at = False, -RENEW_S
        self._read_as: tuple[Fingerprint, State] | None = None
        self._lock = threading.Lock()

    def page(self, known: Collection[str]) -> RunPage:
        with self._lock:
            self._renew()
            present, read = self._present, self.read
            if read is None:
                return RunPage(
                    title=f"{present.title} · otel-rl",
                    state=present.state,
                    goes_on=goes_on(present.state),
                    is_held=self._is_held,
                    is_incomplete=False,
                    problem=self._problem,
                    header="",
                    sections=(),
                    parts={},
                )
            tail = 0 if self._tail is None else len(self._tail)
            facts = as_of(read.facts, present)
            if self._seen != (present, read):  # once for all who look at it
                now, verdict = processes_now(present), Piece("verdict", "Verdict", verdict_shown(facts))
                of_now = [section_of(piece) for piece in (verdict, now) if piece is not None]
                self._seen, self._sections = (present, read), (*of_now, *read.sections)
            sections = self._sections
        state = present.state if present.is_complete else facts.summary.state
        return RunPage(
            title=read.title,
            state=state,
            goes_on=goes_on(state),
            is_held=self._is_held,
            is_incomplete=read.is_incomplete,
            problem=self._problem,
            header=str(header_of(facts, present.at or read.made, self.place.marks)),
            sections=tuple(
                msgspec.structs.replace(section, html=None) if section.digest in known else section
                for section in sections
            ),
            parts={name: digest for name, (digest, _) in read.parts.items()},
            tail=tail,
        )

    def tail_since(self, first: int) -> TailSteps | None:
        with self._lock:
            if self._tail is None or self.read is None:
                return None
            return self._tail.since(first, self.read.parts["steps"][0])

    def _renew(self) -> None:
        """Look at the present, and read the run again if its files have changed, but not too often."""
        now = time.monotonic()
        if now - self._present_at >= _PRESENT_S:
            self._present, self._present_at = present_of(self.place), now
        is_live = goes_on(self._present.state)
        if is_live and now - self._held_at >= RENEW_S:
            self._is_held, self._held_at = hold_lease(self.place.path), now
        state = self._present.state
        is_news = self._read_as is None or self._read_as[1] != state
        if self._is_reading or (now < self._due and not is_news):
            return
        read_as = changes.of_facts(self.place.path, is_over=not is_live), state
        if read_as == self._read_as:
            return
        self._is_reading, self._read_as = True, read_as
        self._readers.submit(self._read, is_over=not is_live)

    def _read(self, *, is_over: bool) -> None:
        began = time.process_time()  # the reader has threads of its own
        is_first, read = self.read is None, None
        try:
            for read in self._readings(self.place.path, is_over=is_over):
                if is_first:
                    self.read = read[0]  # what there is already is shown at once
            if read is not None:
                with self._lock:
                    (self.read, self._tail), self._problem = read, ""
        except Exception as error:  # one that cannot be read is said, and read again when its files change
            self._problem = str(error)
            _warnings.warn(f"{self.place.path}: {error}")
        finally:
            self._due = self._budget.spend(time.process_time() - began)
            self._is_reading = False
