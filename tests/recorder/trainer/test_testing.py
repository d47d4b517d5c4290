"""`otel_rl.testing`, which records in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import otel_rl
from otel_rl.testing import Event, Table, Trajectories, Value, capture
from tests.processes import run_python


def test_everything_that_is_recorded(tmp_path: Path) -> None:
    """The facts of each call are there, as they were given, and no file is."""
    with capture() as captured:
        run = otel_rl.init(config={"optimizer": {"lr": 1e-6}}, exporters=["jsonl"], content=True)
        with run.step(0, epoch=1), run.phase("generate") as phase:
            phase.log({"loss": 0.5}, weight=2)
            run.log({"reward": np.array([1.0, 2.0])})
            with phase.offload():
                pass
            with run.trajectory() as one:
                one.generated(5)
                one.rewarded(1.0)
        run.trained([one.ticket()], step=1)
        run.table("samples", {"prompt": ["hi"]}, step=1)
        run.event("checkpoint", path="a")
        with pytest.raises(ValueError, match="it broke"), run.phase("save"):
            raise ValueError("it broke")

    assert captured.values == [Value("loss", 0, 0.5, 2), Value("reward", 0, (1.0, 2.0))]
    assert [(one.name, one.step, one.attributes, one.error) for one in captured.steps] == [
        ("rl.loop", 0, {"epoch": 1}, None)
    ]
    assert [(one.name, one.part, one.error) for one in captured.phases] == [
        *(("generate", "", None), ("generate", "offload", None)),
        ("save", "", ("ValueError", "it broke")),
    ]
    assert [one.name for one in captured.spans] == ["rl.trajectory"]
    assert captured.trajectories == [Trajectories(1, "trained", (1.0,), 5)]
    assert captured.tables == [Table("samples", 1, ["prompt"], [("hi",)])]
    assert captured.events == [Event("checkpoint", 1, {"path": "a"})]
    assert (captured.params, captured.refused, captured.outcomes) == ({"optimizer.lr": 1e-6}, {}, ["finished"])
    assert list(tmp_path.iterdir()) == []


def test_the_last_value_of_a_name() -> None:
    """Of a step, or of all; none if nothing was logged."""
    with capture() as captured:
        run = otel_rl.init()
        for step in range(3):
            run.log({"loss": 1.0 / (step + 1)}, step=step)
        run.log({"loss": 0.25}, step=1)

    assert (captured.value("loss"), captured.value("loss", 0), captured.value("loss", 1)) == (0.25, 1.0, 0.25)
    assert (captured.value("kl"), captured.value("loss", 7)) == (None, None)


def test_several_runs_and_open_spans() -> None:
    """The code under test may finish its runs; what is open has no duration, and refusals of all runs add up."""
    with capture() as captured:
        first = otel_rl.init()
        first.log({"bad": "text"}, step=0)
        with first.step(0):
            assert captured.steps[0].seconds is None
        assert first.finish()
        assert captured.steps[0].seconds is not None
        second = otel_rl.init(project="another")
        second.log({"bad": "text", "good": 1}, step=0)

    assert (captured.value("good"), captured.refused, captured.outcomes) == (1, {"value": 2}, ["finished", "finished"])
    assert otel_rl.current() is None


def test_the_directory_of_the_run_is_temporary() -> None:
    """Code under test can write there; it is removed with the block, and runs have files again afterwards."""
    with capture():
        place = otel_rl.init().dir
        (place / "policy.pt").write_text("weights")
    with otel_rl.init(dir="runs", agent="off", exporters=[], quiet=True) as run:
        pass

    assert not place.exists()
    assert run.dir.exists()


def test_an_exception_ends_the_block() -> None:
    """It passes, and the next block has nothing of it."""
    with pytest.raises(ZeroDivisionError), capture() as captured:
        otel_rl.init().log({"loss": 1 / 0})
    with capture() as another:
        pass

    assert (captured.outcomes, another.outcomes, otel_rl.current()) == (["failed"], [], None)


def test_settings_are_checked_as_always() -> None:
    """A wrong setting raises, and so does a block in a run that is being recorded."""
    with capture(), pytest.raises(otel_rl.SettingsError, match="unknown setting"):
        otel_rl.init(projekt="p")
    run = otel_rl.init(agent="off", exporters=[], quiet=True)
    with pytest.raises(otel_rl.SettingsError, match=f"run {run.id} is being recorded"), capture():
        pass


def test_it_prints_nothing_and_starts_nothing(tmp_path: Path) -> None:
    """There is no agent, and the process has the threads that it had."""
    script = """
import otel_rl, threading
from otel_rl.testing import capture
before = threading.active_count()
with capture() as captured:
    with otel_rl.init() as run, run.step(0):
        run.log({"loss": 1.0})
print(captured.value("loss"), threading.active_count() == before)
"""
    assert run_python(script, tmp_path) == "1.0 True\n"
    assert list(tmp_path.iterdir()) == []
