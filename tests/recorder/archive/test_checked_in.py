"""An archive that an earlier version wrote can be read; `python -m` with this module writes it again."""

from __future__ import annotations

import shutil
from pathlib import Path

from otel_rl.export import Ended, Environment, Event, Item, Machine, Params, Process, Row, Span, Table, Trajectory
from otel_rl.recorder.archive.writer import ArchiveWriter
from otel_rl.recorder.directory.parts import ARCHIVE
from tests.recorder.archive.items import everything, exactly

RUN = Path(__file__).parents[2] / "data" / "archive" / "0.1.0"
_IDS = ("0" * 31 + "1", "0" * 15 + "1")


def items() -> list[Item]:
    """Return an item of each kind, and a second attempt that repeats a step."""
    return [
        Row(1, 10, {"loss": 0.5, "tokens": 2**60 + 1}, missing_ranks=(1,), nonfinite={"loss": 1}, measured=("tokens",)),
        Row(2, 20, {"loss": float("nan")}),
        Row(2, 40, {"loss": 0.25}, attempt=1, begins=2, trace_id=_IDS[0], span_id=_IDS[1]),
        Span("rl.phase", *_IDS, "", 5, 9, {"rl.rank": 0, "rl.phase": "generate", "other": [1, 2]}, "failed"),
        Trajectory(1, 2, 30, 0, "trained", 3, *_IDS, 0.5, 7, ((2, 7),)),
        Event("saved", 30, {"path": "x"}, 2, 0),
        Machine(3, 30, {"gpu": 0.5}),
        Params(1, {"lr": 0.1}),
        Process(0, "", 0, 1, "host", 7, 1, ("H100",), 50, "failed", "ValueError", 1),
        Ended(50, 0, "failed", "ValueError", 1),
        Environment(0, 1, "host", {"python": "3.11"}),
        Table("completions", 2, 30, ("prompt", "reward"), (("2+2=", 1.0),), 1, (0,)),
    ]


def write() -> None:
    """Write the archive: the first half sealed, the rest as young files."""
    shutil.rmtree(RUN, ignore_errors=True)
    writer = ArchiveWriter(RUN / ARCHIVE / "local", 1 << 60)
    every = items()
    for item in every[:2]:
        writer.add(item)
    writer.save(seals=True)
    for item in every[2:]:
        writer.add(item)
    writer.save()


def test_an_archive_of_an_earlier_version_can_be_read() -> None:
    """Every item is as it was; this version can only add columns."""
    expected = sorted(map(exactly, items()), key=repr)
    assert sorted(map(exactly, everything(RUN / ARCHIVE / "local")), key=repr) == expected


if __name__ == "__main__":
    write()
