# /// script
# requires-python = ">=3.11"
# dependencies = ["google-tunix==0.1.7", "google-metrax==0.2.4"]
# ///
"""Tunix's trainers, for real, on a CPU with their own toy models; `.ci/noxfile.py` runs the released version.

`OTEL_RL_SOURCES/tunix` is a checkout that is used instead.
"""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, ClassVar

import pytest

import otel_rl
from tests.docs.snippets import coming_from
from tests.frameworks.recorded import Recorded, launched, messages_of, plain
from tests.frameworks.results import SOURCES, Values, compared, phase_coverage, tensorboard

pytestmark = pytest.mark.timeout(500)
_CHECKOUT = SOURCES / "tunix"
_TOLD = {"JAX_PLATFORMS": "cpu", "OTEL_RL_RUN_ID": "run"}
if _CHECKOUT.is_dir():
    _TOLD["PYTHONPATH"] = f"{_CHECKOUT}{os.pathsep}{Path(otel_rl.__file__).parents[1]}"


def recorded(directory: Path) -> Recorded:
    """Return the run below the directory where Tunix's own backend writes."""
    return Recorded(directory / "own" / "p" / "run")


def wrote(directory: Path) -> Values:
    """Return what Tunix's own TensorBoard backend wrote, without JAX's own events."""
    found = tensorboard(directory / "own")
    return {step: {n: v for n, v in values.items() if not n.startswith("jax/")} for step, values in found.items()}


@pytest.fixture(scope="module")
def grpo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GRPO learner without a line of otel-rl."""
    place: Path = tmp_path_factory.mktemp("grpo")
    launched(place, "tunix_grpo.py", "plain", options=["--instrument", "tunix"], OTEL_RL_CONTENT="true", **_TOLD)
    return place


@pytest.fixture(scope="module")
def peft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `PeftTrainer` with otel-rl's options in its configuration, and without `otel-rl run`."""
    place: Path = tmp_path_factory.mktemp("peft")
    plain(place, "tunix_peft.py", **_TOLD)
    return place


def test_rows_of_a_learner_are_what_tunix_wrote(grpo: Path) -> None:
    """Each number of `GRPOLearner` is in the row of its step, and texts are in none."""
    version = "checkout" if _CHECKOUT.is_dir() else metadata.version("google-tunix")
    found = recorded(grpo).agrees(wrote(grpo), "tunix", version, "GRPOLearner, 4 updates, toy model", single=True)

    assert found.steps == [0, 1, 2, 3, 4]
    assert {"rewards/train/index", "actor/eval/kl", "completions/train/mean_length"} < found.names
    assert len(found.equal) > 100


def test_texts_of_a_learner_are_what_tunix_generated(grpo: Path) -> None:
    """Each prompt and completion that a function for metrics got, with its tokens and advantage."""
    theirs: dict[int, set[tuple[object, ...]]] = {}
    for line in map(json.loads, (grpo / "batches.jsonl").read_text().splitlines()):
        theirs.setdefault(line["step"], set()).update(zip(*line["lists"], strict=True))
    ours = messages_of(recorded(grpo).directory)

    assert list(ours) == [0, 1, 2, 3]
    for step, of_step in ours.items():
        pairs = [tuple(one["text"] for one in own) for own in of_step]
        assert len(pairs) == 4
        assert set(pairs) <= {one[:2] for one in theirs[step]}
        assert all(len(own[-1]["tokens"]) for own in of_step)


def phases(directory: Path, step: int) -> set[object]:
    """Return the phases of a step, also those inside of others."""
    spans = recorded(directory).spans
    (trace,) = (s.trace_id for s in spans if s.name == "rl.loop" and s.attributes["rl.loop.iteration"] == step)
    return {span.attributes["rl.phase"] for span in spans if span.trace_id == trace and span.name != "rl.loop"}


def test_compilations_are_no_values(grpo: Path) -> None:
    """JAX reports the times of day at which it compiles; they are in no row, and the compilations are phases."""
    names = {name for row in recorded(grpo).rows.values() for name in row}

    assert [name for name in names if name.startswith("jax/")] == []
    assert "compile" in phases(grpo, 0)


def test_phases_of_a_learner(grpo: Path) -> None:
    """Spans of Tunix's tracer, which is off, are under the root of their global step, and cover it."""
    assert {"data_loading", "rollout", "reference_inference", "peft_train", "log_metrics"} < phases(grpo, 3)
    assert "evaluate" in phases(grpo, 2)
    assert (phase_coverage(recorded(grpo).spans) or 0) > 0.9


def test_the_snippet_of_the_page_in_a_trainer(tmp_path: Path) -> None:
    """`PeftTrainer` takes the options that the snippet imports; what the snippet logs itself is in a run of its own."""
    (tmp_path / "snippet.py").write_text(coming_from("Tunix"))
    plain(tmp_path, "tunix_peft.py", **_TOLD)
    (of_the_snippet,) = (Recorded(path) for path in tmp_path.glob("logs/grpo-gsm8k/*"))
    found = compared(wrote(tmp_path), recorded(tmp_path).rows, single=True)

    assert [(step, row["actor/train/loss"]) for step, row in of_the_snippet.rows.items()] == [(1, 0.5)]
    assert found.different == []
    assert len(found.equal) > 20


def test_rows_of_a_trainer_are_what_tunix_wrote(peft: Path) -> None:
    """`PeftTrainer` takes the options; values that it writes a step late, or when it closes, are at their steps."""
    found = compared(wrote(peft), recorded(peft).rows, single=True)

    assert found.different == []
    assert {step for step, name in found.equal if name == "train/loss"} == {1, 2, 3, 4, 5, 6}
    assert {step for step, name in found.equal if name == "eval/loss"} == {0, 2, 4, 6}


def test_phases_of_a_trainer(peft: Path) -> None:
    """The options alone record them, and each update is a step."""
    assert [int(str(root.attributes["rl.loop.iteration"])) for root in recorded(peft).roots] == [1, 2, 3, 4, 5, 6]
    assert {"evaluate", "log_metrics"} <= phases(peft, 2)


class Backend:
    """A backend that remembers."""

    made: ClassVar[list[Backend]] = []

    def __init__(self) -> None:
        self.events: list[tuple[str, object, object]] = []
        self.closed = 0
        Backend.made.append(self)

    def log_scalar(self, event: str, value: float, **kwargs: object) -> None:
        """Remember the value."""
        self.events.append((event, value, kwargs.get("step")))

    def close(self) -> None:
        """Count the call."""
        self.closed += 1


def monitoring() -> Any:
    """Return JAX's module of listeners."""
    return import_module("jax._src.monitoring")


@pytest.fixture(autouse=True)
def no_listeners() -> Iterator[None]:
    """Leave no listener to the next test; Tunix leaves them all."""
    yield
    Backend.made = []
    monitoring()._scalar_listeners.clear()


def test_a_logger_answers_as_tunixs(recording: otel_rl.Run) -> None:
    """It is Tunix's own, so it has its methods and names, and other backends get the same values."""
    from tunix.sft import metrics_logger

    from otel_rl.frameworks import tunix

    assert tunix.MetricsLogger is metrics_logger.MetricsLogger
    for module in (tunix, metrics_logger):
        logger = tunix.MetricsLogger(module.MetricsLoggerOptions("own", backend_kwargs={"custom_backend": [Backend]}))
        logger.log("a", "loss", 1.5, "train", 3)
        logger.log("a", "loss", 2.5, "eval", None)
        assert logger.metric_exists("a", "loss", "train")
        assert [logger.get_metric("a", "loss", mode) for mode in ("train", "eval")] == [1.5, 2.5]
        logger.close()
        monitoring()._scalar_listeners.clear()
    first, second = Backend.made

    assert first.events == second.events == [("a/train/loss", 1.5, 3), ("a/eval/loss", 2.5, None)]
    assert (first.closed, second.closed) == (1, 1)


def test_options_have_tunixs_defaults() -> None:
    """Only the directory has to be given."""
    from tunix.sft import metrics_logger

    from otel_rl.frameworks.tunix import MetricsLoggerOptions

    own = vars(MetricsLoggerOptions("logs"))

    assert own == {**vars(metrics_logger.MetricsLoggerOptions("logs")), "backend_factories": []}
    assert (own["project_name"], own["run_name"], own["flush_every_n_steps"]) == ("tunix", "", 100)
    with pytest.raises(TypeError):
        MetricsLoggerOptions()


@pytest.mark.parametrize("spelling", ["backend_factories", "backend_kwargs"])
def test_custom_backends_replace_the_others(recording: otel_rl.Run, spelling: str) -> None:
    """Under both spellings; an empty list means the default ones, and copied options make other backends."""
    from otel_rl.frameworks.tunix import LoggingBackend, MetricsLoggerOptions

    def made(factories: list[Any]) -> list[type]:
        chosen = factories if spelling == "backend_factories" else {"custom_backend": factories}
        options = MetricsLoggerOptions("own", **{spelling: chosen})
        first, second = options.create_backends(), copy.deepcopy(options).create_backends()
        assert all(one is not other for one, other in zip(first, second, strict=True))
        return [type(backend) for backend in first]

    assert made([Backend, lambda: Backend()]) == [Backend, Backend, LoggingBackend]  # noqa: PLW0108
    assert made([])[0].__name__ == "TensorboardBackend"
    assert made([])[-1] is LoggingBackend


def test_other_processes_write_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is not JAX's first one creates no backend and begins no run."""
    import jax

    from otel_rl.frameworks.tunix import MetricsLoggerOptions

    monkeypatch.setattr(jax, "process_index", lambda: 1)

    assert MetricsLoggerOptions("own", backend_factories=[Backend]).create_backends() == []
    assert otel_rl.current() is None


def test_without_options_there_is_only_the_history(tmp_path: Path) -> None:
    """No file is written, no run begun; perplexities are averaged geometrically."""
    from otel_rl.frameworks.tunix import MetricsLogger

    logger = MetricsLogger()
    for name in ("perplexity", "loss"):
        for value in (2.0, 8.0):
            logger.log("actor", name, value, "train", 0)
    logger.close()

    assert logger.get_metric("actor", "perplexity", "train") == pytest.approx(4.0)
    assert logger.get_metric("actor", "loss", "train") == 5.0
    assert otel_rl.current() is None
    assert list(tmp_path.iterdir()) == []


def test_runs_of_one_name_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two trainings of one script are two runs, and values of the second one are not in the first one."""
    from otel_rl.frameworks.tunix import MetricsLogger, MetricsLoggerOptions

    monkeypatch.setenv("OTEL_RL_AGENT", "off")
    ids = []
    for _ in range(2):
        logger = MetricsLogger(MetricsLoggerOptions("own", run_name="same", backend_factories=[Backend]))
        logger.log("actor", "loss", 1.0, "train", 1)
        run = otel_rl.current()
        assert run is not None
        ids.append(run.id)
        logger.close()
        logger.close()

    assert len(set(ids)) == 2


@pytest.mark.parametrize(("run_id", "name"), [("", r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d"), ("mine", "mine")])
def test_a_run_without_a_name(run_id: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the time, as Tunix's own runs of W&B have; an id that the user gives is a name too."""
    from otel_rl.frameworks.tunix import MetricsLogger, MetricsLoggerOptions

    for variable, value in (("OTEL_RL_AGENT", "off"), ("OTEL_RL_RUN_ID", run_id)):
        monkeypatch.setenv(variable, value)
    logger = MetricsLogger(MetricsLoggerOptions("own", backend_factories=[Backend]))
    run = otel_rl.current()

    assert run is not None
    assert re.fullmatch(name, run._session.settings.name)
    logger.close()
