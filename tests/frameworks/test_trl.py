"""TRL's GRPOTrainer, for real, recorded without a line in it."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pytest

import otel_rl
from otel_rl.frameworks.drift import main as drift
from otel_rl.look.insight.samples.read_samples import held_by, read_samples
from tests.frameworks.recorded import EXAMPLES, Recorded, launched, messages_of, only, plain, tokens_of
from tests.frameworks.results import Values, by_step, compared, tensorboard
from tests.processes import run, run_python
from tests.real_parts import needs

pytestmark = pytest.mark.timeout(500)
STEPS = 6
_SCRIPT = "trl_grpo.py"
_OWN = ("step_time", "_runtime", "_per_second")
"""Parts of names of what TRL measures in seconds."""


_TOLD = {
    "HF_HUB_OFFLINE": "1",
    "OTEL_RL_RUN_ID": "trl",
    "OTEL_RL_PROJECT": "p",
    "OTEL_RL_EXPORTERS": "jsonl",
    "OTEL_RL_QUIET": "1",
}


def of_trackers(entries: list[dict[str, Any]]) -> Values:
    """Return entries of TRL's history by step, under the names that its trackers get."""
    from transformers.integrations.integration_utils import rewrite_logs

    return by_step((one["step"], rewrite_logs({n: v for n, v in one.items() if n != "step"})) for one in entries)


class Trained(Recorded):
    """A training, with TRL's own history, in a directory."""

    def __init__(self, place: Path) -> None:
        super().__init__(place / "runs" / "p" / "trl")
        self.place = place
        self.history: list[dict[str, Any]] = json.loads((place / "history.json").read_text())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """With `otel-rl run`."""
    place: Path = tmp_path_factory.mktemp("on")
    launched(place, _SCRIPT, str(STEPS), **_TOLD)
    return Trained(place)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Without us."""
    place: Path = tmp_path_factory.mktemp("off")
    plain(place, _SCRIPT, str(STEPS), **_TOLD)
    return Trained(place)


def test_rows_are_the_trainers_history(recorded: Trained) -> None:
    """Every value that TRL logged is in the row of its step, bit for bit, under the name that trackers get."""
    revision = f"{version('trl')}, transformers {version('transformers')}"
    ran = "GRPO with evaluations and checkpoints, on a CPU; SFT and evaluations around it in another test"
    found = recorded.agrees(of_trackers(recorded.history), "trl", revision, ran)

    assert list(recorded.rows) == found.steps == list(range(1, STEPS + 1))


def test_completions_are_those_of_its_own_table(tmp_path: Path) -> None:
    """With texts allowed, each generation is recorded once: prompts, completions, rewards by name and advantages.

    TRL's evaluations at steps 3 and 4 replace the files of these steps.
    """
    launched(tmp_path, "trl_completions.py", **_TOLD | {"OTEL_RL_CONTENT": "true"})
    run = otel_rl.open_run(tmp_path / "runs" / "p" / "trl")
    held = held_by(run)
    ours = list(read_samples(run, held.names, held.steps))
    files = f"'{tmp_path}/out/completions/*.parquet'"
    theirs = duckdb.sql(f"SELECT step, prompt, completion, length, vowels, advantage FROM {files}").fetchall()

    plain_ours = [
        (one.step, one.prompt, one.completion, one.components["length"], one.components["vowels"], one.advantage)
        for one in ours
    ]
    assert sorted(one for one in plain_ours if one[0] < 3) == sorted(one for one in theirs if one[0] < 3)
    assert {one.step for one in ours} == {1, 2, 3, 4}
    assert all(one.reward == one.components["length"] + one.components["vowels"] for one in ours)


HACK_STEPS = 40


@pytest.fixture(scope="module")
def hacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a training with a tool and a verifier that pays for a phrase ran, with texts allowed."""
    place: Path = tmp_path_factory.mktemp("hacked")
    launched(place, "trl_reward_hack.py", str(HACK_STEPS), **_TOLD | {"OTEL_RL_CONTENT": "true"})
    return place


def conversations(place: Path) -> dict[int, list[tuple[list[dict[str, Any]], list[dict[str, Any]]]]]:
    """Return the prompts and completions in TRL's own table, by the first of the two steps that train on them."""
    files = sorted((place / "out" / "completions").glob("*.parquet"))
    found = (duckdb.sql(f"SELECT step, prompt, completion FROM '{path}'").fetchall() for path in files[::2])
    return {lines[0][0]: [line[1:] for line in lines] for lines in found}


@pytest.mark.slow
def test_tokens_are_those_that_it_trains_on(hacked: Path) -> None:
    """Each trajectory has TRL's token ids, its masks of tools, and both sides' log-probabilities, bit for bit."""
    lines = map(json.loads, (hacked / "batches.jsonl").read_text().splitlines())
    names = ("completion_ids", "tool_mask", "sampling_per_token_logps", "old_per_token_logps")
    theirs = {}
    for line in lines:
        lengths = [sum(mask) for mask in line["completion_mask"]]
        rows = [tuple(line[name][n][:length] for name in names) for n, length in enumerate(lengths)]
        theirs[line["step"]] = sorted(rows)

    assert len(theirs) == HACK_STEPS / 2
    assert all(0 in mask for of_step in theirs.values() for _, mask, *_ in of_step)
    assert tokens_of(hacked / "runs" / "p" / "trl") == theirs


@pytest.mark.slow
def test_texts_of_tokens_are_the_completion(hacked: Path) -> None:
    """One for each token that it trains on; together they are the text, and special tokens around it."""
    own = [
        message
        for of_step in messages_of(hacked / "runs" / "p" / "trl").values()
        for trajectory in of_step
        for message in trajectory
        if message["tokens"] is not None
    ]

    assert own
    for message in own:
        assert len(message["pieces"]) == len(message["tokens"])
        assert message["text"].strip() in "".join(message["pieces"])


def test_messages_are_those_of_its_own_table(hacked: Path) -> None:
    """Authors, texts and calls of tools are those of the conversations that TRL writes into its table."""
    theirs = {
        step: sorted([_message(one) for one in (*prompt, *completion)] for prompt, completion in of_step)
        for step, of_step in conversations(hacked).items()
    }
    ours = {
        step: sorted([[one["author"], one["text"], one["calls"]] for one in own] for own in of_step)
        for step, of_step in messages_of(hacked / "runs" / "p" / "trl").items()
    }

    assert ours == theirs


def _message(message: dict[str, Any]) -> list[Any]:
    calls = message.get("tool_calls")
    return [message["role"], message["content"], json.dumps(calls, separators=(",", ":")) if calls else None]


@pytest.mark.slow
def test_a_reward_hack_is_found(hacked: Path) -> None:
    """`otel-rl samples` alone names the phrase that the verifier pays for, its first step, and samples with it.

    The first step is the one from which on half as many completions have the phrase as at the end.
    """
    samples = [sys.executable, "-m", "otel_rl.cli", "samples", str(hacked / "runs" / "p" / "trl")]
    (phrase,) = json.loads(run(samples, hacked))["phrases"]
    with_it = json.loads(run([*samples, "--contains", phrase["text"].strip(". "), "-n", "3"], hacked))["samples"]
    shares = [
        (step, sum("absolutely certain" in completion[-1]["content"] for _, completion in of_step) / len(of_step))
        for step, of_step in conversations(hacked).items()
    ]

    assert "i am absolutely certain" in phrase["text"]
    assert phrase["component"] == "verifier"
    assert phrase["since"] == next(step for step, share in shares if share >= phrase["share"] / 2)
    assert [one["sample"]["completion"].endswith("I am absolutely certain.") for one in with_it] == [True] * 3


def test_rows_are_what_tensorboard_got(recorded: Trained) -> None:
    """TRL's own TensorBoard files hold the same, in single precision."""
    (logs,) = {path.parent for path in recorded.place.rglob("events.out.tfevents*")}
    found = compared(tensorboard(logs), recorded.rows, single=True)

    assert found.different == []
    assert len(found.names) > 40


def test_training_is_not_changed(recorded: Trained, bare: Trained) -> None:
    """The curves are bit-identical with and without us; only seconds differ."""

    def curves(trained: Trained) -> list[dict[str, Any]]:
        return [{k: v for k, v in entry.items() if not k.endswith(_OWN)} for entry in trained.history]

    assert curves(recorded) == curves(bare)
    assert not (bare.place / "runs" / "p").exists()


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
    """At least 95 % of the time of steps is in phases directly below their roots, and none is an orphan."""
    ids = {(span.trace_id, span.span_id) for span in recorded.spans}

    assert len(recorded.roots) == STEPS
    assert [span.name for span in recorded.spans if span.parent_id and (span.trace_id, span.parent_id) not in ids] == []
    in_steps = sum(root.end_unix_nano - root.start_unix_nano for root in recorded.roots)
    covered = sum(span.end_unix_nano - span.start_unix_nano for spans in recorded.steps.values() for span in spans)
    assert covered / in_steps >= 0.95


def test_the_batch_of_a_step_is_in_the_step(recorded: Trained) -> None:
    """It is the first phase there, though transformers gets it before `on_step_begin`."""
    inside = recorded.steps.values()
    first = [min(spans, key=lambda span: span.start_unix_nano) for spans in inside]
    batches = [span for span in recorded.spans if span.name == "get_batch_samples"]

    assert [span.name for span in first] == ["get_batch_samples"] * STEPS
    assert len(batches) == STEPS


def test_arguments_are_hyper_parameters(recorded: Trained) -> None:
    """All of GRPOConfig."""
    assert recorded.params["num_generations"] == 4
    assert recorded.params["learning_rate"] == 1e-3


def test_tokens(recorded: Trained) -> None:
    """Where the trainer counts tokens, their rate follows."""
    rows = recorded.rows.values()
    counted = [entry["num_tokens"] for entry in recorded.history if "num_tokens" in entry]

    assert sum(row["tokens/step"] for row in rows) == counted[-1]
    assert all(row["perf/tokens_per_second"] > 0 for row in rows)


@needs("opentelemetry.instrumentation")
def test_opentelemetry_instrument(tmp_path: Path, bare: Trained) -> None:
    """The standard command finds the instrumentor by its entry point."""
    launcher = str(Path(sys.executable).with_name("opentelemetry-instrument"))
    none = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
    run([launcher, sys.executable, str(EXAMPLES / _SCRIPT), str(STEPS)], tmp_path, **_TOLD, **none)
    trained = Trained(tmp_path)

    assert len(trained.rows) == STEPS
    assert [e["loss"] for e in trained.history if "loss" in e] == [e["loss"] for e in bare.history if "loss" in e]


_CALLBACK = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import trl_grpo as grpo, otel_rl
from otel_rl.frameworks import instrument
from otel_rl.frameworks.trl import OtelRlCallback, record
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
    output = run_python(_CALLBACK, tmp_path, HF_HUB_OFFLINE="1")
    failed = [span for span in Recorded(tmp_path / "runs" / "p" / "fails").spans if span.error]

    assert output.splitlines()[-1] == "no reward"
    line = Recorded(tmp_path / "runs" / "p" / "line")
    phases = {span.attributes.get("rl.phase") for span in line.spans}

    assert list(line.rows) == [1, 2]
    assert phases >= {"training_step", "transformers.generate", "_calculate_rewards", "optimizer_step"}
    assert {span.name for span in failed} >= {"rl.loop", "training_step", "rl.reward"}
    assert {span.error for span in failed} == {"RuntimeError: no reward"}


_SFT = f"""
import json, sys
sys.path.insert(0, {str(EXAMPLES)!r})
import trl_grpo as grpo
from datasets import Dataset
from transformers import TrainerCallback
from trl import SFTConfig, SFTTrainer
from otel_rl.frameworks.trl import record

class Told(TrainerCallback):
    entries = []
    def on_log(self, args, state, control, logs, **kwargs):
        self.entries.append(dict(state.log_history[-1]))
        logs.update({{name: round(value) for name, value in logs.items()}})  # for a progress bar, as ms-swift
    def on_predict(self, args, state, control, metrics, **kwargs):
        self.entries.append({{"step": state.global_step, **metrics}})

data = Dataset.from_dict({{"text": ["abc", "xyz", "hello", "grpo"] * 8}})
how = dict(use_cpu=True, seed=7, disable_tqdm=True, report_to=[], logging_steps=2, max_length=16)
given = dict(train_dataset=data, eval_dataset=data.select(range(4)), processing_class=grpo.tokenizer())
trainer = SFTTrainer(grpo.model(), SFTConfig("out", max_steps=4, **how), callbacks=[Told()], **given)
record(trainer, project="p", id="sft", hardware=False)
trainer.evaluate()
trainer.train()
trainer.evaluate()
trainer.predict(trainer.eval_dataset)
print(json.dumps(Told.entries))
"""


def test_two_trainings_of_a_script_are_two_runs(tmp_path: Path) -> None:
    """The second one begins at step 1 again, so it is a run of its own; TRL's own series of the first one stays."""
    launched(tmp_path, "trl_twice.py", **_TOLD)
    runs = {path.name: list(Recorded(path).rows) for path in (tmp_path / "runs" / "p").iterdir()}

    assert runs == {"trl": [1, 2], "trl-2": [1, 2, 3]}


def test_supervised_fine_tuning(tmp_path: Path) -> None:
    """Any trainer on `transformers.Trainer`, recorded once by two ways; evaluations around the training are in its run.

    Steps that it does not log are steps all the same. Predictions are recorded, and what a callback makes of the values
    that it gets is not.
    """
    told = {name: value for name, value in _TOLD.items() if name not in ("OTEL_RL_RUN_ID", "OTEL_RL_PROJECT")}
    entries = json.loads(launched(tmp_path, "-c", _SFT, **told).splitlines()[-1])
    recorded = only(tmp_path / "runs" / "p")

    assert recorded.directory.name == "sft"
    assert [entry["step"] for entry in entries if "eval_loss" in entry] == [0, 4]
    assert [entry["step"] for entry in entries if "test_loss" in entry] == [4]
    assert [phases.count("training_step") for phases in recorded.phases.values()] == [1] * 4
    assert list(recorded.phases) == [1, 2, 3, 4]
    assert sum(span.name == "evaluate" for span in recorded.spans) == 2
    assert [compared(of_trackers([entry]), recorded.rows).different for entry in entries] == [[]] * len(entries)


def test_names_in_trls_source() -> None:
    """The dialect has a meaning or a reason for each, those of experimental trainers included."""
    (source,) = find_spec("trl").submodule_search_locations  # type: ignore[union-attr, misc]

    assert drift([source, "--dialect", "trl"]) is None
