"""Every kind of wrong argument, to everything that is public: nothing raises into a trainer, neighbors are kept."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import context

import otel_rl
from otel_rl.frameworks.trainings import LaterTraining
from otel_rl.recorder.convert.attributes import clean_attributes
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Consumed, Happened, Logged, Record
from otel_rl.recorder.trainer.current import steps_of
from otel_rl.recorder.trainer.phase import Phase
from otel_rl.recorder.trainer.run import Run
from otel_rl.recorder.trainer.spans import JournaledSpan
from otel_rl.recorder.trainer.step import StepSpan
from otel_rl.recorder.trainer.trajectories import Rollout, Trajectory
from tests.processes import journal_of

RecordsOf = Callable[..., list[Record]]


class Evil:
    """Raises at everything that somebody may want of it."""

    def _raise(self, *_: object) -> Any:
        raise RuntimeError("no")

    __str__ = __repr__ = __float__ = __int__ = __index__ = __len__ = __iter__ = __bool__ = _raise
    __getitem__ = __contains__ = __call__ = __enter__ = __format__ = _raise
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no attribute either")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")


class EvilText(str):
    """A text that cannot be shown, compared or looked up."""

    __slots__ = ()

    def _raise(self, *_: object) -> Any:
        raise RuntimeError("no")

    __str__ = __repr__ = __eq__ = __format__ = __len__ = _raise  # type: ignore[assignment]

    def __hash__(self) -> int:
        return str.__hash__(self)


class EvilMapping(dict[str, object]):
    """Items up to a point."""

    def items(self) -> Any:
        yield "good", 1.0
        raise RuntimeError("no more")


class EvilInt(int):
    """A number that cannot be compared."""

    def _raise(self, *_: object) -> Any:
        raise RuntimeError("no")

    __lt__ = __le__ = __gt__ = __ge__ = __str__ = __repr__ = __format__ = __index__ = _raise  # type: ignore[assignment]


def generator() -> Iterator[Any]:
    yield {"tokens": 1, "policy_version": 1}
    raise RuntimeError("no more")


def recursive() -> list[object]:
    found: list[object] = []
    found.append(found)
    return found


def recursive_mapping() -> dict[str, object]:
    found: dict[str, object] = {"good": 1}
    found["itself"] = found
    return found


def closed_file() -> object:
    with open(__file__) as file:  # noqa: PTH123 - a file, whatever opened it
        return file


WRONG: list[Callable[[], Any]] = [
    *(
        lambda value=value: value
        for value in (None, b"bytes", float("nan"), float("-inf"), 10**400, -(2**70), "", [], {})
    ),  # type: ignore[misc]
    *(Evil, EvilMapping, recursive, recursive_mapping, generator, closed_file, object, Exception),
    *(
        lambda: EvilText("text"),
        lambda: EvilInt(5),
        lambda: "\ud800",
        lambda: {Evil: 1},
        lambda: [Evil()],
        lambda: "a" * 100_000,
        lambda: {"a" * 5000: 1.0, "\ud800" * 4096: 1, "good": 1},
        lambda: -5,
    ),
]

_NOT_CALLED = {
    "finish",
    "write",
    "refuse",
    "refuse_error",
    "failed",
    "abandon",
    "fail",
    "begin",
}
"""`finish` ends the run, and has a test of its own; the others are for otel-rl's spans alone."""


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") and name not in _NOT_CALLED]


def use(found: object) -> None:
    """Enter what a call returned, if it is a context manager."""
    if isinstance(found, JournaledSpan):
        with found:
            pass


def call_with(method: Callable[..., object], wrong: Callable[[], Any]) -> None:
    """Give a wrong value to each parameter in turn, plausible ones to the others; and to all of them."""
    plausible: dict[str, object] = {
        "values": {"good": 1.0}, "data": {"a": [1]}, "tickets": [{"tokens": 1, "policy_version": 1}], "number": 10**9,
        "prompts": ["p"], "completions": ["c"], "reason": "stale", "depth": 1.0, "name": "name", "tokens": 1,
        "reward": 1.0, "key": "key", "value": 1, "attributes": {"a": 1}, "context": context.get_current(),
        "status": 1, "exception": ValueError("x"), "step": 0, "handler": print,
    }  # fmt: skip
    parameters = [one for one in inspect.signature(method).parameters.values() if one.kind is not one.VAR_POSITIONAL]
    for bad in (*parameters, None):
        given: list[object] = []
        named: dict[str, Any] = {}
        for one in parameters:
            is_bad = bad is None or one is bad
            if not is_bad and one.default is not one.empty:
                continue
            value = wrong() if is_bad else plausible.get(one.name, 1)
            if one.kind is one.VAR_KEYWORD:
                named |= {"some_attribute": value} if is_bad else {}
            elif one.kind is one.KEYWORD_ONLY:
                named[one.name] = value
            else:
                given.append(value)
        use(method(*given, **named))


def targets(run: Run) -> Iterator[tuple[object, type]]:
    yield run, Run
    with run.step(steps_of(run).last_begun + 1) as step:
        yield step, StepSpan
        with run.phase("work") as phase:
            yield phase, Phase
        with run.rollout() as rollout:
            yield rollout, Rollout
        with run.trajectory(policy_version=1) as trajectory:
            yield trajectory, Trajectory


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize("number", range(len(WRONG)))
def test_nothing_raises(tmp_path: Path, number: int, *, content: bool) -> None:
    """Each public method of a run and of its spans takes each wrong value; what comes next is recorded, readable."""
    wrong = WRONG[number]
    recording = otel_rl.init(agent="off", exporters=[], dir=tmp_path, quiet=True, project="test", content=content)
    with recording.step(0):
        pass
    for target, kind in targets(recording):
        for name in public(kind):
            found = getattr(target, name)
            if callable(found) and inspect.ismethod(found):
                call_with(found, wrong)
    with recording.step(10**12), recording.phase("after"):
        recording.log({"after": 1.0})
    recording.finish(0)
    reader = Reader(journal_of(recording.dir), AnyRecord)
    records: list[Record] = []
    while more := reader.read(final=True):
        records += more

    for record in records:
        record.check()  # the agent takes it
    assert (reader.undecodable, reader.skipped_bytes) == (0, 0)
    assert Logged in {type(record) for record in records}
    assert [record.step for record in records if isinstance(record, Logged) and "after" in record.values] == [10**12]
    assert context.get_current() == {}


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_nothing_else_raises(recording: Run, number: int) -> None:
    """Neither do `traced`, `carrier`, `attach` and `current`."""
    wrong = WRONG[number]
    name = wrong()

    @otel_rl.traced("work" if callable(name) else name, attribute=wrong())  # what can be called is what is traced
    def work() -> int:
        return 5

    assert work() == 5
    with otel_rl.attach(wrong()):
        assert isinstance(otel_rl.carrier(), dict)
    with otel_rl.attach({"traceparent": wrong()}):
        assert otel_rl.current() is recording
    assert context.get_current() == {}


@pytest.mark.parametrize("number", [n for n in range(len(WRONG)) if n != 2])
def test_a_bad_value_costs_itself_alone(recording: Run, records_of: RecordsOf, number: int) -> None:
    """The other values, attributes and tickets are recorded."""
    wrong = WRONG[number]
    recording.log({"good": 1.0, "bad": wrong(), "also": 2}, step=0)
    recording.event("happened", good=1, bad=wrong(), also="x")
    recording.trained([{"tokens": 5, "policy_version": 1}, wrong(), {"tokens": 6, "policy_version": 1}], step=0)
    recording.params({"good": 1, "bad": wrong(), "also": 2})
    records = records_of(recording)
    (logged,) = (record.values for record in records if isinstance(record, Logged))
    (event,) = (record.attributes for record in records if isinstance(record, Happened))
    (consumed,) = (record for record in records if isinstance(record, Consumed))

    assert {"good": 1.0, "also": 2}.items() <= logged.items()
    assert {"good": 1, "also": "x"}.items() <= event.items()
    assert len(consumed.rewards) == 8 * (3 if isinstance(wrong(), dict) else 2)


CALLS = ("step", "phase", "log", "completions", "table", "params", "event", "rollout", "trajectory")
CALLS += ("trained", "dropped", "queue", "environment", "finish")
_NEED_NOTHING = {"environment", "finish", "rollout", "trajectory"}
_TAKE_ANY_NAME = {"step", "phase", "event", "rollout", "trajectory"}


def call(run: Any, name: str, *given: Any, **named: Any) -> None:
    use(getattr(run, name)(*given, **named))


@pytest.mark.parametrize("name", CALLS)
def test_wrong_numbers_of_arguments(recording: Run, records_of: RecordsOf, name: str) -> None:
    """Each public method without arguments, with five, and with an unknown one, which is refused and counted."""
    call(recording, name)
    assert bool(recording.refused) is (name not in _NEED_NOTHING)
    before = sum(recording.refused.values())
    call(recording, name, 5, 5, 5, 5, 5)
    assert sum(recording.refused.values()) > before
    before = sum(recording.refused.values())
    call(recording, name, no_such_argument=5)
    assert name in _TAKE_ANY_NAME or sum(recording.refused.values()) > before or name in ("environment", "finish")
    recording.finish(0)
    records_of(recording)


@pytest.mark.parametrize("name", ["step", "log", "completions", "table", "trained", "dropped", "queue"])
def test_a_later_training(recording: Run, name: str) -> None:
    """The same for the second training of a script."""
    later: Any = LaterTraining(recording, 2)
    for given in ((), (5, 5, 5, 5, 5), (None,), (object(),)):
        call(later, name, *given)

    assert recording.refused


def test_a_later_training_after_all_steps(recording: Run, records_of: RecordsOf) -> None:
    """Its steps follow the highest one, also if a lower one was logged to last."""
    recording.log({"loss": 1.0}, step=7)
    recording.log({"loss": 1.0}, step=2)
    LaterTraining(recording, 2).log({"loss": 2.0}, step=0)

    assert [record.step for record in records_of(recording) if isinstance(record, Logged)] == [7, 2, 8]


def test_a_step_that_is_not_named(recording: Run, records_of: RecordsOf) -> None:
    """`log(values, 5)` must not write step 5 into the row of the last step; `log(values, commit=True)` is recorded."""
    recording.log({"loss": 1.0}, step=0)
    recording.log({"loss": 2.0}, 5)  # type: ignore[arg-type]
    recording.log({"loss": 3.0}, commit=True)  # type: ignore[arg-type]
    values = [record.values for record in records_of(recording) if isinstance(record, Logged)]

    assert values == [{"loss": 1.0}, {"loss": 3.0}]
    assert recording.refused == {"log": 1}


def test_what_is_refused_is_counted(recording: Run) -> None:
    """Under the call, or what the value was to be."""
    recording.log({"a": Evil(), "b": None, 3: 1.0}, step=0, weight="heavy")  # type: ignore[arg-type,dict-item]
    recording.rollout(policy_version="abc")  # type: ignore[arg-type]
    with recording.trajectory() as one:
        one.rewarded(None)  # type: ignore[arg-type]
        one.generated("many")  # type: ignore[arg-type]
    recording.trained([None, Evil()], step=0)  # type: ignore[list-item]
    recording.step(Evil())  # type: ignore[arg-type]

    assert recording.refused == {
        "value": 2,
        "name": 1,
        "weight": 1,
        "rollout": 1,
        "rewarded": 1,
        "generated": 1,
        "trained": 2,
        "step": 1,
    }


def test_attributes_of_a_mapping_that_fails() -> None:
    """Values before the failure are kept, and the failure is counted."""
    refused: list[str] = []

    assert clean_attributes(EvilMapping(a=1), lambda reason, text: refused.append(reason)) == {"good": 1.0}
    assert refused == ["attribute"]
