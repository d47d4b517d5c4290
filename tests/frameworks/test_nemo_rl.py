# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "torch", "numpy", "transformers>=5.5,<5.9", "ray", "mlflow", "swanlab", "wandb", "tensorboard", "rich",
#   "matplotlib", "datasets", "omegaconf", "hydra-core", "torchdata", "tensordict", "accelerate", "requests",
#   "pyzmq", "nvtx", "pillow", "math-verify", "soundfile",
# ]
# ///
"""NeMo-RL's trainers, `Logger` and `Timer` against otel-rl's, from a checkout in `OTEL_RL_SOURCES`.

Its models and engines need GPUs: the mocks of its own tests take their places. All the rest is its own code.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import subprocess
import sys
import typing
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typing_extensions

from otel_rl.frameworks import nemo_rl as ours
from otel_rl.frameworks.charted import flat
from otel_rl.semconv.dialect import dialect
from otel_rl.semconv.phase_categories import is_listed
from tests.docs.snippets import coming_from
from tests.frameworks.recorded import LAUNCHER, Recorded, launched, messages_of, only, plain, tokens_of
from tests.frameworks.results import SOURCES, Compared, Values, by_step, compared, keep, phase_coverage, tensorboard

_RL = SOURCES / "RL"
pytestmark = [pytest.mark.timeout(1200), pytest.mark.skipif(not _RL.is_dir(), reason="no RL in OTEL_RL_SOURCES")]
_TRAINERS = ("grpo_train", "grpo_train_sync", "async_grpo_train", "single_controller")
_RECORDED = [(whose, trainer) for whose in ("theirs", "ours") for trainer in _TRAINERS]


@pytest.fixture(scope="module")
def revision() -> str:
    """The commit of the checkout."""
    command = ["git", "-C", str(_RL), "rev-parse", "--short", "HEAD"]
    return subprocess.check_output(command, text=True).strip()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trainers under `otel-rl run`, with their own classes and then with the imports of the page on migrating."""
    found: Path = tmp_path_factory.mktemp("nemo_rl")
    (found / "snippet.py").write_text(coming_from("NeMo-RL"))
    launched(found, "nemo_rl_trainers.py", PYTHONPATH=str(_RL), OTEL_RL_CONTENT="true")
    return found


def recorded(place: Path, whose: str, trainer: str) -> Recorded:
    """Return the run of a trainer; each is a training of its own."""
    (found,) = ((place / "runs" if whose == "theirs" else place / "ours" / trainer) / "p").glob(f"{trainer}-*")
    return Recorded(found)


def rows(training: Recorded) -> Values:
    """Return the rows by step; not every training has an exporter that writes them to a file."""
    return by_step((row.step, row.values) for row in training.reduced)


def logged(place: Path, whose: str, trainer: str) -> tuple[Values, Values]:
    """Return the numbers that a trainer logged, by step and name, and the lists."""
    numbers, lists = Values(), Values()
    for line in (place / whose / trainer / "logged.jsonl").read_text().splitlines():
        call = json.loads(line)
        for name, value in flat(call["metrics"], call["prefix"] or ""):
            if isinstance(value, (list, int, float)):
                (lists if isinstance(value, list) else numbers).setdefault(call["step"], {})[name] = value
    return numbers, lists


@pytest.mark.parametrize(("whose", "trainer"), _RECORDED)
def test_every_number_is_in_the_row_of_its_step(place: Path, whose: str, trainer: str) -> None:
    """As the trainer gave it to its logger, to the last bit; lists are statistics."""
    numbers, lists = logged(place, whose, trainer)
    found = rows(recorded(place, whose, trainer))

    assert sorted(numbers) == [1, 2, 3]
    assert compared(numbers, found).different == []
    assert all(
        found[step][f"{name}/mean"] == pytest.approx(np.mean(values))
        for step, of_step in lists.items()
        for name, values in of_step.items()
        if values and np.ndim(values) == 1
    )


@pytest.mark.parametrize("trainer", _TRAINERS)
def test_tensorboard_has_the_same_numbers(place: Path, trainer: str) -> None:
    """Those that NeMo-RL's own backend wrote are in the rows of its steps; its file has 32 bits."""
    found = compared(
        tensorboard(place / "theirs" / trainer / "tensorboard"), rows(recorded(place, "theirs", trainer)), single=True
    )

    assert len(found.equal) > 20
    assert found.different == []


@pytest.mark.parametrize(("whose", "trainer"), _RECORDED)
def test_sections_of_timers_are_phases(place: Path, whose: str, trainer: str) -> None:
    """Each label that a trainer logs as a time is a phase of that step, in a goodput category."""
    training = recorded(place, whose, trainer)
    roots = {span.trace_id: span.attributes["rl.loop.iteration"] for span in training.roots}
    phases: dict[object, set[str]] = {step: set() for step in roots.values()}
    for span in training.spans:
        phase, part = span.attributes.get("rl.phase"), span.attributes.get("rl.phase_part")
        if phase is not None and span.trace_id in roots:
            phases[roots[span.trace_id]].add(f"{phase}/{part}" if part else str(phase))
    prefix, rates = "timing/train/", ("total_step_time", "valid_tokens_per_sec_per_gpu")
    labels = {
        step: {name.removeprefix(prefix) for name in of if name.startswith(prefix)} - {*rates, "init/total"}
        for step, of in logged(place, whose, trainer)[0].items()
    }
    known = dialect("nemo_rl").phases
    named = {label.partition("/")[0] for of_step in labels.values() for label in of_step}

    assert {step: phases[step] for step in labels} == labels
    assert [name for name in named if not is_listed(known.get(name, name))] == []


@pytest.mark.parametrize(("whose", "trainer"), _RECORDED)
def test_every_name_is_mapped_or_declared(place: Path, whose: str, trainer: str) -> None:
    """Each name that a trainer logged has a meaning, or a reason to be left as it is."""
    known = dialect("nemo_rl")
    numbers, lists = logged(place, whose, trainer)
    names = {name for of_step in (*numbers.values(), *lists.values()) for name in of_step}

    assert sorted(name for name in names if known.read(name) is None and not known.declares(name)) == []


def test_the_snippet_of_the_page_records(place: Path) -> None:
    """Its own values, logged inside each trainer's module, are in a run of their own."""
    runs = [path.parent for path in (place / "logs").rglob("run.json")]
    logged = [row for path in runs for row in Recorded(path).reduced]

    assert [(row.step, row.values["train/loss"]) for row in logged] == [(10, 0.123)] * 3


def test_files_are_the_same(place: Path) -> None:
    """Files of `log_batched_dict_as_jsonl` have the same bytes with both loggers."""
    assert len(files(place / "theirs")) == 9
    assert files(place / "ours") == files(place / "theirs")


@pytest.mark.parametrize("trainer", ["grpo_train", "async_grpo_train"])
@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_texts_and_tokens_are_those_of_its_own_files(place: Path, whose: str, trainer: str) -> None:
    """Each trajectory of `train_data_step*.jsonl` has its text, ids, mask and log-probabilities, bit for bit."""
    directory = recorded(place, whose, trainer).directory
    for step in (1, 2, 3):
        lines = trained(place / whose / trainer, step)
        texts = [own[-1]["text"] for own in messages_of(directory)[step]]

        assert tokens_of(directory)[step] == sorted(tuple(line[name] for name in _OF_TOKENS) for line in lines)
        assert texts == [line["content"] for line in lines]


_OF_TOKENS = ("token_ids", "token_loss_mask", "generation_logprobs", "prev_logprobs")


def trained(logs: Path, step: int) -> list[dict[str, Any]]:
    """Return the lines of a step in NeMo-RL's own file, which has a list of one for each value."""
    lines = map(json.loads, (logs / f"train_data_step{step}.jsonl").read_text().splitlines())
    return [{name: value[0] for name, value in line.items() if name != "idx"} for line in lines]


_TURNS = """if True:
    import torch
    from nemo_rl.algorithms.grpo import add_grpo_token_loss_masks_and_generation_logprobs
    from nemo_rl.data.llm_message_utils import batched_message_log_to_flat_message
    from nemo_rl.utils.logger import Logger

    def message(role, content, *tokens):
        logprobs = {"generation_logprobs": -torch.tensor(tokens) / 7} if role == "assistant" else {}
        return {"role": role, "content": content, "token_ids": torch.tensor(tokens)} | logprobs

    short = [message("user", "2 + 2?", 1, 2), message("assistant", "4", 3), message("environment", "right", 4, 5)]
    long = [message("system", "Add.", 6), message("user", "3 + 3?", 7), message("assistant", "add(3, 3)", 8, 9)]
    long += [message("environment", "6", 1), message("assistant", "It is 6.", 2, 3, 4), message("environment", "", 5)]
    add_grpo_token_loss_masks_and_generation_logprobs([short, long])
    flat, lengths = batched_message_log_to_flat_message([short, long], pad_value_dict={"token_ids": 0})
    lists = {name: flat[name].tolist() for name in ("token_ids", "token_loss_mask", "generation_logprobs")}
    lists |= {"content": flat["content"], "input_lengths": lengths.tolist(), "rewards": [0.0, 1.0]}
    lists |= {"sample_loss_mask": [1.0, 1.0], "advantages": [[-1.0] * 9, [1.0] * 9]}
    lists["prev_logprobs"] = (flat["generation_logprobs"] / 2).tolist()
    off = dict.fromkeys(("wandb_enabled", "swanlab_enabled", "mlflow_enabled", "tensorboard_enabled"), False)
    logger = Logger({**off, "monitor_gpus": False, "log_dir": "logs", "wandb": {"project": "p", "name": "n"}})
    logger.log_metrics({"loss": 0.5}, 3, "train")
    logger.log_batched_dict_as_jsonl(lists, "train_data_step3.jsonl")
    logger.finish()
"""


def test_turns_of_a_trajectory(tmp_path: Path) -> None:
    """NeMo-RL's own mask separates messages of the policy from those of the environment, each with its tokens."""
    launched(tmp_path, "-c", _TYPED_DICTS + _TURNS, PYTHONPATH=str(_RL), OTEL_RL_CONTENT="true")
    (of_step,) = messages_of(only(tmp_path / "runs" / "p").directory).values()
    short, long = sorted(of_step, key=len)

    assert [(one["author"], one["text"]) for one in short] == [
        ("user", "2 + 2?"),
        ("assistant", "4"),
        ("tool", "right"),
    ]
    assert [(one["author"], one["text"]) for one in long] == [
        ("user", "Add.\n3 + 3?"),
        ("assistant", "add(3, 3)"),
        ("tool", "6"),
        ("assistant", "It is 6."),
        ("tool", ""),
    ]
    assert [list(one["tokens"]) for one in long[1:]] == [[8, 9], [1], [2, 3, 4], [5]]


def test_results(place: Path, revision: str) -> None:
    """Of all trainings together, nothing is different."""
    found, covered = Compared([], []), []
    for number, (whose, trainer) in enumerate(_RECORDED):
        training = recorded(place, whose, trainer)
        part = compared(logged(place, whose, trainer)[0], rows(training))
        for of_all, of_part in zip(found, part, strict=True):
            of_all += [(1000 * number + step, name) for step, name in of_part]
        covered.append(phase_coverage(training.spans) or 0.0)
    ran = "grpo_train, grpo_train_sync, async_grpo_train and the train pump of SingleController, each with NeMo-RL's "
    ran += (
        "Logger and Timer under `otel-rl run`, and with otel-rl's; models and engines are the mocks of its own tests; "
    )
    ran += "figures are counted, not recorded; between its timers NeMo-RL prints, draws and writes files"
    keep("nemo_rl", revision, ran, found, float(np.mean(covered)))

    assert found.different == []


_TYPED_DICTS = """if True:
    import sys, typing, typing_extensions
    if sys.version_info < (3, 12):
        typing.TypedDict = typing_extensions.TypedDict  # as above
"""
_WORKERS_OF_THEIR_OWN = """if True:
    import ray
    from nemo_rl.distributed.ray_actor_environment_registry import get_actor_python_env
    from nemo_rl.distributed.worker_groups import create_local_venv_on_each_node
    ray.init(num_cpus=1, include_dashboard=False, logging_level="error")
    for worker in ("nemo_rl.models.generation.vllm.vllm_worker.VllmGenerationWorker", "recorded", "recorded"):
        name = worker.rpartition(".")[2]
        print(create_local_venv_on_each_node(get_actor_python_env(worker) if "." in worker else "uv run", name))
"""


def test_it_says_what_workers_lack(tmp_path: Path) -> None:
    """One line says how workers are recorded, and one names each of NeMo-RL's environments that lacks otel-rl."""
    for name in ("VllmGenerationWorker", "recorded"):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / name)], check=True)
    (packages,) = (tmp_path / "recorded").glob("lib/python*/site-packages")
    (packages / "otel_rl-0.dist-info").mkdir()
    script = f"{_TYPED_DICTS}{_WORKERS_OF_THEIR_OWN}"
    told = {"PYTHONPATH": str(_RL), "NEMO_RL_VENV_DIR": str(tmp_path), "RAY_raylet_start_wait_time_s": "300"}
    environment = os.environ | told
    command = [*LAUNCHER, "--", sys.executable, "-c", script]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    python = tmp_path / "VllmGenerationWorker" / "bin" / "python"

    assert ended.stdout.splitlines()[0] == str(python)
    assert ended.stderr.count("only if its class has @otel_rl.frameworks.ray.traced_actor(role=...)") == 1
    (line,) = [line for line in ended.stderr.splitlines() if "lacks otel-rl" in line]
    assert line.endswith(
        "NeMo-RL: VllmGenerationWorker cannot be recorded, because its environment lacks otel-rl; "
        f"install it: uv pip install -p {python} otel-rl"
    )


_LOGGER_ALONE = f"""{_TYPED_DICTS}
from nemo_rl.utils.timer import Timer
from otel_rl.frameworks.nemo_rl import Logger

def train():
    timer, logger = Timer(), Logger({{"log_dir": "logs", "wandb": {{"project": "p", "name": "alone"}}}})
    for total_steps in range(2):
        with timer.time("total_step_time"), timer.time("policy_training"):
            loss = 1 / (total_steps + 1)
        logger.log_metrics({{"loss": loss}}, total_steps + 1, prefix="train")
    logger.finish()

train()
"""


def test_the_logger_alone(tmp_path: Path) -> None:
    """With otel-rl's logger, without its timer, backends and launcher, there are rows, steps and phases."""
    plain(tmp_path, "-c", _LOGGER_ALONE, PYTHONPATH=str(_RL))
    training = only(tmp_path / "logs" / "p")

    assert training.rows == {1: {**training.rows[1], "train/loss": 1.0}, 2: {**training.rows[2], "train/loss": 0.5}}
    assert training.phases == {1: ["policy_training"], 2: ["policy_training"]}


@pytest.fixture(scope="module")
def their_timer() -> Any:
    """The module of NeMo-RL's timers, which needs nothing but NumPy."""
    spec = spec_from_file_location("their_timer", _RL / "nemo_rl" / "utils" / "timer.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outcome(call: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[str, str]:
    """Return what a call returns or raises."""
    try:
        return "returned", repr(call(*args, **kwargs))
    except Exception as error:
        return type(error).__name__, str(error)


def random_timer_call(chance: random.Random) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Return a method of `Timer` with arguments, as trainers give them and as they should not."""
    label, other = chance.choices(["a", "b", "idle/c", "total_step_time", ""], k=2)
    operation = chance.choice([*ours._REDUCTIONS, "mode"])
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("start", (label,), {}),
        ("start", (), {"label": label, "should_log": False}),
        ("stop", (label,), {}),
        ("stop", (label, False), {}),
        ("record", (label, chance.random()), {}),
        ("mark", (label,), {}),
        ("mark", (label,), {"metadata": {"worker": 3}}),
        ("get_markers", (), {}),
        ("get_markers", (label,), {}),
        ("get_elapsed", (label,), {}),
        ("get_latest_elapsed", (label,), {}),
        ("reduce", (label,), {}),
        ("reduce", (label, operation), {}),
        ("get_timing_metrics", (operation,), {}),
        ("get_timing_metrics", (), {"reduction_op": {other: operation, label: "sum"}}),
    ]
    return chance.choice([*calls * 3, ("reset", (label,), {}), ("reset", (), {})])


@pytest.mark.parametrize("kind", ["Timer", "ThreadSafeTimer"])
@pytest.mark.parametrize("seed", range(20))
def test_timers_are_the_same(kind: str, seed: int, their_timer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random calls of all methods return the same, or raise the same with the same message."""
    chance, now = random.Random(seed), [0.0]
    clock = SimpleNamespace(perf_counter=lambda: now[0], time=lambda: 1e9 + now[0])
    monkeypatch.setattr(their_timer, "time", clock)
    monkeypatch.setattr(ours, "time", clock)
    theirs, timer = [getattr(module, kind)(context={"rank": 3}) for module in (their_timer, ours)]
    called = {"time"}
    for _ in range(400):
        now[0] += chance.random()
        method, args, kwargs = random_timer_call(chance)
        called.add(method)
        assert outcome(getattr(timer, method), *args, **kwargs) == outcome(getattr(theirs, method), *args, **kwargs)
        assert timer._timers == theirs._timers  # which trainers read
    with timer.time("d"), theirs.time("d", should_log=False):
        now[0] += 0.5
    assert timer.get_elapsed("d") == theirs.get_elapsed("d") == [0.5]
    assert called >= {name for name in dir(theirs) if name[0] != "_"}


def test_the_logger_has_all_methods() -> None:
    """Each public method of NeMo-RL's `Logger` is there, so that a trainer finds what it calls."""
    if sys.version_info < (3, 12):
        typing.TypedDict = typing_extensions.TypedDict  # type: ignore[assignment] # pydantic needs it
    sys.path.append(str(_RL))
    theirs = importlib.import_module("nemo_rl.utils.logger").Logger
    logger = object.__new__(ours.Logger)

    assert [name for name in dir(theirs) if name[0] != "_" and not callable(getattr(logger, name))] == []


def files(place: Path) -> dict[Path, bytes]:
    """Return the JSON lines files below a directory."""
    return {
        path.relative_to(place): path.read_bytes() for path in place.rglob("*.jsonl") if path.name != "logged.jsonl"
    }
