"""Exceptions from outside in the midst of a call, such as a Ctrl-C: what comes next is recorded as if nothing were."""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from itertools import count
from pathlib import Path

import pytest
from opentelemetry import context, trace

import otel_rl
from otel_rl import Run
from otel_rl.recorder.files import locks
from otel_rl.recorder.journal.records import Finished, Logged, Record, SpanEnded, SpanStarted, StepEnded, StepStarted
from otel_rl.recorder.settings.settings import PrintedOutput
from otel_rl.recorder.trainer.current import steps_of
from otel_rl.recorder.trainer.printed import PrintedLines
from tests import samples
from tests.faults.interrupting import each_line
from tests.processes import run_python
from tests.recorder.trainer.reading import begin

RecordsOf = Callable[..., list[Record]]

pytestmark = pytest.mark.slow


def step(run: Run, number: int) -> None:
    with run.step(number, seed=1):
        pass


def step_with_phases(run: Run, number: int) -> None:
    with run.step(number), run.phase("generate", tokens=1) as phase, phase.execute():
        run.log({"loss": 1.0})


def phase_outside(run: Run, number: int) -> None:
    with run.phase("setup"), run.phase("load"):
        pass


def step_by_hand(run: Run, number: int) -> None:
    entered = run.step(number)
    entered.__enter__()
    entered.__exit__(None, None, None)


def spans_of_others(run: Run, number: int) -> None:
    tracer = run.tracer_provider.get_tracer("httpx", "1")
    with tracer.start_as_current_span("POST", attributes={"a": 1}) as span:
        span.set_attribute("b", 2)
        span.add_event("sent")
        span.add_link(span.get_span_context(), {"c": 3})
        span.set_status(trace.StatusCode.OK)
        span.update_name("GET")


def trajectories(run: Run, number: int) -> None:
    with run.rollout(policy_version=1), run.trajectory(policy_version=1) as one:
        one.message("assistant", "text", tokens=[1, 2])
        one.generated(5, 1)
        one.rewarded(0.5)
        ticket = one.ticket()
    run.trained([ticket], policy_version=2, step=number)
    run.dropped([ticket], reason="stale", step=number)


CALLS: dict[str, Callable[[Run, int], object]] = {
    "step": step,
    "step_with_phases": step_with_phases,
    "step_by_hand": step_by_hand,
    "phase": phase_outside,
    "log": lambda run, n: run.log({"loss": 1.0}, step=n),
    "log_mixed": lambda run, n: run.log({"loss": 1, "lengths": [1.0, 2.0], "bad": "text"}, step=n, weight=2.5),
    "table": lambda run, n: run.table("t", {"a": [1, 2], "b": ["x", "y"]}, step=n),
    "completions": lambda run, n: run.completions(["p"], ["c"], rewards=[1.0], step=n),
    "params": lambda run, n: run.params({"lr": 1e-6, "model": {"layers": [1, 2]}}),
    "event": lambda run, n: run.event("checkpoint", path="x"),
    "trajectories": trajectories,
    "queue": lambda run, n: run.queue("rollouts", depth=3, waited=0.5, step=n),
    "environment": lambda run, n: run.environment(),
    "spans_of_others": spans_of_others,
}


def interrupt_each_line(
    run: Run, call: Callable[[Run, int], object], error: Callable[[], BaseException]
) -> Iterator[tuple[str, int]]:
    """Interrupt `call` at each line; yield where, and a step number that was not used yet."""
    numbers = iter(range(0, 1_000_000, 2))
    last = [0]

    def once() -> None:
        last[0] = next(numbers)
        call(run, last[0])

    for place in each_line(once, error):
        yield place, last[0] + 1


_OF_EXITS = ("step_with_phases", "log_mixed", "table", "params", "trajectories")


@pytest.mark.parametrize(
    ("name", "error"), [*((name, KeyboardInterrupt) for name in CALLS), *((name, SystemExit) for name in _OF_EXITS)]
)
def test_what_comes_after_an_interrupt_is_recorded(
    recording: Run, records_of: RecordsOf, name: str, error: type[BaseException]
) -> None:
    """It passes; after one at any line of a call, a step, a phase and a log are recorded in their places."""
    expected: list[tuple[int, float]] = []
    stuck: list[str] = []
    for place, number in interrupt_each_line(recording, CALLS[name], error):
        with recording.step(number) as entered:
            inside = entered.is_recording()
            with recording.phase("after") as phase:
                recording.log({"after": float(number)})
        if not inside or phase.is_recording() or context.get_current() != {} or entered.is_recording():
            stuck.append(place)
        expected.append((number, float(number)))
    records = records_of(recording)
    after = [one for one in records if isinstance(one, SpanStarted) and one.name == "after"]
    ended = {one.span_id for one in records if isinstance(one, SpanEnded)}
    begun_steps = [one.step for one in records if isinstance(one, StepStarted)]

    assert len(expected) > 3
    assert stuck == []
    assert [(r.step, r.values["after"]) for r in records if isinstance(r, Logged) and "after" in r.values] == expected
    assert [one.step for one in after] == [number for number, _ in expected]
    assert {one.span_id for one in after} <= ended
    assert set(begun_steps) - {one.step for one in records if isinstance(one, StepEnded)} == set()


@pytest.mark.parametrize("name", ["step", "step_with_phases", "phase", "log_mixed", "event"])
def test_the_next_call_in_the_same_function(recording: Run, name: str) -> None:
    """No context is left attached once the next call of the same kind has ended."""
    for place, number in interrupt_each_line(recording, CALLS[name], KeyboardInterrupt):
        CALLS[name](recording, number)
        assert (place, context.get_current(), steps_of(recording).open) == (place, {}, None)


def test_a_finished_run_stays_finished(tmp_path: Path, records_of: RecordsOf) -> None:
    """An interrupt at any line of `finish` leaves what a second call completes: one end, all values, nothing open."""
    runs: list[Run] = []
    before = locks.held()

    def new() -> None:
        runs.append(begin(tmp_path / str(len(runs)), id="i"))
        runs[-1].step(0).__enter__()
        runs[-1].log({"loss": 1.0})

    new()
    for place in each_line(lambda: runs[-1].finish(0)):
        runs[-1].finish(0)
        records = records_of(runs[-1])
        told = list(dict.fromkeys(type(record).__name__ for record in records))  # an end may come again
        assert told == ["Started", "StepStarted", "Logged", "StepEnded", "Finished"], place
        assert (otel_rl.current(), context.get_current(), locks.held() - before) == (None, {}, frozenset()), place
        new()
    runs[-1].finish(0)


def test_the_finish_of_another_thread(tmp_path: Path, records_of: RecordsOf) -> None:
    """An interrupt at any line of `finish` keeps no other thread from ending the run."""
    runs = [begin(tmp_path / "0", id="i")]
    for place in each_line(lambda: runs[-1].finish(0)):
        other = threading.Thread(target=runs[-1].finish, args=(0,), daemon=True)
        other.start()
        other.join(10)
        assert not other.is_alive(), place
        runs[-1].finish(0)
        assert isinstance(records_of(runs[-1])[-1], Finished), place
        runs.append(begin(tmp_path / str(len(runs)), id="i"))
    runs[-1].finish(0)


@pytest.mark.parametrize("every", samples.of([17], [7, 31]))
def test_an_interrupted_init(tmp_path: Path, every: int) -> None:
    """After an interrupt at a line of `init`, whose traceback is still looked at, the process can begin the run."""
    errors: list[KeyboardInterrupt] = []  # keeps their tracebacks, and so the frames that were interrupted
    before, handlers_called = locks.held(), logging.Logger.callHandlers
    places = iter(tmp_path / str(n) for n in count())
    tried: list[Path] = []

    def error() -> KeyboardInterrupt:
        errors.append(KeyboardInterrupt())
        return errors[-1]

    def init() -> None:
        tried.append(next(places))
        begin(tried[-1], id="i")

    for place in each_line(init, error, every=every):
        run = otel_rl.current() or begin(tried[-1], id="i")
        run.log({"loss": 1.0}, step=0)
        assert (place, run.id, run.refused, context.get_current()) == (place, "i", {}, {})
        run.finish(0)
        assert (place, locks.held() - before) == (place, frozenset())
        assert (place, logging.Logger.callHandlers) == (place, handlers_called)
    assert otel_rl.current() is not None
    otel_rl.current().finish(0)


class _Stream(io.StringIO):
    """A stream whose `write` can be set, as that of a terminal."""


def test_an_interrupted_look_at_what_is_printed(recording: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interrupt at any line of its beginning, its end leaves the streams and the loggers as they were."""
    handlers_called = logging.Logger.callHandlers
    monkeypatch.setattr(sys, "stdout", _Stream())
    made: list[PrintedLines] = []

    def begin_one() -> None:
        made.append(PrintedLines(recording._recorder, PrintedOutput(tee=True)))
        made[-1].begin()

    for place in each_line(begin_one):
        if made:
            made[-1].close()
        assert (place, vars(sys.stdout), logging.Logger.callHandlers) == (place, {}, handlers_called)
    made[-1].close()


_TIMERS = """
import signal, otel_rl
from opentelemetry import context
class Alarm({kind}): pass
def handler(*_):
    raise Alarm
run = otel_rl.init(dir=".", exporters=[], agent="off", quiet=True, project="p", id="i")
signal.signal(signal.SIGALRM, handler)
caught = lost = 0
for n in range(0, 2000, 2):
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.00001 + (n % 40) * 0.000005)
            with run.step(n) as step, run.phase("generate"):
                run.log({{"loss": 1.0, "lengths": [1.0, 2.0]}})
            for _ in range(1000):
                run.event("x", a=1)
                with run.phase("outside"):
                    run.params({{"a": {{"b": 1}}}})
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Alarm:
        caught += 1
    with run.step(n + 1) as step:
        lost += not step.is_recording()
        with run.phase("after"):
            run.log({{"after": 1.0}})
print(caught, lost, context.get_current(), run.refused)
run.finish(0)
"""


@pytest.mark.parametrize("kind", ["Exception", "BaseException"])
def test_what_a_signal_handler_raises_passes(tmp_path: Path, kind: str) -> None:
    """An exception of a trainer's own alarm passes through any call unchanged, 1,000 times, by a real timer."""
    caught, rest = run_python(_TIMERS.format(kind=kind), tmp_path).split(" ", 1)

    assert rest == "0 {} {}\n"
    assert int(caught) == 1000


def test_a_step_in_a_step_is_still_refused(recording: Run) -> None:
    """Only a step whose `with` has ended is closed by the next one, in whatever thread or function that begins."""
    found: list[tuple[bool, bool]] = []

    def other() -> None:
        with recording.step(1) as inner:
            found.append((inner.is_recording(), outer.is_recording()))

    with recording.step(0) as outer:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        try:
            with recording.step(1):
                other()
        finally:
            other()

    assert found == [(False, True)] * 3
    assert recording.refused == {"step": 4}


def test_a_step_of_a_generator_that_waits(recording: Run) -> None:
    """The step goes on while its generator is suspended: another one is refused until then."""

    def trainer() -> Generator[None, None, None]:
        with recording.step(0):
            yield

    waiting = trainer()
    next(waiting)
    with recording.step(1):
        pass
    assert recording.refused == {"step": 1}

    waiting.close()
    with recording.step(1) as step:
        assert step.is_recording()
