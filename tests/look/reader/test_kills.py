"""A writer that is killed inside of a flush, a merge or a seal, while a reader polls."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.directory.parts import ARCHIVE
from tests.processes import start_python

_WRITER = """
import os, signal, sys
from pathlib import Path
place, steps, left = Path(sys.argv[1]), int(sys.argv[2]), [int(sys.argv[3])]

def killing(name):
    found = getattr(os, name)
    def called(*args, **options):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return found(*args, **options)
    setattr(os, name, called)

for name in ("fsync", "replace", "unlink"):
    killing(name)
from otel_rl.recorder.archive import writer as writing
from otel_rl.export import Row, Span
writing._YOUNG = 4
writer = writing.ArchiveWriter(place, 1 << 60)
for step in range(steps):
    row = Row(step, step + 1, {"x": float(step)})
    span = Span("rl.phase", f"{step:032x}", f"{step:016x}", "", step, step + 1)
    for item in (row, span):
        if not writer.holds(item):
            writer.add(item)
    if step % 2:
        writer.save(seals=step % 40 == 39)
writer.save(seals=True)
"""
KILLS, STEPS = 60, 80


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_inside_of_a_flush_a_merge_or_a_seal(tmp_path: Path) -> None:
    """Before each synchronization, rename and removal of a file: nothing is lost or double, at any time."""
    killed = number = 0
    while killed < KILLS:
        killed += kills_until_the_end(tmp_path / f"run{number}", killed)
        number += 1


def kills_until_the_end(directory: Path, killed: int) -> int:
    """Kill the writers of a run, each at a later call than the one before, until one ends."""
    place = directory / ARCHIVE / "node1"
    place.mkdir(parents=True)
    kills, seen, reader = 0, 0, otel_rl.open_run(directory)
    script = _WRITER.replace("sys.argv[1]", repr(str(place))).replace("sys.argv[2]", str(STEPS))
    while True:
        process = start_python(script.replace("sys.argv[3]", str(5 + 7 * (killed + kills) % 60)), directory)
        is_last = False
        while not is_last:
            is_last = process.poll() is not None
            found, spans = reader.rows("x")["step"].tolist(), reader.spans()["start_unix_nano"].tolist()
            assert found == list(range(len(found)))
            assert spans == list(range(len(spans)))
            assert len(found) >= seen
            seen = len(found)
        errors = process.communicate()[1]
        assert process.returncode in (0, -signal.SIGKILL), errors
        if process.returncode == 0:
            assert seen == len(spans) == STEPS
            return kills
        kills += 1
