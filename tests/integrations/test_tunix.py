"""Tunix's logger, recorded."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest

import otel_rl
from otel_rl.errors import SettingsError
from otel_rl.integrations.tunix import MetricsLogger, MetricsLoggerOptions, Mode
from otel_rl.journal.records import Logged, Observed
from tests.processes import rows_of, run_python
from tests.real_parts import needs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from otel_rl.journal.records import Record


class Backend:
    """A backend that remembers."""

    made: ClassVar[list[Backend]] = []

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.events: list[tuple[str, float, int]] = []
        self.closed = 0
        Backend.made.append(self)

    def log_scalar(self, event: str, value: float, **kwargs: int) -> None:
        """Remember the value."""
        self.events.append((event, value, kwargs["step"]))

    def close(self) -> None:
        """Count the call."""
        self.closed += 1


@pytest.fixture(autouse=True)
def none_made() -> None:
    Backend.made = []


def test_options_have_defaults() -> None:
    """Only the directory has to be given."""
    options = MetricsLoggerOptions(log_dir="logs")

    assert (options.project_name, options.run_name, options.flush_every_n_steps) == ("tunix", "", 100)
    with pytest.raises(TypeError):
        MetricsLoggerOptions()  # type: ignore[call-arg]


@pytest.mark.parametrize("spelling", ["backend_factories", "backend_kwargs"])
def test_custom_backends_replace_the_others(tmp_path: Path, spelling: str) -> None:
    """Under both spellings, a lambda is called once and gets every value at its step; `close` closes once."""
    factories = [lambda: Backend("f.csv")]
    given = factories if spelling == "backend_factories" else {"custom_backend": factories}
    options = MetricsLoggerOptions(str(tmp_path), **{spelling: given})  # type: ignore[arg-type]
    logger = MetricsLogger(options)
    for step in range(3):
        logger.log("actor", "loss", step / 2, Mode.TRAIN, step)
    logger.close()
    logger.close()

    (backend,) = Backend.made
    assert backend.events == [("actor/train/loss", n / 2, n) for n in range(3)]
    assert (backend.path, backend.closed) == ("f.csv", 1)


def test_copied_options_make_other_backends(tmp_path: Path) -> None:
    """Two loggers never share a backend."""
    options = MetricsLoggerOptions(str(tmp_path), backend_factories=[lambda: Backend("f.csv")])
    for each in (options, copy.deepcopy(options)):
        logger = MetricsLogger(each)
        logger.log("", "loss", 1.0, "train", 0)
        logger.close()

    assert len({id(backend) for backend in Backend.made}) == 2
    assert [backend.events for backend in Backend.made] == [[("train/loss", 1.0, 0)]] * 2


def test_a_backend_without_close_is_refused(tmp_path: Path) -> None:
    """The message names the method."""

    class NoClose:
        def log_scalar(self, event: str, value: float, **kwargs: int) -> None:
            """Do nothing."""

    with pytest.raises(SettingsError, match=r"close\(\)"):
        MetricsLogger(MetricsLoggerOptions(str(tmp_path), backend_factories=[NoClose]))


def test_default_backends(tmp_path: Path) -> None:
    """TensorBoard always, in the directory that was given; no backends that were not asked for."""
    chosen = MetricsLoggerOptions(str(tmp_path), backend_kwargs={"wandb": {"mode": "disabled"}}).exporters()

    assert chosen[0] == {"tensorboard": {"log_dir": str(tmp_path)}}
    assert [list(each) for each in chosen[1:]] in ([["wandb"]], [])  # type: ignore[call-overload]


def test_without_options_there_is_only_the_history(tmp_path: Path) -> None:
    """No file is written, no run begun."""
    logger = MetricsLogger()
    for value in (1.0, 2.0, 6.0):
        logger.log("actor", "loss", value, Mode.TRAIN, 0)
    logger.close()

    assert (logger.metric_exists("actor", "loss", "train"), logger.metric_exists("actor", "loss", "eval")) == (
        True,
        False,
    )
    assert logger.get_metric("actor", "loss", Mode.TRAIN) == 3.0
    assert np.array_equal(logger.get_metric_history("actor", "loss", Mode.TRAIN), [1.0, 2.0, 6.0])
    assert otel_rl.current() is None
    assert list(tmp_path.iterdir()) == []


def test_perplexities_are_averaged_geometrically() -> None:
    """2 and 8 are 4; the same numbers called a loss are 5."""
    logger = MetricsLogger()
    for name in ("perplexity", "loss"):
        for value in (2.0, 8.0):
            logger.log("", name, value, Mode.EVAL, 0)

    assert logger.get_metric("", "perplexity", Mode.EVAL) == pytest.approx(4.0)
    assert logger.get_metric("", "loss", Mode.EVAL) == 5.0


def test_what_was_never_logged() -> None:
    """Reading it raises, and the message lists the known metrics."""
    with pytest.raises(ValueError, match="actor/train/loss"):
        MetricsLogger().get_metric("actor", "loss", Mode.TRAIN)


def test_texts_go_to_the_console_alone(recording: otel_rl.Run, records_of: Callable[..., list[Record]]) -> None:
    """They reach no backend."""
    logger = MetricsLogger(MetricsLoggerOptions("logs"))
    logger.log("actor", "prompts", ["What is 1 + 1?"], Mode.TRAIN, 0)
    logger.log("actor", "completions", "2", Mode.TRAIN, 0)

    assert [record for record in records_of(recording) if isinstance(record, Logged)] == []


def test_the_run_that_there_is_gets_it(recording: otel_rl.Run, records_of: Callable[..., list[Record]]) -> None:
    """A logger inside a run records into it, and leaves it open."""
    logger = MetricsLogger(MetricsLoggerOptions("logs"))
    logger.log("actor", "loss", np.float32(0.5), Mode.TRAIN, 3)
    logger.close()

    assert [(r.step, r.values) for r in records_of(recording) if isinstance(r, Logged)] == [
        (3, {"actor/train/loss": 0.5})
    ]
    assert otel_rl.current() is recording


def test_buffered_values_are_reduced_by_their_operator(tmp_path: Path) -> None:
    """Two values of one step are one point; a name without a prefix is global."""
    run = otel_rl.init(dir=tmp_path, quiet=True)
    logger = MetricsLogger(MetricsLoggerOptions("logs"))
    for value in (1.0, 3.0):
        logger.log_buffered({"rewards/score/max": (value, np.max), "kl": (value, np.mean)}, Mode.TRAIN, 7)
    logger.log_buffered({"actor/lr": (0.5, None)}, Mode.TRAIN, 7)
    assert run.finish()
    (row,) = rows_of(run.dir)

    assert row["step"] == 7
    assert row["values"] == {"actor/train/lr": 0.5, "rewards/train/score/max": 3.0, "global/train/kl": 2.0}


def test_other_processes_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is not the first one records, and builds no backend."""
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "OTEL_RL_RUN_ID": "two"}.items():
        monkeypatch.setenv(name, value)
    logger = MetricsLogger(MetricsLoggerOptions(str(tmp_path), backend_factories=[lambda: Backend("f.csv")]))
    logger.log("actor", "loss", math.nan, Mode.TRAIN, 0)
    logger.close()

    assert Backend.made == []


def test_samples_are_samples(recording: otel_rl.Run, records_of: Callable[..., list[Record]]) -> None:
    """Buffered values are journaled as observations under a tag."""
    MetricsLogger(MetricsLoggerOptions("logs")).log_buffered({"a/b/c": (1.0, np.nanmean)}, Mode.EVAL, 0)

    assert [list(r.values) for r in records_of(recording) if isinstance(r, Observed)] == [["a/eval/b/c@mean"]]


def test_runs_of_one_name_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has an id of its own, which is what trackers tell runs apart by; a name that is empty is the time."""
    monkeypatch.setenv("OTEL_RL_AGENT", "off")
    ids = []
    for _ in range(2):
        logger = MetricsLogger(MetricsLoggerOptions(str(tmp_path), run_name="same"))
        run = otel_rl.current()
        assert run is not None
        ids.append(run.id)
        logger.close()

    assert len(set(ids)) == 2


@pytest.mark.slow
@needs("jax")
def test_a_backend_of_tunixs_own_logger(tmp_path: Path) -> None:
    """It listens to JAX's monitoring, as metrax's backends do; a leading slash goes, a missing step is 0."""
    script = """
import jax.monitoring, numpy
from otel_rl.integrations.tunix import LoggingBackend
backend = LoggingBackend(project="p", id="run", quiet=True, hardware=False)
jax.monitoring.register_scalar_listener(backend.log_scalar)
for n in range(3):
    jax.monitoring.record_scalar("/actor/train/loss", n / 3, step=n)
backend.log_scalar("actor/train/kl", numpy.float32(0.5))
backend.close()
"""
    run_python(script, tmp_path)
    rows = rows_of(tmp_path / "runs" / "p" / "run")

    assert [row["values"]["actor/train/loss"] for row in rows] == [0.0, 1 / 3, 2 / 3]  # type: ignore[index]
    assert rows[0]["values"]["actor/train/kl"] == 0.5  # type: ignore[index]
