"""Trinity-RFT's monitor, recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import otel_rl
from otel_rl.integrations.trinity import Monitor, gather_eval_metrics, gather_metrics, get_monitor
from otel_rl.journal.records import Logged, Tabled
from otel_rl.stats import at_k
from tests.processes import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from otel_rl.journal.records import Record

RUNS = [[0.8, 0.9], [0.6, 0.9], [0.95, 0.85]]


def monitor(**keywords: object) -> Monitor:
    return Monitor("rft", "group", "run", "explorer", **keywords)  # type: ignore[arg-type]


def test_it_records_into_the_run_that_there_is(recording: otel_rl.Run, records_of: Callable[..., list[Record]]) -> None:
    """Metrics at their step, names with `@` as they are; tables too."""
    found = monitor()
    found.log({"eval/gsm8k/accuracy/mean@4": 0.5}, step=3, commit=True)
    found.log_table("experiences", [{"prompt": "a", "reward": 1.0}], step=3)
    found.close()
    records = records_of(recording)

    assert [(r.step, r.values) for r in records if isinstance(r, Logged)] == [(3, {"eval/gsm8k/accuracy/mean@4": 0.5})]
    assert [(r.name, r.columns) for r in records if isinstance(r, Tabled)] == [("experiences", ["prompt", "reward"])]


def test_suffixes_choose_the_reducer(tmp_path: Path) -> None:
    """`count:sum` is the sum of what ranks and samples hold, without its suffix."""
    run = otel_rl.init(dir=tmp_path, quiet=True)
    monitor().log({"count:sum": [1, 2, 3], "length:max": 7.0}, step=0)
    assert run.finish()

    assert rows_of(run.dir)[0]["values"] == {"length": 7.0, "count": 6.0}


@pytest.mark.parametrize("call", [lambda: get_monitor("comet"), lambda: monitor(monitor_type="comet")])
def test_unknown_types(call: Callable[[], object]) -> None:
    """The message names those that there are."""
    with pytest.raises(ValueError, match="tensorboard, wandb, mlflow, swanlab"):
        call()


def test_monitors_by_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a run, a monitor begins one, with its type's exporter."""
    monkeypatch.setenv("OTEL_RL_AGENT", "off")
    made = get_monitor("tensorboard")(
        project="rft", group="g", name="run", role="trainer", config={"lr": 1}, monitor_args={"log_dir": "tb"}
    )
    run = otel_rl.current()
    assert run is not None
    name = run.dir.name
    made.close()

    assert name.startswith("run_trainer-")
    assert otel_rl.current() is None


def test_calculated_metrics_have_the_same_names_for_any_length(recording: otel_rl.Run) -> None:
    """A list of one value becomes the three statistics too; scalars stay."""
    assert monitor().calculate_metrics({"a": [1.0, 3.0], "b": [2.0], "c": 5.0, "d": []}, "p") == {
        "p/a/mean": 2.0,
        "p/a/max": 3.0,
        "p/a/min": 1.0,
        "p/b/mean": 2.0,
        "p/b/max": 2.0,
        "p/b/min": 2.0,
        "p/c": 5.0,
    }


def test_gathering_while_training() -> None:
    """Mean, maximum and minimum over tasks; a suffix asks for one statistic."""
    tasks = [{"accuracy": sum(runs) / 2, "count:sum": 2} for runs in RUNS]

    assert gather_metrics(tasks, "rollout") == pytest.approx(
        {
            "rollout/accuracy/mean": 0.8333333,
            "rollout/accuracy/max": 0.9,
            "rollout/accuracy/min": 0.75,
            "rollout/count": 6,
        }
    )


def test_gathering_an_evaluation() -> None:
    """The mean over tasks; in detail all four statistics, the deviation of the population."""
    tasks = [{f"accuracy/{name}": value for name, value in at_k.of_task(runs).items()} for runs in RUNS]
    plain, detailed = (gather_eval_metrics(tasks, "eval/dummy", detailed_stats=detail) for detail in (False, True))

    assert plain["eval/dummy/accuracy/std@2"] == pytest.approx(0.083333333)
    assert len(plain) == 4
    assert detailed["eval/dummy/accuracy/mean@2/std"] == pytest.approx(0.06236095644623235)
    assert len(detailed) == 16
