"""One run on the page: its sections, and the data of its parts, of one moment for all who look at it."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from otel_rl.look.page.body import Piece, is_incomplete, pieces_of
from otel_rl.look.page.moment import PARTS, RunMoment
from otel_rl.look.page.verdict import header_of, verdict_of
from otel_rl.look.terminal.scene import as_of
from otel_rl.look.ui import changes
from otel_rl.look.ui.processes_now import processes_now
from otel_rl.recorder.archive.lease import RENEW_S, hold_lease
from otel_rl.recorder.archive.present import present_of
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.facts.states import State, goes_on

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from otel_rl.look.ui.changes import Fingerprint
    from otel_rl.recorder.archive.runs import Place

_LIVE_EVERY_S = 5.0
_SHARE = 0.2
"""The share of a core with which a run that goes on is read: a long one takes seconds, next to its trainer."""
_PRESENT_S = 0.9
"""Seconds for which the processes are those of now: each page asks once a second."""
_MOST_RUNS = 4
"""Runs whose parts are kept: up to 14 MB each."""
_READERS = 2
_DIGEST_BYTES = 8
_warnings = Occasional(log_of("otel_rl"))


class PageSection(msgspec.Struct, frozen=True, kw_only=True):
    """A section of the page of a run."""

    id: str  # its id
    title: str  # its title
    digest: str  # a text that differs when its content does
    html: str | None  # its content; `None` if whoever asks has it


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


class _Read(NamedTuple):
    """A run as it was read: its moment, when its files had changed, its sections, and its parts with their digests."""

    moment: RunMoment
    files: Fingerprint
    sections: tuple[PageSection, ...]
    parts: dict[str, tuple[str, bytes]]


class RunPages:
    """The pages of the runs that somebody looks at; each is read again while somebody does, on other threads."""

    def __init__(self) -> None:
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

    def close(self) -> None:
        """End the threads, each after the part that it reads: later, the reader could start no thread of its own."""
        self._closing.set()
        self._readers.shutdown(cancel_futures=True)

    def _look(self, place: Place) -> _Look:
        with self._lock:
            if place.path not in self._looks:
                self._looks[place.path] = _Look(place, self._readers, self._closing)
            look = self._looks[place.path]
            look.place = place  # its marks may have changed
            self._looks.move_to_end(place.path)
            while len(self._looks) > _MOST_RUNS:
                self._looks.popitem(last=False)
        return look


class _Look:
    """A run that somebody looks at."""

    def __init__(self, place: Place, readers: ThreadPoolExecutor, closing: threading.Event) -> None:
        self.read: _Read | None = None
        self.place, self._readers, self._closing = place, readers, closing
        self._present = present_of(place)
        self._present_at, self._due = time.monotonic(), 0.0
        self._is_reading, self._problem = False, ""
        self._is_held, self._held_at = False, -RENEW_S
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
        facts = as_of(read.moment.facts, present)
        now = processes_now(present)
        verdict = Piece("verdict", "Verdict", verdict_of(facts))
        of_now = [_section_of(piece) for piece in (verdict, now) if piece is not None]
        state = present.state if present.is_complete else facts.summary.state
        return RunPage(
            title=read.moment.title,
            state=state,
            goes_on=goes_on(state),
            is_held=self._is_held,
            is_incomplete=is_incomplete(read.moment),
            problem=self._problem,
            header=str(header_of(facts, present.at or read.moment.made, self.place.marks)),
            sections=tuple(
                msgspec.structs.replace(part, html=None) if part.digest in known else part
                for part in (*of_now, *read.sections)
            ),
            parts={name: digest for name, (digest, _) in dict(read.parts).items()},
        )

    def _renew(self) -> None:
        """Look at the present, and read the run again if its files have changed, but not too often."""
        now = time.monotonic()
        if now - self._present_at >= _PRESENT_S:
            self._present, self._present_at = present_of(self.place), now
        if goes_on(self._present.state) and now - self._held_at >= RENEW_S:
            self._is_held, self._held_at = hold_lease(self.place.path), now
        if self._is_reading:
            return
        known = self.read
        has_ended = known is not None and known.moment.facts.summary.state != self._present.state
        if now < self._due and not has_ended:
            return
        files = changes.of_records(self.place.path)
        if known is not None and files == known.files:
            return
        self._is_reading = True
        self._readers.submit(self._read, files)

    def _read(self, files: Fingerprint) -> None:
        began = time.thread_time()
        try:
            moment = RunMoment(self.place.path)
            read = _Read(moment, files, tuple(map(_section_of, pieces_of(moment))), {})
            if self.read is None:
                self.read = read  # what there is already is shown at once
            for name in PARTS:
                if self._closing.is_set():
                    return
                text = moment.part(name).encode()
                read.parts[name] = _digest(text), text
            self.read, self._problem = read, ""
        except Exception as error:  # one that cannot be read is said, and read again when its files change
            self._problem = str(error)
            _warnings.warn(f"{self.place.path}: {error}")
        finally:
            self._due = time.monotonic() + max(_LIVE_EVERY_S, (time.thread_time() - began) / _SHARE)
            self._is_reading = False


def _section_of(piece: Piece) -> PageSection:
    return PageSection(id=piece.id, title=piece.title, digest=_digest(piece.html.encode()), html=str(piece.html))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[: 2 * _DIGEST_BYTES]
