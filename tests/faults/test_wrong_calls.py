"""Calls with too few, too many or misspelled arguments: refused by a running recorder, explained at set-up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import otel_rl
from otel_rl.integrations.trainings import LaterTraining
from otel_rl.journal.records import Logged, Record
from otel_rl.trainer.spans import JournaledSpan
from tests.processes import run_python

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from otel_rl import Run

    RecordsOf = Callable[..., list[Record]]

CALLS = ("step", "phase", "log", "completions", "table", "params", "event", "rollout", "trajectory")
CALLS += ("trained", "dropped", "queue", "environment", "finish")
_NEED_NOTHING = {"environment", "finish", "phase", "rollout", "trajectory"}
_TAKE_ANY_NAME = {"step", "phase", "event", "rollout", "trajectory"}


def call(run: Run, name: str, *given: Any, **named: Any) -> None:
    found = getattr(run, name)(*given, **named)
    if isinstance(found, JournaledSpan):
        with found:
            pass


@pytest.mark.parametrize("name", CALLS)
def test_nothing_raises(recording: Run, records_of: RecordsOf, name: str) -> None:
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


def test_a_step_that_is_not_named(recording: Run, records_of: RecordsOf) -> None:
    """`log(values, 5)` must not write step 5 into the row of the last step; `log(values, commit=True)` is recorded."""
    recording.log({"loss": 1.0}, step=0)
    recording.log({"loss": 2.0}, 5)  # type: ignore[arg-type]
    recording.log({"loss": 3.0}, commit=True)  # type: ignore[arg-type]
    values = [record.values for record in records_of(recording) if isinstance(record, Logged)]

    assert values == [{"loss": 1.0}, {"loss": 3.0}]
    assert recording.refused == {"log": 2}


@pytest.mark.parametrize(
    ("given", "named", "told"),
    [
        ((), {"exporter": ["jsonl"]}, "unknown setting exporter=['jsonl']; did you mean exporters?"),
        ((), {"foo": 1}, "unknown setting foo=1; known are: agent, "),
        (("my-project",), {}, "init('my-project'): give settings by name, such as project="),
    ],
)
def test_settings_that_do_not_exist(given: tuple[Any, ...], named: dict[str, Any], told: str) -> None:
    """The error names the nearest setting, or all."""
    with pytest.raises(otel_rl.SettingsError) as caught:
        otel_rl.init(*given, **named)
    assert told in str(caught.value)


_FULL = """
import errno, os, otel_rl
from otel_rl.journal import atomic_files
def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")
{broken} = full
try:
    otel_rl.init(dir="runs", exporters=[], quiet=True, agent="off", project="p", id="i", strict=True)
except otel_rl.SettingsError as error:
    print(error)
"""


@pytest.mark.parametrize("broken", ["os.posix_fallocate", "atomic_files.open_file", "os.mkdir"])
def test_a_full_disk(tmp_path: Path, broken: str) -> None:
    """Wherever a strict run notices it: the error names the path and what to do, and nothing is left of the journal."""
    told = run_python(_FULL.format(broken=broken), tmp_path)

    assert told.startswith("dir='runs': /")
    assert "/runs/p/i" in told
    assert "(No space left on device); free 16 MiB for each rank, or give init(dir=…) or OTEL_RL_DIR" in told
    assert [*tmp_path.glob("runs/p/i/local/*/journals/*")] == []


def test_finish_says_why_it_is_false(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One warning with what was refused; `refused` has it too."""
    run = otel_rl.init(dir=tmp_path, quiet=True, hardware=False, exporters=["jsonl"])
    run.log({"loss": 1.0, "name": "text"}, step=0)
    run.log({"loss": 1.0, "name": None}, step=-1)

    assert run.finish(30) is False
    assert run.refused == {"value": 1, "step": 1}
    assert caplog.messages[-1] == (f"run {run.id} is not complete: refused: 1 value, 1 step (see the warnings above)")
