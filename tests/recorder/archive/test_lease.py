"""The archive is saved each second while somebody looks, and not more often than before otherwise."""

from __future__ import annotations

import os
import stat
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.lease import SeenLease, hold_lease
from tests.look.recorded import Shape, record
from tests.security.other_users import NOBODY, needs_root


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run directory."""
    return record(tmp_path / "runs" / "p" / "r", Shape(steps=1))


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_a_lease(run: Path) -> None:
    """It is held from its first renewal until 10 s after the last one, by the clock of the agent."""
    clock = Clock()
    seen = SeenLease(run, clock)
    assert not seen.is_held()

    for _ in range(5):
        assert hold_lease(run)
        assert seen.is_held()
        clock.now += 9.9
        assert seen.is_held()
    clock.now += 0.2
    assert not seen.is_held()


@pytest.mark.parametrize("at", [0, 1, 1 << 40])
def test_forged_times(run: Path, at: int) -> None:
    """The time of the file says nothing, however late it is: only its changes do."""
    clock = Clock()
    hold_lease(run)
    os.utime(run / "watched", (at, at))
    seen = SeenLease(run, clock)

    assert not seen.is_held()
    hold_lease(run)
    os.utime(run / "watched", (at, at))
    assert seen.is_held()
    clock.now += 11
    assert not seen.is_held()


def test_what_is_not_a_lease(run: Path, tmp_path: Path) -> None:
    """Links, pipes and folders in its place are nothing, and are not written through."""
    (tmp_path / "target").touch()
    seen = SeenLease(run, Clock())
    for place in ("link", "folder", "pipe"):
        if place == "link":
            (run / "watched").symlink_to(tmp_path / "target")
        elif place == "folder":
            (run / "watched").mkdir()
        else:
            os.mkfifo(run / "watched")
        assert not seen.is_held()
        assert not hold_lease(run)
        (run / "watched").rmdir() if place == "folder" else (run / "watched").unlink()


def test_its_mode(run: Path) -> None:
    """Only the owner of the run writes it."""
    hold_lease(run)

    assert stat.S_IMODE((run / "watched").stat().st_mode) & 0o022 == 0


@needs_root
def test_another_user(run: Path) -> None:
    """Nobody holds the lease of a run of somebody else, and a file of somebody else is not one."""
    seen = SeenLease(run, Clock())
    (run / "watched").touch()
    os.chown(run / "watched", NOBODY, NOBODY)
    assert not seen.is_held()

    (run / "watched").unlink()
    os.chown(run, NOBODY, NOBODY)
    assert not hold_lease(run)
    assert not (run / "watched").exists()


def _rows(run: Path) -> int:
    """Return the number of rows in the archive."""
    places = [place for place in (run / "archive").iterdir() if place.is_dir()] if (run / "archive").is_dir() else []
    return max((file.end for place in places for file in files.of_table(place, "rows")), default=0)


@pytest.mark.slow
def test_a_real_agent(tmp_path: Path) -> None:
    """A value is in the archive within 2 s while somebody looks, and within 10 s of a save, not sooner, otherwise."""
    run = otel_rl.init(dir=tmp_path, exporters=[], hardware=False, quiet=True)
    saves: dict[bool, list[float]] = {}
    ends = threading.Event()
    thread = threading.Thread(target=_log, args=(run, ends))
    thread.start()
    try:
        for is_held in (True, False):
            if not is_held:
                time.sleep(12)  # the lease ends
            saves[is_held] = _saves(run.dir, is_held=is_held)
    finally:
        ends.set()
        thread.join()
        run.finish(60)

    between = {held: [later - at for at, later in pairwise(times)] for held, times in saves.items()}
    assert sorted(between[True])[len(between[True]) // 2] <= 2
    assert len(between[False]) <= 2  # of 24 s


def _log(run: otel_rl.Run, ends: threading.Event) -> None:
    number = 0
    while not ends.wait(0.2):
        with run.step(number):
            run.log({"loss": 1.0})
        number += 1


def _saves(run: Path, *, is_held: bool) -> list[float]:
    """Return when the archive got rows, in 24 s; twelve are enough where it is saved each second."""
    began, rows, times = time.monotonic(), _rows(run), []
    while time.monotonic() - began < (12 if is_held else 24):
        if is_held:
            hold_lease(run)
        time.sleep(0.1)
        if (now := _rows(run)) > rows:
            rows = now
            times.append(time.monotonic())
    return times
