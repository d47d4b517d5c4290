"""Calls that a run cannot serve are counted and logged, and never raise."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry import context

from otel_rl import Run
from otel_rl.recorder.journal.records import Configured, Happened, SpanEnded, StepEnded, StepStarted
from tests.processes import run_python
from tests.recorder.trainer.reading import RecordsOf, ended, kinds, logged, refusals, started


def step_twice(run: Run) -> None:
    with run.step(1):
        pass
    with run.step(1):
        pass


def step_back(run: Run) -> None:
    with run.step(1):
        pass
    with run.step(0):
        pass


def step_in_step(run: Run) -> None:
    with run.step(0), run.step(1):
        pass


def step_once(run: Run, number: object) -> None:
    with run.step(number):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize(
    ("call", "reason", "text"),
    [
        (step_twice, "step", "step 1 again; steps count up from 0"),
        (step_back, "step", "step 0 after step 1"),
        (step_in_step, "step", "step 1 inside step 0"),
        (lambda run: step_once(run, -1), "step", "step -1 is negative; steps count up from 0"),
        (lambda run: step_once(run, 1.0), "step", "step 1.0 is not an integer, but a float"),
        (lambda run: step_once(run, "1"), "step", "step '1' is not an integer"),
        (lambda run: step_once(run, None), "step", "step None is not an integer"),
        (
            lambda run: run.log({"loss": 1.0}),
            "step",
            "log() before the first step; use `with run.step(n):`",
        ),
        (lambda run: run.log({"loss": 1.0}, step=-1), "step", "log(): step -1 is negative; use"),
        (lambda run: run.log({"loss": 1.0}, step=1.5), "step", "log(): step 1.5 is not an integer, but a float; use"),
        (lambda run: run.log({"loss": 1.0}, step=2**62), "step", f"log(): step {2**62} is too large"),
        (lambda run: step_once(run, True), "step", "step True is not an integer, but a bool"),
        (lambda run: run.event(""), "name", "event: '' is not a name"),
        (lambda run: run.phase(None), "name", "phase: None is not a name; give it a text"),
        (lambda run: run.phase("").__enter__(), "name", "phase: '' is not a name; give it a text"),
        (lambda run: run.table("", {"a": [1]}, step=0), "name", "table: '' is not a name"),
        (lambda run: run.queue("", depth=1, step=0), "name", "queue: '' is not a name"),
        (lambda run: run.queue("q", depth=-1, step=0), "queue", "queue q: depth=-1: must be 0 or more, and finite"),
        (lambda run: run.queue("q", depth=1, waited=-0.5, step=0), "queue", "queue q: waited=-0.5: must be 0"),
        (lambda run: run.log({"loss": "low"}, step=0), "value", "loss: str is not a number"),
        (lambda run: run.log({7: 1.0}, step=0), "name", "invalid metric name 7: must be a non-empty str"),
        (lambda run: run.log(None, step=0), "log", "log: None is not a mapping"),
        (lambda run: run.log([1.0], step=0), "log", "log: [1.0] is not a mapping"),
        (
            lambda run: run.event("checkpoint", {"path": "x"}),
            "event",
            "event() does not take {'path': 'x'}; attr",
        ),
        (lambda run: run.event(), "event", "positional argument: 'name'; write event(name, /, **attributes)"),
        (lambda run: run.trained([7], step=0), "trained", "ticket: int; pass what ticket() returned"),
        (
            lambda run: run.step(0).log({"a": 1.0}, step=1),
            "log",
            "log() got an unexpected keyword argument 'step'; write log(values, *, weight=1)",
        ),
        (lambda run: run.params("lr=1"), "params", "params: str: no fields; give a mapping, such as {'lr'"),
        (lambda run: run.params(None), "params", "params: NoneType: no fields"),
        (lambda run: run.trained({"tokens": 1}, step=0), "trained", "tickets: a dict where a sequence of tickets is"),
    ],
)
def test_refused(
    recording: Run,
    records_of: RecordsOf,
    caplog: pytest.LogCaptureFixture,
    call: Callable[[Run], None],
    reason: str,
    text: str,
) -> None:
    """A call that cannot be served is counted in the journal and logged; it raises nothing and loses nothing."""
    call(recording)
    with recording.step(100):
        recording.log({"after": 1.0})
    records = records_of(recording)

    assert refusals(records) == {reason: 1}
    assert [(level, text in message) for _, level, message in caplog.record_tuples] == [(logging.WARNING, True)]
    assert logged(records)[-1] == (100, {"after": 1.0})


def test_numbers_and_names_by_keyword(recording: Run, records_of: RecordsOf) -> None:
    """`step=` and `name=` are the number of a step and the name of a phase where no other is given."""
    with recording.step(step=3), recording.phase(name="generate"), recording.phase("score", name="judge"):
        pass
    with recording.step(number=4), recording.step(5, number=7):
        pass
    records = records_of(recording)

    assert [record.step for record in records if isinstance(record, StepStarted)] == [3, 4]
    assert [*started(records)] == ["generate", "score"]
    assert refusals(records) == {"step": 1}


def test_refused_step_passes_exceptions(recording: Run) -> None:
    """An exception passes a refused step unchanged too."""
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught, recording.step(-1):
        raise error

    assert error is caught.value


def test_refusals_are_logged_seldom(recording: Run, records_of: RecordsOf, caplog: pytest.LogCaptureFixture) -> None:
    """Refusals are all counted, and logged the 1st, 10th, 100th and 1000th time."""
    for _ in range(1500):
        recording.log({"loss": 1.0}, step=-1)

    assert refusals(records_of(recording)) == {"step": 1500}
    assert [message.rpartition("refused ")[2] for message in caplog.messages] == [
        "1 time)",
        "10 times)",
        "100 times)",
        "1000 times)",
    ]


def test_each_mistake_is_named(recording: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Mistakes of one reason do not hide each other: by the name of a value, otherwise by the text without numbers."""
    for step in range(20):
        recording.log({"train": [{}], "note": "text" if step else None, "loss": 1.0}, step=step)
        recording.log({"loss": 1.0}, -step / 3)  # type: ignore[arg-type]
        recording.log(loss=step)  # type: ignore[call-arg]

    assert recording.refused == {"value": 40, "log": 40}
    assert [text.partition(" (refused")[0] for text in caplog.messages if text.endswith("1 time)")] == [
        *recording.finish(0).refused
    ]
    assert list(recording.finish(0).refused.values()) == [20, 20, 20, 20]


def test_values_by_the_keyword_of_wandb(recording: Run, records_of: RecordsOf) -> None:
    """`data=` is recorded where no other values are given."""
    recording.log(data={"loss": 1.0}, step=0)  # type: ignore[call-arg]
    recording.log({"kl": 2.0}, data={"loss": 3.0}, step=0)  # type: ignore[call-arg]

    assert (logged(records_of(recording)), recording.refused) == ([(0, {"loss": 1.0}), (0, {"kl": 2.0})], {"log": 1})


def test_wrong_steps_are_named_by_their_kind(recording: Run) -> None:
    """Each kind of wrong step has a count of its own; other numbers are the same mistake."""
    for step in ("a", -1, -2, math.nan, 1.5, 2.5, True, 2**64):
        recording.log({"loss": 1.0}, step=step)  # type: ignore[arg-type]

    assert [*recording.finish(0).refused.values()] == [1, 2, 1, 2, 1, 1]


def test_the_part_of_a_phase_needs_a_name(recording: Run, records_of: RecordsOf) -> None:
    """A part without a name is refused, and values are recorded inside."""
    with recording.step(0), recording.phase("train") as phase, phase.part("") as part:
        part.log({"loss": 1.0})
    records = records_of(recording)

    assert (refusals(records), logged(records)) == ({"name": 1}, [(0, {"loss": 1.0})])
    assert [*started(records)] == ["train"]


def test_mistakes_are_bounded(recording: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Names that change with the step are named 64 times, and counted together afterwards."""
    for number in range(200):
        recording.log({f"sample {number}": "text"}, step=0)
    refused = recording.finish(0).refused
    named = [text for text in caplog.messages if text.startswith("sample")]
    others = [text for text in caplog.messages if text.startswith("other mistakes, such as sample 64: ")]

    assert (len(named), len(others), len(refused), sum(refused.values())) == (64, 1, 65, 200)
    assert caplog.messages[-1].endswith(", 57 other mistakes")


def test_after_finish(recording: Run, records_of: RecordsOf, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is called after `finish` is logged as refused, raises nothing, and changes nothing recorded."""
    recording.finish()
    with recording.step(0), recording.phase("generate"):
        recording.log({"loss": 1.0})
        recording.event("checkpoint")
    recording.params({"lr": 1})

    assert kinds(records_of(recording)) == ["Started", "Finished"]
    assert "the run has finished; nothing more is recorded (refused 1 time)" in caplog.messages[0]


def test_finish_in_a_step(recording: Run, records_of: RecordsOf) -> None:
    """`finish` inside a step ends the step, and leaving it afterwards does nothing."""
    with recording.step(0):
        recording.finish()

    assert kinds(records_of(recording)) == ["Started", "StepStarted", "StepEnded", "Finished"]
    assert context.get_current() == {}


def test_attributes_that_cannot_be_encoded(recording: Run, records_of: RecordsOf) -> None:
    """Attributes that no record can hold cost neither the end of their span nor the other attributes."""
    hostile = {"seed": 2**64, "seeds": [2**64], "text": "\ud800", "texts": ["\ud800"], "\ud800": 1, "good": 1}
    with recording.step(0, **hostile), recording.phase("generate", **hostile):
        recording.event("sampled", **hostile)
    records = records_of(recording)

    assert kinds(records) == ["Started", "StepStarted", "SpanStarted", "Happened", "SpanEnded", "StepEnded"]
    for record in records[3:]:
        assert isinstance(record, (Happened, SpanEnded, StepEnded))
        assert record.attributes is not None
        assert record.attributes["good"] == 1


@pytest.mark.parametrize(("name", "kept"), [("\ud800", "\\ud800"), ("", None)])
def test_bad_metric_name(recording: Run, records_of: RecordsOf, name: str, kept: str | None) -> None:
    """A metric's name that is not valid Unicode is escaped, an empty one is refused alone."""
    recording.log({name: 1.0, "loss": 2.0}, step=0)

    assert logged(records_of(recording)) == [(0, {"loss": 2.0} | ({} if kept is None else {kept: 1.0}))]


def test_params_that_cannot_be_encoded(recording: Run, records_of: RecordsOf) -> None:
    """A hyper-parameter that no record can hold does not cost the others."""
    recording.params({"seed": 2**64, "path": "\udcff", "lr": 1e-6})
    *_, record = records_of(recording)

    assert isinstance(record, Configured)
    assert record.values["lr"] == 1e-6


def test_phase_whose_name_is_no_text(recording: Run, records_of: RecordsOf) -> None:
    """A phase whose name is not a text is recorded all the same, under its text."""
    with recording.phase(7):  # type: ignore[arg-type]
        pass

    assert list(started(records_of(recording))) == ["7"]


def test_attributes_of_any_name(recording: Run, records_of: RecordsOf) -> None:
    """Attributes may have the names of our own parameters."""
    with recording.step(0, number=7), recording.phase("generate", name="x"):
        recording.event("checkpoint", name="y")
    records = records_of(recording)
    (event,) = (record for record in records if isinstance(record, Happened))

    assert ended(records, "generate").attributes == {"name": "x"}
    assert event.attributes == {"name": "y"}


def test_step_that_never_began(recording: Run, records_of: RecordsOf) -> None:
    """A step that was made and not entered keeps no other from beginning."""
    recording.step(0)
    with recording.step(1):
        pass

    assert [record.step for record in records_of(recording) if isinstance(record, StepStarted)] == [1]


_FULL_DISK = """
import logging, otel_rl, resource
logging.disable()
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Logged, Refusals, StepEnded, StepStarted
run = otel_rl.init(agent="off", exporters=[], quiet=True, project="test")
text = "x" * 4000
def steps(first, last):
    for number in range(first, last):
        with run.step(number, text=text):
            run.log({"loss": number / 3})
steps(0, 10)
unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
steps(10, 2000)
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
steps(2000, 2010)
run.log({}, step=-1)
run.finish()
reader = Reader(next(run.dir.glob("local/*/journals/rank0.attempt0.*")), AnyRecord)
records = []
while more := reader.read():
    records += more
kept = [r.step for r in records if isinstance(r, Logged)]
print(kept[:11] == list(range(11)), kept[-10:] == list(range(2000, 2010)), len(kept) < 2000, reader.skipped_bytes)
refused = [r.counts for r in records if isinstance(r, Refusals)][-1]
of_steps = [r for r in records if isinstance(r, (StepStarted, Logged, StepEnded))]
print(refused["record"] == 3 * 2010 - len(of_steps))
"""


@pytest.mark.slow
def test_full_disk(tmp_path: Path) -> None:
    """A full disk raises nothing in the trainer; what is lost is counted, what is kept is whole, and it goes on."""
    assert run_python(_FULL_DISK, tmp_path) == "True True True 0\nTrue\n"
