"""No record and no frame stops the agent: what cannot be processed is put into quarantine, and counted."""

from __future__ import annotations

import math
import random
from pathlib import Path

import msgspec
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_rl.analysis import Analysis
from otel_rl.recorder.agent.loop import Loop
from otel_rl.recorder.agent.process import run_agent
from otel_rl.recorder.agent.steps.reduced import Reduced
from otel_rl.recorder.delivery.quarantine import Quarantine
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.record_events import INDEX, JOURNAL
from otel_rl.recorder.journal.records import (
    AnyRecord,
    Consumed,
    Finished,
    Logged,
    Record,
    SpanEnded,
    SpanStarted,
)
from otel_rl.recorder.settings.tokens import Tokens
from otel_rl.serve.head.receiver import HeadReceiver
from tests.collector import free_port
from tests.faults import hostile
from tests.faults.sane import STEP_NS, T0, losses, started, steps
from tests.processes import local_of, rows_of
from tests.serve.bridge.bridges import any_value, pairs, step_metrics


def quarantined(run_dir: Path) -> list[dict[str, object]]:
    path = local_of(run_dir) / "quarantine.jsonl"
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def test_an_inconsistent_record_loses_itself_alone(tmp_path: Path) -> None:
    """All rows arrive, the record is kept; the next agents process nothing again, and still report the loss."""
    bad = Consumed(1, T0 + STEP_NS + 1, "trained", 0, b"\0" * 24, b"\0" * 16, b"")  # ids of another length than rewards
    three = steps(0, 1, 2)
    journal = [started(), *three[:5], bad, *three[5:], Finished(T0)]
    run = hostile.recorded(tmp_path, {"rank0.attempt1": journal}, ["jsonl"])

    assert [run_agent(run.dir, once=True) for _ in range(3)] == [False] * 3
    assert losses(run.dir) == [0, 1, 2]
    assert [entry["kind"] for entry in quarantined(run.dir)] == ["Consumed"]
    assert agent_start.read_status(directories.at(run.dir)).lost == {"quarantined": 1}


@pytest.mark.parametrize("kind", hostile.KINDS, ids=lambda kind: kind.__name__)
def test_no_kind_of_record_stops_the_agent(kind: type[Record], tmp_path: Path) -> None:
    """300 records of a kind with hostile values, between sane steps: every sane row arrives, at the next start too."""
    dice = random.Random(kind.__name__)
    poison = [hostile.of_kind(kind, dice) for _ in range(300)]
    poison = [record for record in poison if record.__struct_config__.tag != Finished.__struct_config__.tag]
    mixed = [started(), *steps(0, 1), *poison, *steps(2**40, 2**40 + 1), Finished(T0)]
    run = hostile.recorded(tmp_path, {"rank0.attempt1": mixed}, ["jsonl"])
    run_agent(run.dir, once=True)
    arrived = losses(run.dir)
    run_agent(run.dir, once=True)

    assert {0, 1, 2**40, 2**40 + 1} <= {row["step"] for row in rows_of(run.dir)}
    assert losses(run.dir) == arrived
    assert agent_start.read_status(directories.at(run.dir)).delivered["jsonl"] > (0, 0)


def test_frames_that_are_no_records(tmp_path: Path) -> None:
    """Unknown tags, wrong types and garbage between sane steps are counted."""
    frames = [msgspec.msgpack.encode(["?"]), b"\xc1", msgspec.msgpack.encode([99, 1]), msgspec.msgpack.encode([5, "x"])]
    run = hostile.recorded(
        tmp_path, {"rank0.attempt1": [started(), *steps(0), *frames, *steps(1), Finished(T0)]}, ["jsonl"]
    )

    assert run_agent(run.dir, once=True) is False
    assert losses(run.dir) == [0, 1]
    assert agent_start.read_status(directories.at(run.dir)).lost == {"undecodable": 4}


def test_a_journal_without_its_beginning_is_read(tmp_path: Path) -> None:
    """The name of the journal shows whose it is."""
    run = hostile.recorded(tmp_path, {"rank3.attempt1": [*steps(0, 1), Finished(T0)]}, ["jsonl"])
    run_agent(run.dir, once=True)

    assert losses(run.dir) == [0, 1]
    assert {row["attempt"] for row in rows_of(run.dir)} == {1}


def test_sums_of_more_than_64_bits_are_saved(tmp_path: Path) -> None:
    """Integers that are sane alone and not in sum: the row has a float, and the next agent can go on."""
    huge = [Logged(0, T0 + n, {"loss@sum": 2**63 - 1}) for n in range(3)]
    spans: list[Record] = []
    for n in range(1, 6):
        begun = SpanStarted(n, 0, n.to_bytes(16, "big"), None, "rl.rollout", T0, b"", 0)
        spans += [begun, SpanEnded(n, T0 + n, b"", {"rl.trajectory.tokens": 2**63 - 1, "tokens": 2**63 - 1})]
    ranks = {f"rank{n}.attempt1": [started(n, 3), *spans, huge[n], Finished(T0)] for n in range(3)}
    run = hostile.recorded(tmp_path, ranks, ["jsonl"])
    run_agent(run.dir, once=True)

    assert losses(run.dir) == [float(3 * (2**63 - 1))]
    run_agent(run.dir, once=True)
    assert len(losses(run.dir)) == 1


def test_a_part_of_the_agent_that_fails_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage raises at every call: the rows of plain values arrive."""
    from otel_rl.recorder.agent.output import presence
    from otel_rl.recorder.agent.output.measurements import Measurements
    from otel_rl.recorder.agent.output.otel_metrics import OtelMetrics
    from otel_rl.recorder.agent.steps import derive, trajectories
    from otel_rl.recorder.agent.steps.analyses import registered
    from otel_rl.recorder.agent.steps.trackers import TrackerRows

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    run = hostile.recorded(tmp_path, {"rank0.attempt1": [started(), *steps(0, 1), Finished(T0)]}, ["jsonl"])
    hooks = {name for name, hook in vars(Analysis).items() if callable(hook) and not name.startswith("_")}
    for owner, name in (
        (trajectories, "of_step"),
        (derive, "derived"),
        (presence, "points"),
        (OtelMetrics, "show"),
        (Measurements, "collect"),
        (TrackerRows, "of"),
        *((one, name) for one in registered(Quarantine()).values() for name in hooks & vars(one).keys()),
    ):
        monkeypatch.setattr(owner, name, fail)

    assert run_agent(run.dir, once=True) is False
    assert losses(run.dir) == [0, 1]


def test_an_agent_whose_loop_fails_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected failure is counted and retried."""
    run = hostile.recorded(tmp_path, {"rank0.attempt1": [started(), *steps(0, 1), Finished(T0)]}, ["jsonl"])
    calls: list[int] = []
    turn = Loop.turn

    def flaky(loop: Loop, now: int, *, near_end: bool) -> tuple[Reduced, bool]:
        calls.append(1)
        if len(calls) < 4:
            raise RuntimeError("not yet")
        return turn(loop, now, near_end=near_end)

    monkeypatch.setattr(Loop, "turn", flaky)
    run_agent(run.dir, once=True)

    assert losses(run.dir) == [0, 1]


def test_the_quarantine_is_bounded_and_logs_each_kind_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A thousand failures alike are four lines in the log, and the file keeps its limit."""
    quarantine = Quarantine(tmp_path / "q.jsonl", limit_bytes=10_000)
    for n in range(1000):
        quarantine.put("intake", "rank0", Logged(n, 1, {"loss": 2.0**n}), ValueError("\udcff"))

    assert quarantine.count == 1000
    assert (tmp_path / "q.jsonl").stat().st_size <= 10_000
    assert (tmp_path / "q.jsonl").stat().st_mode & 0o077 == 0
    assert len(caplog.records) == 4
    assert all(len(record.getMessage()) < 500 for record in caplog.records)


def test_hostile_requests_do_not_stop_the_head(tmp_path: Path) -> None:
    """Records with strange names, indices and values, sent to the head: refused or kept, and the sane ones arrive."""

    def request(
        journal: str, index: object, name: str = "rl.journal.finished", body: object = None
    ) -> ExportLogsServiceRequest:
        found = step_metrics("run", {})
        body = body or {"time": 5, "exit_code": 0, "outcome": "finished"}
        record = found.resource_logs[0].scope_logs[0].log_records.add(event_name=name, body=any_value(body))
        record.attributes.extend(pairs({JOURNAL: journal, INDEX: index}))
        return found

    good = "rank0.attempt0"
    receiver = HeadReceiver(f"127.0.0.1:{free_port()}", "run", tmp_path, tmp_path, 1 << 30, Tokens())
    hostile_ones = [request(name, 0) for name in ("../x", "", ".", "a/b", "n" * 5000, "\0", "é" * 200)]
    hostile_ones += [request(good, index) for index in (-1, 2**63 - 1, math.inf, math.nan, "x")]
    hostile_ones += [request(good, 0, kind, "x") for kind in ("rl.journal.?", "rl.machine.metrics")]
    rejected = [receiver.handle("logs", one).partial_success.rejected_log_records for one in hostile_ones]
    receiver.handle("logs", request(good, 0))
    receiver.close()

    assert rejected == [1] * len(hostile_ones) or rejected.count(0) == 1  # an empty name is the host's alone
    assert Reader(tmp_path / "rank0.attempt0@", AnyRecord).read() == [Finished(5)]
