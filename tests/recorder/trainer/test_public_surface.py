"""What `otel_rl` offers, and what importing it costs."""

from __future__ import annotations

import inspect
from importlib import metadata
from pathlib import Path

import pytest

import otel_rl
from tests.processes import run_python
from tests.recorder.trainer.reading import RecordsOf, begin, logged

HEAVY = (
    *("opentelemetry.sdk", "torch", "numpy", "arro3", "duckdb", "wandb", "tensorboard", "prometheus_client"),
    *("psutil", "yaml", "click", "rich", "grpc", "requests", "google.protobuf"),
)


def test_names() -> None:
    """The public names are these, and each has a docstring; those that look at runs are in a wing."""
    recorded = ["Run", "SettingsError", "attach", "carrier", "current", "init", "traced"]

    assert sorted([*recorded, "mark", "open_run", "open_runs", "report", "ui"]) == otel_rl.__all__
    assert [name for name in recorded if not inspect.getdoc(getattr(otel_rl, name))] == []


def test_version() -> None:
    """`__version__` is that of the distribution, and the only name besides the public ones."""
    assert otel_rl.__version__ == metadata.version("otel-rl")
    assert set(dir(otel_rl)) - set(otel_rl.__all__) == {"__version__"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = otel_rl.nothing


def test_run() -> None:
    """The public methods of a run are these, and each has a docstring."""
    expected = {"step", "phase", "log", "completions", "table", "params", "event", "finish", "environment"}
    expected |= {"rollout", "trajectory", "trained", "dropped", "queue", "weights", "on_event"}
    actual = {name: method for name, method in inspect.getmembers(otel_rl.Run, callable) if not name.startswith("_")}

    assert expected == set(actual)
    assert [name for name, method in actual.items() if not inspect.getdoc(method)] == []


def test_dir_of_a_run(recording: otel_rl.Run) -> None:
    """`dir(run)` has the methods, what the run is, and nothing that is private."""
    methods = {name for name in vars(otel_rl.Run) if callable(getattr(otel_rl.Run, name)) and name[0] != "_"}
    names = {name for name in dir(recording) if not name.startswith("__")}

    assert names == methods | {"id", "attempt", "dir", "prometheus", "refused", "tracer_provider"}


_OF_SPANS = {"add_event", "add_link", "end", "get_span_context", "is_recording", "record_exception", "set_attribute"}
_OF_SPANS |= {"set_attributes", "set_status", "update_name", "log"}
_OF_PHASES = _OF_SPANS | {"begin", "part", "onload", "execute", "offload"}


def test_dir_of_spans(recording: otel_rl.Run) -> None:
    """Completion shows OpenTelemetry's methods of a span, and those that are for trainers."""

    def public(span: object) -> set[str]:
        return {name for name in dir(span) if not name.startswith("_")}

    with recording.step(0) as step, recording.phase("generate") as phase, recording.trajectory() as trajectory:
        part = trajectory.part("model")

    assert public(step) == _OF_SPANS | {"number"}
    assert public(phase) == _OF_PHASES
    assert public(trajectory) == _OF_PHASES | {"generated", "message", "rewarded", "ticket", "policy_version"}
    assert public(part) == _OF_PHASES


def test_spans_log(recording: otel_rl.Run, records_of: RecordsOf) -> None:
    """`step.log` and `phase.log` record at their step, also after it; a refused step records nothing."""
    with recording.step(0) as step, recording.phase("generate") as phase:
        phase.log({"a": 1.0}, weight=2)
        step.log({"b": 2.0})
    with recording.step(1), recording.step(2) as refused:
        phase.log({"c": 3.0})
        step.log({"d": 4.0})
        refused.log({"e": 5.0})
    refused.log({"f": 6.0})
    with recording.phase("save") as outside:
        outside.log({"g": 7.0})

    assert logged(records_of(recording)) == [
        *((0, {"a": 1.0}), (0, {"b": 2.0}), (0, {"c": 3.0}), (0, {"d": 4.0}), (1, {"g": 7.0}))
    ]
    assert recording.refused == {"step": 3}


def test_spans_log_without_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records_of: RecordsOf) -> None:
    """`OTEL_SDK_DISABLED` switches spans off, not what is logged through them."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    run = begin(tmp_path)
    with run.step(0), run.phase("generate") as phase:
        phase.log({"loss": 1.0})

    assert logged(records_of(run)) == [(0, {"loss": 1.0})]


def test_recording_is_light(tmp_path: Path) -> None:
    """Importing the library and recording load no SDK, no tracker, no tensor library and no command line."""
    script = f"""
import sys, otel_rl
run = otel_rl.init(agent="off", exporters=[], quiet=True, config={{"lr": 1}})
with run.step(0), run.phase("generate"):
    run.log({{"loss": 0.5}})
run.event("checkpoint")
run.finish()
print([name for name in {HEAVY} if name in sys.modules])
"""

    assert run_python(script, tmp_path, OTEL_METRICS_EXPORTER="none") == "[]\n"


@pytest.mark.parametrize("chosen", [None, True])
def test_global_provider(tmp_path: Path, chosen: bool | None) -> None:
    """OpenTelemetry's global tracer provider is the run's with `set_global=True`, and not touched by default."""
    script = f"""
import otel_rl
from opentelemetry import trace
run = otel_rl.init(agent="off", exporters=[], quiet=True, set_global={chosen})
print(trace.get_tracer_provider() is run.tracer_provider)
"""
    assert run_python(script, tmp_path) == f"{bool(chosen)}\n"


def test_other_globals_are_left_alone(tmp_path: Path) -> None:
    """No logger of another package, no signal handler and no exception hook is changed."""
    script = """
import logging, signal, sys, threading, warnings
def state():
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    root = logging.getLogger()
    return handlers, sys.excepthook, threading.excepthook, root.handlers[:], root.level, warnings.filters[:]
before = state()
import otel_rl
run = otel_rl.init(agent="off", exporters=[], quiet=True)
with run.step(0):
    run.log({"loss": 0.5})
print(before == state())
"""

    assert run_python(script, tmp_path) == "True\n"


def test_the_last_line_says_where_the_rows_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the highest step, the file of JSONL, other exporters, and the command that shows the run."""
    place = {"jsonl": {"path": "mine.jsonl"}}
    with otel_rl.init(dir=tmp_path, project="p", id="r", hardware=False, exporters=[place, "stdout"]) as run:
        run.log({"loss": 1.0}, step=3_000_000_000)
        run.log({"loss": 1.0}, step=0)  # an evaluation of the first checkpoint, as at the end of a training
    *_, last = capsys.readouterr().err.splitlines()
    there = tmp_path / "p" / "r"

    assert (there / "mine.jsonl").exists()
    rows = f"{there}/mine.jsonl, stdout"
    assert last == f"otel-rl: recorded up to step 3,000,000,000; rows: {rows}; to look at it: otel-rl top {there}"


def test_quiet(tmp_path: Path) -> None:
    """Nothing is printed to the standard output, and two lines to the standard error unless it is to be quiet."""
    script = """
import contextlib, io, otel_rl
for quiet in (False, True):
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()) as errors:
        with otel_rl.init(agent="off", exporters=[], quiet=quiet) as run, run.step(0):
            pass
    print(len(output.getvalue()), len(errors.getvalue().splitlines()), str(run.dir) in errors.getvalue())
"""

    assert run_python(script, tmp_path) == "0 2 True\n0 0 False\n"
