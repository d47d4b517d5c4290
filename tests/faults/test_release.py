"""Items that every exporter has are removed; others are kept, and nothing is lost by it."""

from __future__ import annotations

import random
import time
from pathlib import Path

import msgspec
import pytest

import otel_rl
from otel_rl.export import Row
from otel_rl.recorder.agent import agent, loop
from otel_rl.recorder.agent.process import run_agent
from otel_rl.recorder.agent.repair.release import Release
from otel_rl.recorder.delivery.outbox import Outbox
from otel_rl.recorder.delivery.progress import Cursor
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Finished, Logged
from otel_rl.recorder.journal.segments import START, Position, Released, segment_numbers, set_released
from otel_rl.recorder.journal.writer import Writer
from tests.collector import free_port, wait_for
from tests.faults import hostile
from tests.faults.sane import T0, losses, started, steps
from tests.processes import local_of, rows_of, run_python, start_python

SEGMENT = 20_000


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make segments of 20 kB and keep no tail, so that a short run releases much."""
    monkeypatch.setattr(Writer.__init__, "__kwdefaults__", {"segment_bytes": SEGMENT, "limit_bytes": 1 << 30})
    monkeypatch.setattr(Release.__init__, "__defaults__", (0,))
    monkeypatch.setattr(agent, "_RELEASE_EVERY_S", 0.0)
    monkeypatch.setattr(loop, "_READ_AT_ONCE", 30)


def test_what_is_delivered_is_removed(small: None, tmp_path: Path) -> None:
    """Of 2,000 steps few segments are left; all rows are there, and the next agent has nothing to do."""
    journal = {"rank0.attempt1": [started(), *steps(*range(2000))]}
    run = hostile.recorded(tmp_path, journal, ["jsonl"])
    written = len(segment_numbers(local_of(run.dir) / "journals" / "rank0.attempt1"))
    complete = run_agent(run.dir, once=True)

    assert complete
    assert losses(run.dir) == [*range(2000)]
    assert written > 5
    assert len(segment_numbers(local_of(run.dir) / "journals" / "rank0.attempt1")) <= 2
    assert len(segment_numbers(local_of(run.dir) / "outbox")) <= 3
    assert run_agent(run.dir, once=True)
    assert len(losses(run.dir)) == 2000


def test_a_relay_that_has_not_read_yet_keeps_what_it_needs(small: None, tmp_path: Path) -> None:
    """The cursor of a reader in another process is there from the moment on that it waits."""
    run = hostile.recorded(tmp_path, {"rank0.attempt1": [started(), *steps(*range(500))]}, ["jsonl"])
    (local_of(run.dir) / "cursors" / "lambda.json").write_text('{"position": [0, 0]}')
    run_agent(run.dir, once=True)

    assert segment_numbers(local_of(run.dir) / "outbox")[0] == 1


def test_removed_segments_are_not_lost(tmp_path: Path) -> None:
    """A reader from the beginning counts what retention took, and not what was released."""
    writer = Writer(tmp_path, segment_bytes=200)
    for n in range(40):
        writer.append(Logged(n, 1, {"loss": 1.0}))
    set_released(tmp_path, Released(first=4))
    for number in segment_numbers(tmp_path)[:5]:
        (tmp_path / f"{number:08d}.seg").unlink()
    reader = Reader(tmp_path, AnyRecord)
    reader.read()

    assert reader.lost_segments == 2


def test_the_writer_of_a_journal_does_not_mind(tmp_path: Path) -> None:
    """Its own retention works on, though others remove its segments."""
    writer = Writer(tmp_path, segment_bytes=1000, limit_bytes=5000)
    for n in range(500):
        writer.append(Logged(n, 1, {"loss": 1.0}))
        if n % 50 == 0:
            for number in segment_numbers(tmp_path)[:-1]:
                (tmp_path / f"{number:08d}.seg").unlink()
    found = Reader(tmp_path, AnyRecord).read(1000)

    assert found[-1].step == 499  # type: ignore[union-attr]
    assert 1 <= len(segment_numbers(tmp_path)) <= 6


@pytest.mark.slow
def test_killed_at_any_moment_around_a_release(tmp_path: Path) -> None:
    """An agent that releases all the time is killed four times: every row is there once, and nothing is lost."""
    script = """
import os, sys
from pathlib import Path
from otel_rl.recorder.agent import agent, loop, process
from otel_rl.recorder.agent.repair.release import Release
from otel_rl.recorder.journal.writer import Writer
Writer.__init__.__kwdefaults__.update(segment_bytes=20_000)
Release.__init__.__defaults__ = (0,)
loop._RELEASE_EVERY_S = 0.0
loop._READ_AT_ONCE = 30
done = process.run_agent(Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["RUN"]), once=True)
os._exit(0 if done else 1)
"""
    dice = random.Random(3)
    journal = {"rank0.attempt1": [started(), *steps(*range(3000)), Finished(T0 + 10**12)]}
    run = hostile.recorded(tmp_path, journal, ["jsonl"])
    for _ in range(4):
        agent = start_python(script, tmp_path, RUN=str(run.dir))
        wait_for(lambda agent=agent: agent.poll() is not None or _began(run.dir, agent.pid), "it does not begin")  # type: ignore[misc]
        time.sleep(dice.uniform(0, 0.3))
        agent.kill()
        agent.wait()
    run_python(script, tmp_path, RUN=str(run.dir))

    assert losses(run.dir) == [*range(3000)]
    assert agent_start.read_status(directories.at(run.dir)).lost == {}
    assert len(segment_numbers(local_of(run.dir) / "journals" / "rank0.attempt1")) <= 2


def _began(run_dir: Path, pid: int) -> bool:
    return agent_start.read_status(directories.at(run_dir)).pid == pid


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_what_is_needed_is_never_removed(seed: int, tmp_path: Path) -> None:
    """Cursors move at random: what lies behind the last of them is always there, and an intact batch before it."""
    dice = random.Random(seed)
    for name in ("outbox", "cursors"):
        (tmp_path / name).mkdir()
    outbox = Outbox(tmp_path / "outbox", 1 << 30)
    outbox._writer.close()
    outbox._writer = Writer(tmp_path / "outbox", segment_bytes=2000)
    releasing = Release(outbox, tmp_path / "cursors", None, tail_bytes=dice.choice((0, 5000)))
    places = [START]
    cursors = {"a": 0, "b": 0}
    for n in range(600):
        outbox.append([Row(n, 1, {"loss": 1.0})], b"\x80")
        places.append(outbox.end)
        who = dice.choice("ab")
        cursors[who] = min(n, cursors[who] + dice.randrange(4))
        cursor = msgspec.json.encode(Cursor(places[cursors[who]], 0, outbox.id))
        (tmp_path / "cursors" / f"{who}.json").write_bytes(cursor)
        if dice.random() < 0.2:
            releasing.look(["a.json", "b.json"])
            least = min(cursors.values())
            left = [batch.items[0].step for _, batch in outbox.since(Position(segment_numbers(outbox.path)[0], 0))]
            assert left == [*range(left[0], n + 1)]
            assert left[0] <= max(0, least - 1)
    outbox.close()


@pytest.mark.slow
def test_an_agent_of_an_ended_run_ends_though_it_could_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardware is measured and the collector is unreachable: the agent ends in time and reports what is left."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_RL_IDLE_TIMEOUT", "1")
    run = otel_rl.init(dir=tmp_path, quiet=True, hardware={"interval": 0.1, "flush_interval": 0.2})
    for n in range(5):
        run.log({"loss": float(n)}, step=n)
        time.sleep(0.1)
    run.finish(0)
    directory = directories.at(run.dir)
    wait_for(lambda: agent_start.read_status(directory).state == "ended", "the agent does not end", 40)
    status = agent_start.read_status(directory)

    assert status.waiting["otlp_logs"] >= 5
    wait_for(lambda: f"otel-rl agent {run.dir} --once" in directory.agent_log.read_text(), "it does not say how")
    assert len(rows_of(run.dir)) == 5


def test_what_dead_processes_had_reserved(tmp_path: Path) -> None:
    """The agent gives it back at its end, but for a journal with half a record; what is there can be read again."""
    records = [started(), *steps(*range(3))]
    run = hostile.recorded(tmp_path, {"rank0.attempt1": [], "rank0.attempt2": []}, ["jsonl"])
    whole, torn = (local_of(run.dir) / "journals" / f"rank0.attempt{n}" / "00000001.seg" for n in (1, 2))
    for segment in (whole, torn):
        writer = Writer(segment.parent)
        for record in records:
            writer.append(record)
        segment.with_name("00000002.seg").rename(segment)
    end = len(torn.read_bytes().rstrip(b"\0"))
    with torn.open("r+b") as file:
        file.truncate(end - 1)
        file.truncate(4 << 20)
    run_agent(run.dir, once=True)

    assert whole.stat().st_size == end
    assert torn.stat().st_size == 4 << 20
    assert [Reader(path.parent, AnyRecord).read() for path in (whole, torn)] == [records, records[:-1]]
