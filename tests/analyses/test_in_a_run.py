"""Conclusions of analyses while a trainer records: it reaches events, counters, the archive and reports."""

from __future__ import annotations

import contextlib
import json
from itertools import count
from pathlib import Path
from urllib.request import urlopen

import otel_rl
from otel_rl import Run
from otel_rl.export import Event
from otel_rl.recorder.trainer.current import recorder_of
from tests.collector import wait_for
from tests.real_parts import needs
from tests.recorder.agent.reducing import feed, reducing
from tests.recorder.archive.items import everything
from tests.recorder.devices.gpus import Allocator
from tests.recorder.trainer.reading import RecordsOf
from tests.recorder.trainer.test_exhaustion import exhausted


def get(url: str | None) -> str:
    with urlopen(str(url)) as answer:
        return str(answer.read().decode())


def test_an_entropy_that_collapses(tmp_path: Path) -> None:
    """The event of the agent reaches the function within the run, the archive and the counter."""
    found: list[Event] = []
    run = otel_rl.init(dir=tmp_path, project="p", exporters=["prometheus"], hardware=False, quiet=True, dialect="trl")
    run.on_event("rl.training.anomaly", found.append)
    for step in range(40):
        with run.step(step):
            run.log({"entropy": 1.0 + step / 100 if step < 30 else 0.01 + step / 1e6})
    after = count(40)

    def is_called() -> bool:
        with run.step(next(after)):
            return bool(found)

    wait_for(is_called, "the function was not called")
    assert run.prometheus is not None
    wait_for(lambda: "rl_training_anomalies_total" in get(run.prometheus), "the counter is not there")
    counted = [line for line in get(run.prometheus).splitlines() if line.startswith("rl_training_anomalies_total{")]
    assert run.finish(60)

    (one,) = found
    assert (one.step, one.attributes["rl.anomaly.kind"], one.attributes["rl.metric.name"]) == (
        34,
        "collapse",
        "entropy",
    )
    assert one.attributes["rl.anomaly.evidence"] == "is 0.01, below a tenth of its start of 1.1"
    (archive,) = (run.dir / "archive").iterdir()
    assert [item.name for item in everything(archive) if isinstance(item, Event)] == ["rl.training.anomaly"]
    assert [line.rpartition(" ")[2] for line in counted] == ["1.0"]
    assert 'rl_anomaly_kind="collapse"' in counted[0]


@needs("torch")
def test_the_ledger_is_in_the_report(recording: Run, records_of: RecordsOf) -> None:
    """The memory that stayed after each phase, and that each one took per step."""
    allocator = Allocator()
    recorder_of(recording).devices.found = allocator
    error = exhausted()
    for step in range(3):
        with contextlib.suppress(type(error)), recording.step(step):
            with recording.phase("generate"):
                allocator.hold(10 * (step + 1))
            with recording.phase("train"):
                if step == 2:
                    raise error
    items = feed(reducing(), "rank0", *records_of(recording))
    (event,) = [item for item in items if isinstance(item, Event) and item.name == "rl.memory.exhausted"]
    books = {book["of"]: book for book in json.loads(str(event.attributes["rl.memory.ledger"]))}

    assert books["device"]["residual"]["generate"] == 30 * 2**30
    assert books["device"]["growth"]["generate"] == 10 * 2**30
    assert books["device"]["growth"]["train"] == 0
