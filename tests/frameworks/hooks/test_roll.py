"""ROLL's trackers and reducers, recorded."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import otel_rl
from otel_rl.frameworks.roll import create_tracker, reduce_metrics
from otel_rl.recorder.journal.records import Logged, Record, Tabled
from tests.frameworks.recorded import Recorded
from tests.processes import rows_of, run_python
from tests.real_parts import needs


@pytest.mark.parametrize("name", ["", None])
def test_no_tracker(name: str | None) -> None:
    """An empty name records nothing and begins no run."""
    tracker = create_tracker(name, {})
    tracker.log({"loss": 1.0}, step=0)
    tracker.finish()

    assert otel_rl.current() is None


def test_unknown_tracker() -> None:
    """The message names those that there are."""
    with pytest.raises(ValueError, match="tensorboard, wandb, swanlab, trackio, stdout"):
        create_tracker("comet", {})


def test_tensorboard_needs_a_directory() -> None:
    """As ROLL demands it."""
    with pytest.raises(KeyError, match="log_dir"):
        create_tracker("tensorboard", {})


@needs("tensorboard")
def test_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy scalars arrive, nested values are joined, tags are off; the file lies where it was asked for."""
    monkeypatch.setenv("OTEL_RL_HARDWARE", "false")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracker = create_tracker("tensorboard", {"lr": 1e-6}, log_dir=str(tmp_path / "tb"), max_queue=10)
    tracker.log({"a": np.float32(1), "b@sum": 2, "critic": {"score@max": 3.0}}, step=4)
    tracker.finish()
    events = EventAccumulator(str(tmp_path / "tb")).Reload()

    assert {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]} == {
        "a": [(4, 1.0)],
        "b": [(4, 2.0)],
        "critic/score": [(4, 3.0)],
    }


def test_the_environment_names_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's variable wins over the project that ROLL passes to its tracker."""
    monkeypatch.setenv("OTEL_RL_AGENT", "off")
    monkeypatch.setenv("OTEL_RL_DIR", str(tmp_path))
    monkeypatch.setenv("OTEL_RL_PROJECT", "mine")
    create_tracker("stdout", {}, project="theirs").finish()

    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_stdout(tmp_path: Path) -> None:
    """One line a step: a tag, and strict JSON; the configuration is recorded at the start."""
    script = """
from otel_rl.frameworks.roll import create_tracker
tracker = create_tracker("stdout", {"actor": {"lr": 1e-6}})
tracker.log({"loss": 0.5}, step=2)
tracker.finish()
"""
    assert 'metrics_tag: {"step": 2, "metrics": {"loss": 0.5}}' in run_python(script, tmp_path)
    (outbox,) = tmp_path.rglob("outbox")
    assert Recorded(outbox.parents[2]).params == {"actor.lr": 1e-6}


def test_into_the_run_that_there_is(recording: otel_rl.Run, records_of: Callable[..., list[Record]]) -> None:
    """Numbers are values, texts are tables; the input is left as it was."""
    values = {"loss@mean": 0.5, "sample": "2", "nested": {"x": 1}}
    before = dict(values)
    tracker = create_tracker("wandb", {"lr": 1}, project="p", api_key="secret")
    tracker.log(values, step=0, commit=True)
    tracker.finish()
    records = records_of(recording)

    assert [r.values for r in records if isinstance(r, Logged)] == [{"loss@mean": 0.5, "nested/x": 1}]
    assert [(r.name, r.columns) for r in records if isinstance(r, Tabled)] == [("sample", ["text"])]
    assert values == before
    assert otel_rl.current() is recording


@pytest.mark.parametrize(
    ("tracker", "keywords", "variable"),
    [
        ("wandb", {"api_key": "k-1", "mode": "disabled"}, "WANDB_API_KEY"),
        ("swanlab", {"login_kwargs": {"api_key": "k-1"}, "mode": "disabled"}, "SWANLAB_API_KEY"),
    ],
)
def test_keys_never_reach_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracker: str, keywords: dict[str, str], variable: str
) -> None:
    """They go to the environment that the agent inherits."""
    monkeypatch.setenv("OTEL_RL_AGENT", "off")
    pytest.importorskip(tracker)
    monkeypatch.setenv(variable, "")
    made = create_tracker(tracker, {"lr": 1}, **keywords)
    made.log({"loss": 1.0}, step=0)
    made.finish()

    assert os.environ[variable] == "k-1"
    assert [path for path in tmp_path.rglob("*") if path.is_file() and b"k-1" in path.read_bytes()] == []


def test_two_tags_of_one_name_stay_apart(tmp_path: Path) -> None:
    """The second one keeps its tag."""
    run = otel_rl.init(dir=tmp_path, quiet=True)
    create_tracker("stdout", {}).log({"x@sum": 1.0, "x@max": 2.0}, step=0)
    assert run.finish()

    assert rows_of(run.dir)[0]["values"] == {"x": 1.0, "x@max": 2.0}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x@mean", 2.5),
        ("x@max", 4),
        ("x@min", 1),
        ("x@p50", 2.5),
        ("x@p99", 3.97),
        ("x@std", 1.118033988749895),
        ("x@sum", 10),
        ("x_max", 4),
        ("x_foo", 2.5),
        ("terminated", 2.5),
        ("kl_sum@mean", 2.5),
        ("max", 2.5),
    ],
)
def test_reducers(name: str, expected: float) -> None:
    """A tag counts first, then the last word; anything else is the mean. Names keep their tags."""
    for values in ([1, 2, 3, 4], np.array([1, 2, 3, 4])):
        assert reduce_metrics({name: values}) == {name: pytest.approx(expected)}


def test_an_unknown_tag() -> None:
    """It is an error, unlike an unknown last word."""
    with pytest.raises(ValueError, match="Unknown reducer tag 'foo'"):
        reduce_metrics({"x@foo": [1.0]})


def test_what_passes_unchanged() -> None:
    """Scalars and empty lists do, another function may be the default, and the metrics are reduced in place."""
    metrics = {"a@sum": 3.0, "b": [], "c": [1, 5]}

    assert reduce_metrics(metrics, max) is metrics
    assert metrics == {"a@sum": 3.0, "b": [], "c": 5}


def test_keywords_without_effect_are_named(recording: otel_rl.Run, caplog: pytest.LogCaptureFixture) -> None:
    """One warning names those that have no counterpart."""
    create_tracker("wandb", {}, project="p", log_dir="logs", reinit=True)

    assert "'wandb': no effect of log_dir, reinit" in caplog.text


def test_values_that_are_no_mapping_are_counted(
    recording: otel_rl.Run, records_of: Callable[..., list[Record]]
) -> None:
    """They do not raise; ROLL's tracker for no name takes them too."""
    tracker = create_tracker("stdout", {})
    tracker.log(None, step=0)  # type: ignore[arg-type] # that is the test
    tracker.log({"loss": 1.0}, step=1)

    assert [r.step for r in records_of(recording) if isinstance(r, Logged)] == [1]
