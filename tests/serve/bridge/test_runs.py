"""The runs of the bridge: each item is kept once, whatever is repeated; and the number of open runs is limited."""

from __future__ import annotations

import collections
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_rl.export import Event, Item, Row, RunInfo
from otel_rl.recorder.delivery.outbox import Outbox, OutboxBatch
from otel_rl.recorder.journal.reader import Reader
from otel_rl.serve.bridge import runs as bridged
from otel_rl.serve.bridge.forwarding import IntoRuns
from otel_rl.serve.bridge.runs import BridgedRun, Runs, directory_of
from otel_rl.serve.bridge.step_events import run_of
from tests.collector import wait_for
from tests.processes import rows_of
from tests.serve.bridge.bridges import pairs, step_metrics

pytestmark = pytest.mark.timeout(120)


def info(directory: Path, id_: str = "run") -> RunInfo:
    return run_of({"rl.run.id": id_, "rl.run.project": "p"}, directory)


def rows(*steps: int, loss: float = 1.0) -> list[Item]:
    return [Row(step, 10**18 + step, {"loss": loss}) for step in steps]


def kept(directory: Path, id_: str = "run") -> list[Item]:
    """Return what the outbox of a run has."""
    place = directory_of(directory / "p" / id_).outbox
    return [item for batch in Reader(place, OutboxBatch).read(100_000) for item in batch.items]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[BridgedRun]:
    run = BridgedRun(info(tmp_path), [], 1 << 30)
    yield run
    run.close(0)


def test_ten_thousand_rows_in_one_request(tmp_path: Path) -> None:
    """Sent twice, as a client does that got no answer: ten thousand."""
    runs = Runs(tmp_path, [])
    request = step_metrics("run", {n: {"loss": 1.0} for n in range(10_000)})
    for _ in range(2):
        assert not IntoRuns(runs).handle("logs", request).partial_success.rejected_log_records
    runs.close()

    assert [item.step for item in kept(tmp_path) if isinstance(item, Row)] == list(range(10_000))


def test_a_step_may_have_several_rows(run: BridgedRun, tmp_path: Path) -> None:
    """Values logged later for the same step are another part of it; each part is there once."""
    first, second = rows(5, loss=1.0), rows(5, loss=2.0)
    run.store([*first, *second])
    run.store([*second, *first])
    parts = [(item.step, item.part, item.values["loss"]) for item in kept(tmp_path) if isinstance(item, Row)]

    assert parts == [(5, 0, 1.0), (5, 1, 2.0)]


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.booleans()), max_size=6), max_size=8))
def test_any_order(tmp_path_factory: pytest.TempPathFactory, requests: list[list[tuple[int, int, bool]]]) -> None:
    """Rows and events in any order, with restarts: the outbox has each that was sent, once, in the order of arrival."""
    directory = tmp_path_factory.mktemp("runs")
    arrived: list[tuple[int, int, bool]] = []
    for request in requests:
        run = BridgedRun(info(directory), [], 1 << 30)
        run.store([_item(*one) for one in request])
        run.close(0)
        arrived += request
    found = [_told(item) for item in kept(directory)]

    assert found == list(dict.fromkeys(arrived))


def _item(step: int, value: int, is_row: bool) -> Item:
    if is_row:
        return Row(step, step, {"value": value})
    return Event("e", step, {"value": value})


def _told(item: Any) -> tuple[int, int, bool]:
    is_row = isinstance(item, Row)
    return item.time_unix_nano, (item.values if is_row else item.attributes)["value"], is_row


def test_killed_between_outbox_and_index(tmp_path: Path) -> None:
    """Entries missing in the index are read from the outbox."""
    place = tmp_path / "p" / "run" / "local" / "bridge"
    run = BridgedRun(info(tmp_path), [], 1 << 30)
    run.store(rows(1, 2))
    run.close(0)
    shutil.copy(place / "seen.sqlite", tmp_path / "before")
    run = BridgedRun(info(tmp_path), [], 1 << 30)
    run.store(rows(3, 4))
    run.close(0)
    shutil.copy(tmp_path / "before", place / "seen.sqlite")
    run = BridgedRun(info(tmp_path), [], 1 << 30)
    run.store(rows(4, 3, 2, 5))
    run.close(0)

    assert [item.step for item in kept(tmp_path) if isinstance(item, Row)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("content", [b"", b"no database" * 1000])
def test_a_damaged_index(content: bytes, tmp_path: Path) -> None:
    """It is made again."""
    run = BridgedRun(info(tmp_path), [], 1 << 30)
    run.store(rows(*range(50)))
    run.close(0)
    (tmp_path / "p" / "run" / "local" / "bridge" / "seen.sqlite").write_bytes(content)
    for _ in range(2):
        try:
            run = BridgedRun(info(tmp_path), [], 1 << 30)
        except OSError:
            continue
    run.store(rows(*range(60)))
    run.close(0)

    assert [item.step for item in kept(tmp_path) if isinstance(item, Row)] == list(range(60))


def send(runs: Runs, *ids: str) -> None:
    for id_ in ids:
        IntoRuns(runs).handle("logs", step_metrics(id_, {0: {"loss": 1.0}}))


def test_an_idle_run_makes_room(tmp_path: Path) -> None:
    """The one that was idle for longest is closed, and opened again when something comes for it."""
    runs = Runs(tmp_path, [("jsonl", {})], most=2, spare_s=0)
    for id_ in ("a", "b", "c", "d"):
        send(runs, id_)
        wait_for(lambda: all(run.is_delivered for run in runs.open), "they are not delivered")
    wait_for(lambda: _accepts(runs, "a"), "an earlier run is not taken again")
    is_open = [run.info.id for run in runs.open].count("a")
    runs.close()

    assert is_open == 1
    assert [len(rows_of(tmp_path / "p" / id_)) for id_ in ("a", "b", "c", "d")] == [1, 1, 1, 1]


def test_active_runs_are_not_closed(tmp_path: Path) -> None:
    """When all are in use, another one is to come later."""
    runs = Runs(tmp_path, [], most=2)
    send(runs, "a", "b")
    with pytest.raises(OSError, match="too many runs: 2 are active"):
        send(runs, "c")
    runs.close()


def test_idle_runs_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By themselves, after a while."""
    monkeypatch.setattr(bridged, "_TEND_S", 0.05)
    runs = Runs(tmp_path, [("jsonl", {})], idle_s=0.1)
    send(runs, "a", "b")
    wait_for(lambda: not runs.open, "they stay open")
    assert runs.close()


def test_more_runs_than_may_be_open_are_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed with five runs that are not delivered: the next bridge delivers all, two at a time, and takes new ones."""
    monkeypatch.setattr(bridged, "_TEND_S", 0.05)
    ids = [f"run-{n}" for n in range(5)]
    for id_ in ids:
        run = BridgedRun(info(tmp_path, id_), [], 1 << 30)
        run.store(rows(0))
        run._seen.close()
    (tmp_path / "p" / "run-3" / "bridge.json").write_text("{")
    runs = Runs(tmp_path, [("jsonl", {})], most=2, idle_s=0.1, spare_s=0)
    runs.resume()
    wait_for(lambda: _accepts(runs, "new"), "no new run is taken")
    resumed = [id_ for id_ in ids if id_ != "run-3"]  # its file cannot be read
    wait_for(lambda: all(rows_of(tmp_path / "p" / id_) for id_ in [*resumed, "new"]), "not all are delivered")
    runs.close()

    assert not rows_of(tmp_path / "p" / "run-3")


def test_one_bridge_for_a_directory(tmp_path: Path) -> None:
    """A second one is asked to use another directory."""
    runs = Runs(tmp_path, [])
    with pytest.raises(OSError, match="used by another bridge"):
        Runs(tmp_path, [])
    runs.close()

    assert Runs(tmp_path, []).close()


def test_resources_of_any_kind(tmp_path: Path) -> None:
    """Invalid directories and saved runs are distinguished from valid ones."""
    runs = Runs(tmp_path, [("jsonl", {})])
    reasons = collections.Counter[str]()
    for id_ in (5, 0, "", "a" * 300, True, 0.5, b"x", [], {}, None):
        request = step_metrics(None, {0: {"loss": 1.0}})
        _add(request.resource_logs[0].resource.attributes, "rl.run.id", id_)
        _add(request.resource_logs[0].resource.attributes, "nested", {"a": {"b": [1, {"c": 2.0}]}})
        answer = IntoRuns(runs).handle("logs", request)
        reasons[answer.partial_success.error_message] += 1
    runs.close()
    again = Runs(tmp_path, [("jsonl", {})])
    again.resume()

    assert reasons[""] == 3
    assert sum("rl.run.id" in reason for reason in reasons.elements()) == 7
    assert again.close()


def _add(attributes: Any, key: str, value: Any) -> None:
    if value is None:
        attributes.add(key=key)
    elif isinstance(value, bytes):
        attributes.add(key=key).value.bytes_value = value
    else:
        attributes.extend(pairs({key: value}))


def _accepts(runs: Runs, id_: str) -> bool:
    try:
        send(runs, id_)
    except OSError:
        return False
    return True


def test_a_full_disk_takes_nothing(run: BridgedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items that the outbox did not accept are not in the index either."""

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Outbox, "append", full)
        with pytest.raises(OSError, match="no space"):
            run.store(rows(1))
    run.store(rows(1))

    assert [item.step for item in kept(tmp_path) if isinstance(item, Row)] == [1]
