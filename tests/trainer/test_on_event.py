"""`run.on_event`: functions of the trainer that are called with the events of the agent."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from urllib.request import urlopen

import pytest

import otel_rl
from otel_rl.export import Event
from otel_rl.journal.records import Logged
from otel_rl.setup.said import MOST, Said
from tests.collector import wait_for
from tests.trainer.reading import RecordsOf


def get(url: str | None) -> str:
    with urlopen(str(url)) as answer:
        return str(answer.read().decode())


def event(name: str = "rl.straggler", time: int = 1 << 62, **attributes: float | str) -> Event:
    return Event(name, time, {**attributes}, 3, 1)


@pytest.fixture
def said(recording: otel_rl.Run) -> Said:
    """The file that the agent of a run writes."""
    return Said(recording._session.directory.events)


def test_a_function_is_called_at_steps(recording: otel_rl.Run, said: Said) -> None:
    """At the begin and at the end of a step, once for each event whose name matches, on this thread."""
    named: list[Event] = []
    every: list[str] = []
    recording.on_event("rl.straggler", named.append)
    recording.on_event("rl.*", lambda one: every.append(one.name))
    said.add([event(score=float("nan"))])
    assert every == []

    with recording.step(0):
        assert every == ["rl.straggler"]
        said.add([event("rl.memory.growing"), Event("mine", 1 << 62)])
        assert every == ["rl.straggler"]
    with recording.step(1):
        pass

    assert every == ["rl.straggler", "rl.memory.growing"]
    assert [(one.name, one.step, one.rank, one.attributes) for one in named] == [("rl.straggler", 3, 1, {})]


def test_what_a_function_raises_is_counted(recording: otel_rl.Run, said: Said) -> None:
    """The others are called, and the step goes on; Ctrl-C passes, and the event is not repeated."""
    called: list[Event] = []

    def interrupt(_: Event) -> None:
        raise KeyboardInterrupt

    recording.on_event("rl.a", lambda _: 1 / 0)
    recording.on_event("rl.a", called.append)
    recording.on_event("rl.b", interrupt)
    recording.on_event("rl.a", "no function")  # type: ignore[arg-type]
    said.add([event("rl.a")])
    with recording.step(0):
        assert len(called) == 1
    said.add([event("rl.b")])
    with pytest.raises(KeyboardInterrupt), recording.step(1):
        pass
    with recording.step(2):
        pass

    assert recording.refused == {"on_event": 2}


def test_a_name_that_no_event_of_the_agent_has(recording: otel_rl.Run) -> None:
    """It is refused: such a function is never called. Patterns are not."""
    for name in ("checkpoint", "rl.*", "*", "?l.a"):
        recording.on_event(name, print)

    assert recording.refused == {"on_event": 1}


def test_a_function_that_uses_the_run(recording: otel_rl.Run, said: Said, records_of: RecordsOf) -> None:
    """Values that it logs at the end of a step belong to the step; a step inside is refused, and calls nobody."""
    recording.on_event("rl.a", lambda _: recording.log({"called": 1.0}))
    recording.on_event("rl.a", lambda _: recording.step(5).__enter__())
    with recording.step(0):
        said.add([event("rl.a")])
    with recording.step(1):
        pass

    assert [(one.step, one.values) for one in records_of(recording) if isinstance(one, Logged)] == [
        (0, {"called": 1.0})
    ]
    assert recording.refused == {"step": 1}


def test_events_of_earlier_attempts(recording: otel_rl.Run, said: Said) -> None:
    """They are left out, and so is a file that is damaged; the file keeps the last events of an earlier agent."""
    called: list[float] = []
    recording.on_event("*", lambda one: called.append(one.attributes["n"]))  # type: ignore[arg-type]
    said.add([event(time=1, n=-1)])
    recording._session.directory.events.write_text("[")
    with recording.step(0):
        pass
    said.add([event(n=n) for n in range(MOST)])
    Said(recording._session.directory.events).add([event(n=MOST)])
    with recording.step(1):
        pass

    assert called == [*range(1, MOST + 1)]


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
    assert len(otel_rl.open_run(run.dir).events("rl.training.anomaly")) == 1
    assert [line.rpartition(" ")[2] for line in counted] == ["1.0"]
    assert 'rl_anomaly_kind="collapse"' in counted[0]
