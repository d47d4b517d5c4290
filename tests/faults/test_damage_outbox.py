"""Damage to the files of the agent: either every row arrives once, or the loss is counted and the exit code says so."""

from __future__ import annotations

import os
import random
import shutil
import threading
from array import array
from pathlib import Path
from typing import Any

import msgspec
import pytest

import otel_rl
from otel_rl.export import Item
from otel_rl.recorder.agent import loop
from otel_rl.recorder.agent.agent import GoneError
from otel_rl.recorder.agent.process import run_agent
from otel_rl.recorder.delivery.outbox import Outbox
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.journal.ids import step_ids
from otel_rl.recorder.journal.records import (
    Finished,
    Happened,
    Logged,
    Observed,
    Record,
    SpanEnded,
    SpanStarted,
    StepEnded,
    StepStarted,
    Tabled,
)
from otel_rl.recorder.journal.segments import START, segment_numbers, segment_path
from otel_rl.recorder.journal.writer import Writer
from tests.collector import wait_for
from tests.faults import hostile
from tests.faults.gates import STEPS, gated, wait_for_idle
from tests.faults.sane import T0, losses, started, steps
from tests.processes import local_of, rows_of

pytestmark = pytest.mark.slow


class Older(msgspec.Struct, array_like=True):
    """A batch with two more fields in between."""

    items: list[Item]
    checkpoint: msgspec.Raw
    held: list[Item]
    settled: dict[str, bool]
    before: int


def lost(run_dir: Path) -> dict[str, int]:
    return agent_start.read_status(directories.at(run_dir)).lost


def flip(file: Path, dice: random.Random) -> None:
    """Flip one bit."""
    with file.open("r+b") as opened:
        offset = dice.randrange(file.stat().st_size)
        opened.seek(offset)
        byte = opened.read(1)[0]
        opened.seek(offset)
        opened.write(bytes([byte ^ 1 << dice.randrange(8)]))


def copy(run_dir: Path, name: object) -> Path:
    """Copy a run; the copy is what is damaged."""
    return shutil.copytree(run_dir, run_dir.parent / str(name))


def check_counted(run_dir: Path, complete: object, seed: object) -> None:
    """Each row arrived once and in order, or is counted; the exporter that was not away has them all."""
    arrived = gated(run_dir)
    assert arrived == sorted({*arrived}), seed
    assert STEPS - len(arrived) <= lost(run_dir).get("outbox_damaged", 0), seed
    assert complete is not bool(lost(run_dir)), seed
    assert losses(run_dir) == [*range(STEPS)], seed


@pytest.mark.parametrize("bits", [1, 10])
def test_flipped_bits_in_the_outbox_are_counted(waiting: Path, bits: int) -> None:
    """10 runs damaged while the agent is down: no row arrives twice, and each that is missing is counted."""
    for seed in range(10):
        dice = random.Random(seed)
        run_dir = copy(waiting, seed)
        for _ in range(bits):
            flip(max((local_of(run_dir) / "outbox").glob("*.seg"), key=lambda file: file.stat().st_size), dice)
        (run_dir / "open").touch()
        check_counted(run_dir, run_agent(run_dir, once=True), seed)


@pytest.mark.parametrize("how", ["removed", "empty", "half"])
def test_each_file_of_the_agent_may_be_damaged(how: str, waiting: Path) -> None:
    """One file below `local/` at a time: nothing raises, and no row is missing without a word."""
    files = [file.relative_to(waiting) for file in sorted((waiting / "local").rglob("*")) if file.is_file()]
    assert len(files) > 5
    for n, file in enumerate(files):
        run_dir = copy(waiting, n)
        if how == "removed":
            (run_dir / file).unlink()
        else:
            content = (run_dir / file).read_bytes()
            (run_dir / file).write_bytes(content[: len(content) // 2] if how == "half" else b"")
        (run_dir / "open").touch()
        complete = run_agent(run_dir, once=True)

        arrived = sorted({*gated(run_dir)})
        assert arrived == [*range(STEPS)] or (not complete and lost(run_dir)), file
        assert [row["step"] for row in rows_of(run_dir)] == [*range(STEPS)] or lost(run_dir), file


def test_an_outbox_that_is_emptied_while_it_is_read(tmp_path: Path, gates: Any) -> None:
    """The agent ends, and the next one makes it again: an exporter that shows what it has gets no row twice."""
    journal = [started(), *steps(*range(STEPS)), Finished(T0 + 10**9)]
    run = hostile.recorded(tmp_path, {"rank0.attempt1": journal}, ["jsonl", gates.Half], idle_timeout=30)
    ended: list[str] = []

    def deliver() -> None:
        try:
            run_agent(run.dir, once=True)
        except GoneError as error:
            ended.append(str(error))

    running = threading.Thread(target=deliver)
    running.start()
    wait_for(lambda: (run.dir / "half").exists() and len(losses(run.dir)) == STEPS, "no rows")
    for segment in (local_of(run.dir) / "outbox").glob("*.seg"):
        os.truncate(segment, 0)
    running.join(30)
    assert "the next agent makes it again" in ended[0]
    (run.dir / "open").touch()

    assert run_agent(run.dir, once=True)
    assert {*gated(run.dir)} == {*range(STEPS)}
    assert losses(run.dir) == [*range(STEPS)]
    assert lost(run.dir) == {}


def test_a_run_whose_local_files_are_gone(waiting: Path) -> None:
    """All of `local/` was removed, or is a link to a directory that was: the archive has everything."""
    wait_for_idle(waiting, 0.5)
    shutil.rmtree(waiting / "local")
    linked = copy(waiting, "linked")
    (linked / "local").symlink_to(linked / "elsewhere")
    for run_dir in (waiting, linked):
        (run_dir / "open").touch()

    assert [run_agent(run_dir, once=True) for run_dir in (waiting, linked)] == [True, True]
    assert [gated(run_dir) for run_dir in (waiting, linked)] == [[*range(STEPS)]] * 2
    assert not lost(linked)


@pytest.mark.parametrize("journals_too", [False, True])
def test_a_backlog_that_is_removed(waiting: Path, *, journals_too: bool) -> None:
    """A cleaner removes the outbox's segments and leaves the rest: made again from journals, or from the archive."""
    local = local_of(waiting)
    for segment in (local / "outbox").glob("*.seg"):
        segment.unlink()
    for journal in (local / "journals").iterdir() if journals_too else ():
        shutil.rmtree(journal)
    (waiting / "open").touch()

    assert run_agent(waiting, once=True)
    assert gated(waiting) == [*range(STEPS)]
    assert not lost(waiting)


def test_a_damaged_manifest_is_an_error_with_a_fix(waiting: Path) -> None:
    """The message names the file."""
    (waiting / "run.json").write_text("{")

    with pytest.raises(ValueError, match=r"run\.json is damaged"):
        run_agent(waiting, once=True)


def ranks() -> dict[str, list[Record]]:
    """Two ranks with phases, spans, tables, samples and events; the second one dies."""
    found: dict[str, list[Record]] = {}
    for rank in range(2):
        records: list[Record] = [started(rank, 2)]
        for n in range(STEPS):
            at, span = T0 + n * 1_000_000, (rank + 1) * 1000 + n
            trace = step_ids("run", 0, n).trace_id.to_bytes(16, "big")
            records += [
                StepStarted(n, at, b""),
                SpanStarted(span, 1, trace, n, "generate", at + 1, b""),
                Logged(n, at + 2, {"loss": float(n), "score@max": float(rank)}),
                Observed(n, at + 3, {"reward": array("d", [1.0, 2.0, n]).tobytes()}),
                Tabled(n, at + 4, "completions", ["text"], [(f"{n}",)]),
                Happened("saved", at + 5, {}, n),
                SpanEnded(span, at + 6, b""),
                StepEnded(n, at + 7, b""),
            ]
        found[f"rank{rank}.attempt0"] = [*records, Finished(T0 + 10**9)] if rank == 0 else records
    return found


@pytest.mark.parametrize("every", [1, 7])
def test_everything_is_made_again(every: int, tmp_path: Path, gates: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the outbox is removed: the same rows of windows and of several ranks, spans, tables and events."""
    monkeypatch.setattr(loop, "_READ_AT_ONCE", 5)
    journals = ranks()
    run = hostile.recorded(tmp_path, {}, [gates.Gated], rows={"every": every, "deadline": 0.2}, idle_timeout=0.5)
    for place in (local_of(run.dir) / "journals", run.dir / "attempts"):
        shutil.rmtree(place)
        place.mkdir()
    hostile.write(run.dir, journals)
    run_agent(run.dir, once=True)
    made: list[list[str]] = []
    for name in ("intact", "removed"):
        run_dir = copy(run.dir, name)
        for segment in (local_of(run_dir) / "outbox").glob("*.seg") if name == "removed" else ():
            segment.unlink()
        (run_dir / "open").touch()
        assert run_agent(run_dir, once=True)
        made.append(sorted((run_dir / "all.txt").read_text().splitlines()))

    assert len(made[0]) > 4 * STEPS
    assert made[0] == made[1]


def test_an_outbox_of_another_version(waiting: Path) -> None:
    """Its batches cannot be decoded, so the agent makes everything again from the journals; each row arrives once."""
    outbox = Outbox(local_of(waiting) / "outbox", 1 << 30)
    batches = [batch for _, batch in outbox.since(START)]
    outbox.close()
    for segment in segment_numbers(outbox.path):
        segment_path(outbox.path, segment).unlink()
    writer = Writer(outbox.path, limit_bytes=1 << 30)
    for batch in batches:
        writer.append(Older(batch.items, batch.checkpoint, [], {}, batch.before))
    writer.close()
    (waiting / "open").touch()
    run_agent(waiting, once=True)

    assert losses(waiting) == [*range(STEPS)]
    assert sorted(map(int, (waiting / "gated.txt").read_text().split())) == [*range(STEPS)]


def test_a_reader_in_the_trainer_counts_what_is_damaged(tmp_path: Path) -> None:
    """An exporter that only the trainer can build meets damaged batches: it gets the others, and `finish` is false."""
    opened, seen = threading.Event(), []

    class Backend:
        def log_scalar(self, event: str, value: float, **told: int) -> None:
            opened.wait(30)
            seen.append((told["step"], event))

        def close(self) -> None: ...

    run = otel_rl.init(dir=tmp_path, exporters=["jsonl", Backend()], hardware=False, quiet=True)
    for n in range(30):
        run.log({"loss": float(n)}, step=n)
        wait_for(lambda n=n: len(rows_of(run.dir)) >= n, "no row")  # type: ignore[misc] # a batch for each
    segment = local_of(run.dir) / "outbox" / "00000001.seg"
    used = len(segment.read_bytes().rstrip(b"\0"))
    for part in (3, 2):
        with segment.open("r+b") as file:
            file.seek(used * part // 4)
            file.write(b"\xff\xff")
    opened.set()

    assert not run.finish(30)
    steps = [step for step, event in seen if event == "loss"]
    assert steps == sorted({*steps})
    assert 25 <= len(steps) < 30
    assert losses(run.dir) == [*range(30)]
