"""An archive that an earlier version wrote can be read; `python -m tests.archive.test_checked_in` writes it again."""

from __future__ import annotations

import shutil
from pathlib import Path

import otel_rl
from otel_rl.archive.tables import TABLES
from otel_rl.archive.writer import Writer
from otel_rl.export import Ended, Environment, Event, Item, Machine, Params, Process, Row, Span, Table, Trajectory
from otel_rl.setup.parts import ARCHIVE

RUN = Path(__file__).parents[1] / "data" / "archive" / "0.1.0"
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
    writer = Writer(RUN / ARCHIVE / "local", 1 << 60)
    every = items()
    for item in every[:2]:
        writer.add(item)
    writer.save(seals=True)
    for item in every[2:]:
        writer.add(item)
    writer.save()


def test_an_archive_of_this_version_can_be_read() -> None:
    """All tables, by each verb and in SQL; this version can only add columns to it."""
    run = otel_rl.open_run(RUN)

    rows = run.rows()
    assert [*zip(rows["step"], rows["name"], rows["value"], strict=True)] == [
        (1, "loss", 0.5),
        (1, "tokens", float(2**60)),
        (2, "loss", 0.25),
    ]
    assert (run.damaged, run.holes, run.parameters) == ([], [], {"lr": 0.1})
    assert [len(run.sql(f"FROM {table.name}")) for table in TABLES] == [3, 2, *[1] * 9, 0]
    assert len(otel_rl.open_run(RUN, attempts="all").rows()) == 4


if __name__ == "__main__":
    write()
