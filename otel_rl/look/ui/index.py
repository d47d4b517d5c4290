"""The runs that the page shows: which there are, what each says, and what has changed since somebody asked last."""

from __future__ import annotations

import secrets
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from otel_rl.look.ui import changes, kept_files
from otel_rl.look.ui.budget import ReadingBudget
from otel_rl.look.ui.kept_files import key_of
from otel_rl.look.ui.run_line import run_line
from otel_rl.look.ui.tree import RunTree
from otel_rl.look.ui.verdicts import RunVerdict, VerdictReader
from otel_rl.recorder.archive.present import present_of
from otel_rl.recorder.archive.runs import place_of
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from otel_rl.look.insight import Facts
    from otel_rl.recorder.archive.present import RunPresent
    from otel_rl.recorder.archive.runs import Place

_LOOK_S = 0.9
"""Seconds for which a look is the present: the page asks each second, and many pages may ask."""
_MOST_LOOK_S = 3.0
"""Seconds after which a look reads no further new runs: the list has those that it knows."""
_ENDED_EVERY_S = 10.0
"""Seconds between two looks at runs that have ended; somebody may resume them."""
_WALK_SHARE = 0.01
"""The share of the time in which run directories are looked for."""
_LEAST_WALK_S = 2.0
_warnings = Occasional(log_of("otel_rl"))


class RunsSince(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of the list that have changed."""

    cursor: str  # what to ask with next
    at_unix_nano: int  # the time of the server: the clock of a browser may differ by minutes
    is_whole: bool  # whether these are all runs, and not only those that have changed
    directories: tuple[str, ...]  # the directories that are watched
    runs: tuple[msgspec.Raw, ...]  # each a `RunLine` in JSON, which is made once for all who ask
    unread: int  # how many runs were found that nobody has looked at yet: the first look at 10,000 takes a while
    gone: tuple[str, ...]  # keys of runs that are there no more


class _IndexedRun:
    """A run as it was at the last look."""

    def __init__(self, path: Path, top: Path) -> None:
        self.path, self.top = path, top
        self.place: Place | None = None  # its place; `None` before the first look
        self.fingerprint: changes.Fingerprint = ()
        self.present: RunPresent | None = None
        self.shown: RunPresent | None = None  # its present, or what its archive says if no agent has summed it up
        self.verdict: RunVerdict | None = None
        self.line: msgspec.Raw | None = None
        self.version = 0  # that of the list when its line changed
        self.looked_at = -_ENDED_EVERY_S

    @property
    def is_new(self) -> bool:
        """Whether nobody has looked at it yet."""
        return self.place is None and self.looked_at < 0


class RunIndex:
    """The runs below directories. It looks when somebody asks, and at most once a second.

    Attributes:
        budget: The CPU seconds for reading runs that go on.

    Args:
        directories: The directories.
        cache: The directory in which verdicts are kept; `None` to keep none.
    """

    def __init__(self, directories: Iterable[Path], cache: Path | None = None) -> None:
        self._directories = tuple(directories)
        self._tree = RunTree(self._directories)
        self._runs: dict[str, _IndexedRun] = {}
        self._gone: dict[str, int] = {}
        self._version = 0
        self._birth = secrets.token_hex(4)  # cursors of an earlier server mean nothing
        self._looked_at, self._walk_at = -_LOOK_S, 0.0
        self._lock = threading.Lock()
        self._cache = cache
        self.budget = ReadingBudget()
        self._verdicts = VerdictReader(self._received, self.budget, cache)

    def since(self, cursor: str = "") -> RunsSince:
        """Return the lines that have changed since a cursor; all of them without a valid one."""
        birth, _, number = cursor.partition("-")
        after = int(number) if birth == self._birth and number.isdecimal() else -1
        with self._lock:
            self._look()
            return RunsSince(
                cursor=f"{self._birth}-{self._version}",
                at_unix_nano=time.time_ns(),
                is_whole=after < 0,
                directories=tuple(map(str, self._directories)),
                runs=tuple(run.line for run in self._runs.values() if run.line is not None and run.version > after),
                unread=sum(run.is_new for run in self._runs.values()),
                gone=tuple(key for key, version in self._gone.items() if version > after >= 0),
            )

    def place(self, key: str) -> Place | None:
        """Return the directory of a run; `None` if it is not one of these."""
        with self._lock:
            if key not in self._runs:
                self._look()
            run = self._runs.get(key)
        if run is None:
            return None
        try:
            return run.place or place_of(run.path)
        except FileNotFoundError:
            return None

    def verdict(self, path: Path) -> RunVerdict | None:
        """Return what is known of the archive of a run."""
        with self._lock:
            run = self._runs.get(key_of(path))
        return None if run is None else run.verdict

    def concluded(self, path: Path, verdict: RunVerdict) -> None:
        """Take the verdict of a run that somebody looks at, so that it is not read twice."""
        self._verdicts.take(key_of(path), verdict)

    def presents(self) -> dict[str, tuple[RunPresent, Facts | None]]:
        """Return the runs as they were at the last look with their facts, those first that were heard of last."""
        with self._lock:
            self._look()
            known = {
                key: (run.shown, None if run.verdict is None else run.verdict.facts)
                for key, run in self._runs.items()
                if run.shown is not None
            }
        return dict(sorted(known.items(), key=lambda item: -item[1][0].last_unix_nano))

    def look_again(self, key: str) -> None:
        """Look at a run, and whether it is still there, when somebody asks next: its marks were changed."""
        with self._lock:
            self._looked_at, self._walk_at = -_LOOK_S, 0.0
            if key in self._runs:
                self._runs[key].looked_at = -_ENDED_EVERY_S

    def close(self) -> None:
        """End the thread."""
        self._verdicts.close()

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        if now >= self._walk_at:
            self._walk(now)
        at, begun = time.time_ns(), time.monotonic()
        for key, run in sorted(self._runs.items(), key=lambda item: not item[1].is_new):
            is_over = run.present is not None and run.present.is_over
            if is_over and now - run.looked_at < _ENDED_EVERY_S:
                continue
            if run.is_new and time.monotonic() - begun > _MOST_LOOK_S:
                continue  # those that are known are renewed all the same
            run.looked_at = now
            fingerprint = changes.of_present(run.path)
            if is_over and fingerprint == run.fingerprint:
                continue
            self._renew(key, run, fingerprint, at)

    def _walk(self, now: float) -> None:
        """Find the run directories."""
        found = {key_of(path): (path, top) for path, top in self._tree.look().items()}
        gone = self._runs.keys() - found.keys()
        self._verdicts.forget(gone)
        if found:  # without any, the file system itself may be away for a while
            kept_files.forget(self._cache, gone)
        for key in gone:
            del self._runs[key]
            self._version += 1
            self._gone[key] = self._version
        for key in found.keys() - self._runs.keys():
            path, top = found[key]
            self._runs[key] = _IndexedRun(path, top)
            self._gone.pop(key, None)
        took = time.monotonic() - now
        self._walk_at = now + max(_LEAST_WALK_S, took / _WALK_SHARE)

    def _renew(self, key: str, run: _IndexedRun, fingerprint: changes.Fingerprint, at: int) -> None:
        try:
            run.place = place_of(run.path)
            run.present = present_of(run.place, at)
            self._update(key, run)
        except Exception as error:  # one run that cannot be read, or was removed meanwhile, hides no other
            _warnings.warn(f"{run.path}: {error}")
            return
        run.fingerprint = fingerprint
        self._verdicts.want(key, run.present, run.place, max(fingerprint, default=0), run.verdict)

    def _received(self, key: str, verdict: RunVerdict) -> None:
        with self._lock:
            run = self._runs.get(key)
            if run is not None and run.present is not None:
                run.verdict = verdict
                self._update(key, run)

    def _update(self, key: str, run: _IndexedRun) -> None:
        assert run.present is not None
        read = run.verdict.present if run.verdict is not None and not run.present.is_complete else None
        run.shown = read or run.present
        line = msgspec.Raw(msgspec.json.encode(run_line(key, run.top, run.shown, run.verdict)))
        if line != run.line:
            self._version += 1
            run.line, run.version = line, self._version
