"""`run.on_event`: functions of the trainer that are called with the events of the agent."""

from __future__ import annotations

import pytest

import otel_rl
from otel_rl.export import Event
from otel_rl.recorder.directory.agent_events import MOST, EventFile
from otel_rl.recorder.journal.records import Logged
from tests.recorder.trainer.reading import RecordsOf


def event(name: str = "rl.straggler", time: int = 1 << 62, **attributes: float | str) -> Event:
    return Event(name, time, {**attributes}, 3, 1)


@pytest.fixture
def said(recording: otel_rl.Run) -> EventFile:
    """The file that the agent of a run writes."""
    return EventFile(recording._session.directory.events)


def test_a_function_is_called_at_steps(recording: otel_rl.Run, said: EventFile) -> None:
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


def test_what_a_function_raises_is_counted(recording: otel_rl.Run, said: EventFile) -> None:
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


def test_a_function_that_uses_the_run(recording: otel_rl.Run, said: EventFile, records_of: RecordsOf) -> None:
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


def test_events_of_earlier_attempts(recording: otel_rl.Run, said: EventFile) -> None:
    """They are left out, and so is a file that is damaged; the file keeps the last events of an earlier agent."""
    called: list[float] = []
    recording.on_event("*", lambda one: called.append(one.attributes["n"]))  # type: ignore[arg-type]
    said.add([event(time=1, n=-1)])
    recording._session.directory.events.write_text("[")
    with recording.step(0):
        pass
    said.add([event(n=n) for n in range(MOST)])
    EventFile(recording._session.directory.events).add([event(n=MOST)])
    with recording.step(1):
        pass

    assert called == [*range(1, MOST + 1)]
