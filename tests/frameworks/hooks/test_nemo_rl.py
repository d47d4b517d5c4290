"""NeMo-RL's logger and timer, recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import otel_rl
from otel_rl.frameworks.nemo_rl import Logger, ThreadSafeTimer, Timer, get_next_experiment_dir
from otel_rl.recorder.journal.records import Configured, Observed, Record, SpanEnded, SpanStarted
from tests.real_parts import needs
from tests.recorder.trainer.reading import logged, refusals


def test_both_call_shapes(recording: otel_rl.Run, records_of: Callable[..., list[Record]]) -> None:
    """A prefix is joined with a slash, an empty one or `None` is not; nested metrics are joined too."""
    logger = Logger({})
    logger.log_metrics({"loss": 0.123}, 10, "train")
    logger.log_metrics({"loss": 0.5}, step=11, prefix=None, step_finished=True)
    logger.log_metrics({"a": {"b": 1}}, step=12)

    assert logged(records_of(recording)) == [(10, {"train/loss": 0.123}), (11, {"loss": 0.5}), (12, {"a/b": 1})]


def test_lists_are_samples(recording: otel_rl.Run, records_of: Callable[..., list[Record]]) -> None:
    """So are histograms of any shape; the agent makes their statistics."""
    logger = Logger({})
    logger.log_metrics({"lengths": [1, 2, 3]}, step=0)
    logger.log_histogram(np.array([[1.0, 2.0], [3.0, 4.0]]), step=0, name="ratio")  # type: ignore[arg-type]
    logger.log_histogram([[5, 6], [7]], step=0, name="nested")
    observed = [record.values for record in records_of(recording) if isinstance(record, Observed)]
    found = {name: np.frombuffer(values).tolist() for of_call in observed for name, values in of_call.items()}

    assert found == {"lengths": [1, 2, 3], "ratio": [1, 2, 3, 4], "nested": [5, 6, 7]}


def test_another_axis_never_advances_training(recording: otel_rl.Run, records_of: Callable[..., list[Record]]) -> None:
    """A hundred polls before, between and after three steps leave three steps; the axis has no second prefix."""
    logger = Logger({})
    for step in range(3):
        for poll in range(33):
            logger.log_metrics({"util": 90, "ray/ray_step": poll}, poll, prefix="ray", step_metric="ray/ray_step")
        logger.log_metrics({"loss": 0.5}, step)
    found = logged(records_of(recording))

    assert {step for step, _ in found} == {0, 1, 2}
    assert found[0] == (0, {"ray/util": 90, "ray/ray_step": 0})


def test_hyper_parameters_are_flat(recording: otel_rl.Run, records_of: Callable[..., list[Record]]) -> None:
    """Nested ones are joined with dots, lists by their index."""
    Logger({}).log_hyperparams({"a": {"b": [1, 2]}})

    assert [r.values for r in records_of(recording) if isinstance(r, Configured)] == [{"a.b.0": 1, "a.b.1": 2}]


def test_figures_are_counted(recording: otel_rl.Run, records_of: Callable[..., list[Record]]) -> None:
    """They have no place here, and say so; methods that newer versions log figures with do not end the run."""
    logger = Logger({})
    logger.log_plot(object(), 0, "plot")
    logger.log_plot_token_mult_prob_error({}, 0, name="plot")
    logger.log_plot_per_worker_timeline_metrics({0: [1]}, step=0, prefix="p", name="n", timeline_interval=0.5)

    assert refusals(records_of(recording)) == {"plot": 3}
    assert not hasattr(logger, "wandb_logger")


def test_what_cannot_be_recorded_is_counted(recording: otel_rl.Run, records_of: Callable[..., list[Record]]) -> None:
    """It ends no training: columns without a length, metrics that are not a mapping."""
    logger = Logger({"log_dir": str(recording.dir)})
    logger.log_batched_dict_as_jsonl({"reward": 0.5}, "samples.jsonl")
    logger.log_metrics(None, 0)  # type: ignore[arg-type]

    assert refusals(records_of(recording)) == {"log_batched_dict_as_jsonl": 1, "log_metrics": 1}


@needs("tensorboard")
def test_backends_by_their_switches(tmp_path: Path) -> None:
    """TensorBoard's files lie in its directory below the log directory; what is off leaves none."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    cfg = {
        "log_dir": str(tmp_path),
        "tensorboard_enabled": True,
        "tensorboard": {"log_dir": "tb"},
        "wandb_enabled": False,
        "wandb": {"project": "grpo", "name": "baseline"},
    }
    logger = Logger(cfg)
    logger.log_metrics({"loss": 0.5}, step=10, prefix="train")
    logger.finish()
    events = EventAccumulator(str(tmp_path / "tb")).Reload()

    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(10, 0.5)]
    assert next((tmp_path / "grpo").iterdir()).name.startswith("baseline-")
    assert list(tmp_path.rglob("wandb")) == []


def test_the_environment_names_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's variable wins over the project in the framework's configuration."""
    monkeypatch.setenv("OTEL_RL_AGENT", "off")
    monkeypatch.setenv("OTEL_RL_PROJECT", "mine")
    Logger({"log_dir": str(tmp_path), "wandb": {"project": "grpo", "name": "baseline"}}).finish()

    assert [path.parent.name for path in tmp_path.glob("*/baseline-*")] == ["mine"]


def test_no_backend_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is recorded all the same, by the exporters of the settings."""
    monkeypatch.setenv("OTEL_RL_AGENT", "off")
    logger = Logger({"log_dir": str(tmp_path)})
    logger.log_metrics({"loss": 0.5}, step=0)
    logger.finish()
    (manifest,) = tmp_path.glob("*/*/run.json")

    assert otel_rl.current() is None
    assert ["jsonl", {}] in json.loads(manifest.read_text())["exporters"]


def test_json_lines(recording: otel_rl.Run, tmp_path: Path) -> None:
    """Columns replace the file, an object with its index for each sample; texts are appended as they are."""
    logger = Logger({"log_dir": str(tmp_path)})
    for _ in range(2):
        logger.log_batched_dict_as_jsonl({"reward": np.array([1.0, 2.0]), "text": ["a", "b"]}, "samples.jsonl")
        logger.log_string_list_as_jsonl(['{"a": 1}'], "lines.jsonl")
    samples = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]

    assert samples == [{"reward": [1.0], "text": ["a"], "idx": 0}, {"reward": [2.0], "text": ["b"], "idx": 1}]
    assert (tmp_path / "lines.jsonl").read_text() == '{"a": 1}\n{"a": 1}\n'


def test_the_next_experiment(tmp_path: Path) -> None:
    """It is made, one more than the highest, whatever is missing below."""
    first = get_next_experiment_dir(str(tmp_path))
    assert (tmp_path / "exp_001").is_dir()
    for name in ("exp_007", "exp_x"):
        (tmp_path / name).mkdir()

    assert first == str(tmp_path / "exp_001")
    assert get_next_experiment_dir(str(tmp_path)) == str(tmp_path / "exp_008")


def test_timer_reductions() -> None:
    """All of NeMo-RL's; the deviation is that of the population."""
    timer = Timer()
    for seconds in (1.0, 2.0, 3.0, 6.0):
        timer.record("step", seconds)
    operations = ("mean", "median", "min", "max", "std", "sum", "count")

    assert [timer.reduce("step", operation) for operation in operations] == pytest.approx(
        [3.0, 2.5, 1.0, 6.0, 1.8708286933869707, 12.0, 4.0]
    )
    assert timer.get_timing_metrics() == {"step": 3.0}
    assert timer.get_timing_metrics({"step": "sum"}) == {"step": 12.0}
    assert timer.get_timing_metrics({"other": "sum"}) == {"step": [1.0, 2.0, 3.0, 6.0]}
    assert timer.get_latest_elapsed("step") == 6.0
    assert timer.get_elapsed("step") == [1.0, 2.0, 3.0, 6.0]


def test_timer_mistakes() -> None:
    """A running label cannot be started, one that stands not stopped; labels and operations are known ones."""
    timer = ThreadSafeTimer(context={"worker": "driver"})
    timer.start("a", should_log=False)
    with pytest.raises(ValueError, match="Timer 'a' is already running"):
        timer.start("a")
    assert timer.stop("a") >= 0
    with pytest.raises(ValueError, match="Timer 'a' is not running"):
        timer.stop("a")
    with pytest.raises(ValueError, match="Invalid operation 'mode'"):
        timer.reduce("a", "mode")
    for get in (timer.reduce, timer.get_elapsed, timer.get_latest_elapsed):
        with pytest.raises(KeyError, match="No timings recorded for 'b'"):
            get("b")
    timer.start("b")
    timer.reset()
    with pytest.raises(ValueError, match="Timer 'b' is not running"):
        timer.stop("b")


def test_markers() -> None:
    """Moments have a list of their own, until it is reset."""
    timer = Timer()
    first, second = timer.mark("crash", {"worker": 3}), timer.mark("crash")

    assert timer.get_markers("crash") == timer.get_markers() == {"crash": [(first, {"worker": 3}), (second, None)]}
    assert timer.get_markers("other") == {"other": []}
    timer.reset("crash")
    assert timer.get_markers() == {}


def test_stretches_that_overlap(recording: otel_rl.Run, records_of: Callable[..., list[Record]]) -> None:
    """`start` and `stop` make phases too, in any order; a slash separates the part."""
    timer = Timer()
    with recording.step(0):
        timer.start("idle/refit_bubble")
        timer.start("weight_sync")
        timer.stop("idle/refit_bubble")
        timer.stop("weight_sync")
        timer.start("timing/rollout/total")
    records = records_of(recording)
    begun = {record.span_id: (record.name, record.part) for record in records if isinstance(record, SpanStarted)}

    assert [*begun.values()] == [("idle", "refit_bubble"), ("weight_sync", "")]
    assert [record.span_id for record in records if isinstance(record, SpanEnded)] == [*begun]


def test_timed_stretches_are_phases(recording: otel_rl.Run, records_of: Callable[..., list[Record]]) -> None:
    """Inside a run, what is timed is a span too; an error passes, and is measured."""
    timer = Timer()
    with recording.step(0), pytest.raises(RuntimeError), timer.time("generation"):
        raise RuntimeError

    assert [record.name for record in records_of(recording) if isinstance(record, SpanStarted)] == ["generation"]
    assert len(timer.get_elapsed("generation")) == 1


def test_gpu_monitoring(tmp_path: Path) -> None:
    """The switch and the intervals of NeMo-RL's configuration are the run's settings."""
    cfg = {
        "log_dir": str(tmp_path),
        "monitor_gpus": False,
        "gpu_monitoring": {"collection_interval": 5, "flush_interval": 20},
    }
    logger = Logger(cfg)
    run = otel_rl.current()
    assert run is not None
    agent = json.loads((run.dir / "run.json").read_text())["agent"]
    logger.finish()

    assert [agent["hardware"][name] for name in ("enabled", "interval", "flush_interval")] == [False, 5, 20]


@pytest.mark.parametrize("monitor", [None, False, True])
def test_hardware_is_monitored_if_asked(monitor: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """NeMo-RL's own logger polls GPUs and the memory of hosts with `monitor_gpus` alone."""
    monkeypatch.setenv("OTEL_RL_AGENT", "off")
    logger = Logger({"log_dir": "logs"} | ({} if monitor is None else {"monitor_gpus": monitor}))

    assert logger._recording.run._session.settings.hardware.enabled is bool(monitor)
    logger.finish()
