"""TRL's GRPOTrainer, for real, recorded without a line in it."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from otel_rl.export import Params, Span
from otel_rl.semconv.drift import main as drift
from tests.frameworks.results import compared, keep, phase_coverage
from tests.processes import items_of, rows_of, run, run_python
from tests.real_parts import needs

pytestmark = pytest.mark.timeout(500)
STEPS = 6
_SCRIPT = str(Path(__file__).with_name("examples") / "trl_grpo.py")
_OWN = ("step_time", "_runtime", "_per_second")
"""Parts of names of what TRL measures in seconds."""


_TOLD = {
    "HF_HUB_OFFLINE": "1",
    "OTEL_RL_RUN_ID": "trl",
    "OTEL_RL_PROJECT": "p",
    "OTEL_RL_EXPORTERS": "jsonl",
    "OTEL_RL_QUIET": "1",
    "OMP_NUM_THREADS": "1",
}


class Trained(NamedTuple):
    """The results of a training: TRL's own history, and its directory."""

    history: list[dict[str, Any]]
    directory: Path

    @property
    def run(self) -> Path:
        """The run directory."""
        return self.directory / "runs" / "p" / "trl"

    @property
    def spans(self) -> list[Span]:
        """The exported spans."""
        return [item for item in items_of(self.run) if isinstance(item, Span)]

    @property
    def by_step(self) -> dict[int, dict[str, float]]:
        """TRL's history under the names that its trackers get."""
        from transformers.integrations.integration_utils import rewrite_logs

        found: dict[int, dict[str, float]] = {}
        for entry in self.history:
            values = {name: value for name, value in entry.items() if name != "step"}
            found.setdefault(entry["step"], {}).update(rewrite_logs(values))
        return found


def train(directory: Path, *launcher: str, **environment: str) -> Trained:
    """Train in a process of its own."""
    run([*launcher, sys.executable, _SCRIPT, str(STEPS)], directory, **_TOLD, **environment)
    return Trained(json.loads((directory / "history.json").read_text()), directory)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """With `otel-rl run`."""
    return train(tmp_path_factory.mktemp("on"), sys.executable, "-m", "otel_rl.cli", "run", "--")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Without us."""
    return train(tmp_path_factory.mktemp("off"))


def test_rows_are_the_trainers_history(recorded: Trained) -> None:
    """Every value that TRL logged is in the row of its step, bit for bit, under the name that trackers get."""
    rows = {row["step"]: row["values"] for row in rows_of(recorded.run)}

    told = {(step, name): value for step, values in recorded.by_step.items() for name, value in values.items()}
    found = compared(told, rows_of(recorded.run))
    revision = f"{version('trl')}, transformers {version('transformers')}"
    ran = "GRPO with evaluations and checkpoints, on a CPU; SFT and evaluations around it in another test"
    keep("trl", revision, ran, found, phase_coverage(recorded.run))

    assert list(rows) == found.steps == list(range(1, STEPS + 1))
    assert found.different == []


def test_rows_are_what_tensorboard_got(recorded: Trained) -> None:
    """TRL's own TensorBoard files hold the same, in single precision."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (logs,) = {path.parent for path in recorded.directory.rglob("events.out.tfevents*")}
    accumulator = EventAccumulator(str(logs), {"scalars": 0}).Reload()
    rows = {row["step"]: row["values"] for row in rows_of(recorded.run)}
    tags = accumulator.Tags()["scalars"]

    assert len(tags) > 40
    for tag in tags:
        for event in accumulator.Scalars(tag):
            assert rows[event.step][tag] == pytest.approx(event.value, rel=1e-6)  # type: ignore[index]


def test_training_is_not_changed(recorded: Trained, plain: Trained) -> None:
    """The curves are bit-identical with and without us; only seconds differ."""

    def curves(trained: Trained) -> list[dict[str, Any]]:
        return [{k: v for k, v in entry.items() if not k.endswith(_OWN)} for entry in trained.history]

    assert curves(recorded) == curves(plain)
    assert not (plain.directory / "runs" / "p").exists()


def test_phases(recorded: Trained) -> None:
    """What TRL does is under the root of each step; each reward function too."""
    phases = {str(span.attributes.get("rl.phase")) for span in recorded.spans}
    parts = {str(span.attributes.get("rl.phase_part")) for span in recorded.spans}

    assert phases >= {
        *("training_step", "_prepare_inputs", "transformers.generate", "_calculate_rewards", "compute_loss"),
        *("_get_per_token_logps_and_entropies", "backward", "optimizer_step", "evaluate", "save_checkpoint"),
    }
    assert parts >= {"length", "vowels"}


def test_phases_cover_the_steps(recorded: Trained) -> None:
    """At least 95 % of the time of each step is in phases directly below its root, and none is an orphan."""
    ids = {(span.trace_id, span.span_id) for span in recorded.spans}
    roots = [span for span in recorded.spans if span.name == "rl.loop"]

    assert len(roots) == STEPS
    assert [span.name for span in recorded.spans if span.parent_id and (span.trace_id, span.parent_id) not in ids] == []
    for root in roots:
        children = [span for span in recorded.spans if span.parent_id == root.span_id]
        covered = sum(span.end_unix_nano - span.start_unix_nano for span in children)
        assert covered / (root.end_unix_nano - root.start_unix_nano) >= 0.95


def test_the_batch_of_a_step_is_in_the_step(recorded: Trained) -> None:
    """It is the first phase there, though transformers gets it before `on_step_begin`."""
    roots = [span for span in recorded.spans if span.name == "rl.loop"]
    inside = [[s for s in recorded.spans if s.parent_id == root.span_id] for root in roots]
    first = [min(spans, key=lambda span: span.start_unix_nano) for spans in inside]

    assert [span.attributes["rl.phase"] for span in first] == ["get_batch_samples"] * STEPS
    assert sum(s.attributes["rl.phase"] == "get_batch_samples" for spans in inside for s in spans) == STEPS


def test_arguments_are_hyper_parameters(recorded: Trained) -> None:
    """All of GRPOConfig."""
    (params,) = (item for item in items_of(recorded.run) if isinstance(item, Params))

    assert params.values["num_generations"] == 4
    assert params.values["learning_rate"] == 1e-3


def test_tokens(recorded: Trained) -> None:
    """Where the trainer counts tokens, their rate follows."""
    rows = rows_of(recorded.run)
    counted = [entry["num_tokens"] for entry in recorded.history if "num_tokens" in entry]

    assert sum(row["values"]["tokens/step"] for row in rows) == counted[-1]  # type: ignore[index]
    assert all(row["values"]["perf/tokens_per_second"] > 0 for row in rows)  # type: ignore[index]


@needs("opentelemetry.instrumentation")
def test_opentelemetry_instrument(tmp_path: Path, plain: Trained) -> None:
    """The standard command finds the instrumentor by its entry point."""
    launcher = [str(Path(sys.executable).with_name("opentelemetry-instrument"))]
    none = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
    trained = train(tmp_path, *launcher, **none)

    assert len(rows_of(trained.run)) == STEPS
    assert [e["loss"] for e in trained.history if "loss" in e] == [e["loss"] for e in plain.history if "loss" in e]


def test_batches_are_in_their_step(recorded: Trained) -> None:
    """Transformers gets the batches of a step before it says that the step begins."""
    roots = {span.span_id for span in recorded.spans if span.name == "rl.loop"}
    batches = [span.parent_id for span in recorded.spans if span.name == "get_batch_samples"]

    assert sorted(batches) == sorted(roots)


_CALLBACK = f"""
import sys
sys.path.insert(0, {str(Path(_SCRIPT).parent)!r})
import trl_grpo as grpo, otel_rl
from otel_rl.integrations import instrument
from otel_rl.integrations.trl import OtelRlCallback, record
one = grpo.trainer(2)
record(one, project="p", id="line", quiet=True)
one.train()
instrument.uninstrument()
instrument.instrument("transformers")
instrument.instrument("transformers")
two = grpo.trainer(1)
assert sum(isinstance(c, OtelRlCallback) for c in two.callback_handler.callbacks) == 1
instrument.uninstrument()
three = grpo.trainer(1)
assert not any(isinstance(c, OtelRlCallback) for c in three.callback_handler.callbacks)
assert list(instrument.active()) == []
run = otel_rl.init(project="p", id="fails", quiet=True)
def fail(*_, **__):
    raise RuntimeError("no reward")
instrument.instrument()
four = grpo.trainer(2)
four.reward_funcs[0] = fail
try:
    four.train()
except RuntimeError as error:
    print(error)
run.finish(30)
"""


def test_one_line(tmp_path: Path) -> None:
    """`record(trainer)`; instrumenting twice is once, and can be taken back; a step that fails says why."""
    output = run_python(_CALLBACK, tmp_path, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
    failed = [span for span in items_of(tmp_path / "runs" / "p" / "fails") if isinstance(span, Span) and span.error]

    assert output.splitlines()[-1] == "no reward"
    line = tmp_path / "runs" / "p" / "line"
    phases = {item.attributes.get("rl.phase") for item in items_of(line) if isinstance(item, Span)}

    assert [row["step"] for row in rows_of(line)] == [1, 2]
    assert phases >= {"training_step", "transformers.generate", "_calculate_rewards", "optimizer_step"}
    assert {span.name for span in failed} >= {"rl.loop", "training_step", "rl.reward"}
    assert {span.error for span in failed} == {"RuntimeError: no reward"}


_SFT = f"""
import json, sys
sys.path.insert(0, {str(Path(_SCRIPT).parent)!r})
import trl_grpo as grpo
from datasets import Dataset
from transformers import TrainerCallback
from trl import SFTConfig, SFTTrainer
from otel_rl.integrations.trl import record

class Told(TrainerCallback):
    entries = []
    def on_log(self, args, state, control, **kwargs):
        self.entries.append(dict(state.log_history[-1]))

data = Dataset.from_dict({{"text": ["abc", "xyz", "hello", "grpo"] * 8}})
how = dict(use_cpu=True, seed=7, disable_tqdm=True, report_to=[], logging_steps=2, max_length=16)
given = dict(train_dataset=data, eval_dataset=data.select(range(4)), processing_class=grpo.tokenizer())
trainer = SFTTrainer(grpo.model(), SFTConfig("out", max_steps=4, **how), callbacks=[Told()], **given)
record(trainer, project="p", id="sft", hardware=False)
trainer.evaluate()
trainer.train()
trainer.evaluate()
print(json.dumps(Told.entries))
"""


def test_two_trainings_of_a_script_are_two_runs(tmp_path: Path) -> None:
    """The second one begins at step 1 again, so it is a run of its own; TRL's own series of the first one stays."""
    script = str(Path(_SCRIPT).with_name("trl_twice.py"))
    run([sys.executable, "-m", "otel_rl.cli", "run", "--", sys.executable, script], tmp_path, **_TOLD)
    runs = {path.name: [row["step"] for row in rows_of(path)] for path in (tmp_path / "runs" / "p").iterdir()}

    assert runs == {"trl": [1, 2], "trl-2": [1, 2, 3]}


def test_supervised_fine_tuning(tmp_path: Path) -> None:
    """Any trainer on `transformers.Trainer`, recorded once by two ways; evaluations around the training are in its run.

    Steps that it does not log are steps all the same.
    """
    from transformers.integrations.integration_utils import rewrite_logs

    command = [sys.executable, "-m", "otel_rl.cli", "run", "--", sys.executable, "-c", _SFT]
    told = {name: value for name, value in _TOLD.items() if name not in ("OTEL_RL_RUN_ID", "OTEL_RL_PROJECT")}
    entries = json.loads(run(command, tmp_path, **told).splitlines()[-1])
    (directory,) = (tmp_path / "runs" / "p").iterdir()
    rows = rows_of(directory)
    spans = [item for item in items_of(directory) if isinstance(item, Span)]
    roots = {span.span_id: span.attributes["rl.loop.iteration"] for span in spans if span.name == "rl.loop"}

    assert directory.name == "sft"
    assert [entry["step"] for entry in entries if "eval_loss" in entry] == [0, 4]
    assert list(roots.values()) == [1, 2, 3, 4]
    assert [roots[span.parent_id] for span in spans if span.name == "training_step"] == [1, 2, 3, 4]
    assert sum(span.name == "evaluate" for span in spans) == 2
    for entry in entries:
        values = rewrite_logs({name: value for name, value in entry.items() if name != "step"})
        told = {(entry["step"], name): value for name, value in values.items()}
        assert compared(told, rows).different == []


def test_names_in_trls_source() -> None:
    """The dialect has a meaning or a reason for each, those of experimental trainers included."""
    (source,) = find_spec("trl").submodule_search_locations  # type: ignore[union-attr, misc]

    assert drift([source, "--dialect", "trl"]) is None
