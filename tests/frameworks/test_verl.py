"""verl's PPO trainer, for real: its loop, metrics, timers and tracking, with stand-ins for GPU workers."""

from __future__ import annotations

import json
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

from otel_rl.frameworks.drift import main as drift
from tests.frameworks.recorded import Recorded, launched, messages_of, only, tokens_of, told_by
from tests.frameworks.results import by_step

pytestmark = pytest.mark.timeout(500)
_VERL = ("--instrument", "verl")
_NAMED = {"OTEL_RL_RUN_ID": "states", "OTEL_RL_PROJECT": "p", "OTEL_RL_NAME": "ppo"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training under `otel-rl run`, with verl's own file backend."""
    place: Path = tmp_path_factory.mktemp("verl")
    launched(place, "verl_ppo.py", options=_VERL, OTEL_RL_RUN_ID="verl", VERL_FILE_LOGGER_ROOT="own")
    return place


@pytest.fixture
def recorded(directory: Path) -> Recorded:
    """The run; there is one."""
    return only(directory / "runs" / "p")


def test_rows_are_what_verl_logged(directory: Path, recorded: Recorded) -> None:
    """At verl's steps, number by number, as its own file has them."""
    lines = map(json.loads, (directory / "own" / "p" / "ppo.jsonl").read_text().splitlines())
    wrote = by_step((line["step"], line["data"]) for line in lines)
    ran = "RayPPOTrainer.fit, GRPO, 4 steps, GPU workers replaced"
    found = recorded.agrees(wrote, "verl", metadata.version("verl"), ran)

    assert found.steps == [1, 2, 3, 4]
    assert {"actor/pg_loss", "critic/advantages/mean", "timing_s/step", "rollout_corr/kl"} < found.names


def test_phases(recorded: Recorded) -> None:
    """Verl's timings are under the root of their step, also those before and after its own timer of the step."""
    timed = ["gen", "reward", "old_log_prob", "ref", "adv", "update_actor", "update_weights"]
    plain, tested = (["start_profile", *timed, *more, "stop_profile"] for more in ([], ["testing"]))

    assert recorded.phases == {1: plain, 2: tested, 3: plain, 4: tested}


@pytest.fixture(scope="module")
def with_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training with texts allowed, and verl's own dump of rollouts."""
    place: Path = tmp_path_factory.mktemp("texts")
    launched(place, "verl_ppo.py", "texts", options=_VERL, OTEL_RL_RUN_ID="verl", OTEL_RL_CONTENT="true")
    return place


def test_texts_are_those_of_its_own_dump(with_texts: Path) -> None:
    """Prompts and responses of each step, in which what the policy wrote and what tools answered are messages."""
    lines = [json.loads(line) for path in (with_texts / "own" / "rollouts").iterdir() for line in path.open()]
    ours = [
        (step, prompt["text"], "".join(message["text"] for message in written), [one["author"] for one in written])
        for step, of_step in messages_of(only(with_texts / "runs" / "p").directory).items()
        for prompt, *written in of_step
    ]

    assert sorted(one[:3] for one in ours) == sorted((one["step"], one["input"], one["output"]) for one in lines)
    assert ["assistant", "tool", "assistant"] in [one[3] for one in ours]


def test_texts_are_off_by_default(recorded: Recorded) -> None:
    """Without `OTEL_RL_CONTENT`, no message is kept."""
    assert messages_of(recorded.directory) == {}


def test_tokens_are_those_that_it_trains_on(with_texts: Path) -> None:
    """Token ids, the response mask, and the log-probabilities of the rollout and the trainer, bit for bit."""
    theirs = {}
    for batch in map(json.loads, (with_texts / "batches.jsonl").read_text().splitlines()):
        names = ("responses", "response_mask", "rollout_log_probs", "old_log_probs")
        lengths = [sum(attention[4:]) for attention in batch["attention_mask"]]
        theirs[batch["step"]] = sorted(tuple(batch[name][n][:of] for name in names) for n, of in enumerate(lengths))

    assert tokens_of(only(with_texts / "runs" / "p").directory) == theirs


_DUMP = """if True:
    from types import SimpleNamespace
    import otel_rl
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    PPOTrainer.__abstractmethods__ = frozenset()
    trainer = object.__new__(PPOTrainer)
    trainer.config = SimpleNamespace(trainer=SimpleNamespace(rollout_data_dir="own"))
    trainer.global_steps = 3
    trainer._init_dump_executor()
    run = otel_rl.init(project="p", quiet=True)
    with run.step(3):
        trainer._dump_generations(["q", "q"], ["a", "b"], [None] * 2, [1.0, 0.5], {"uid": ["u", "v"]}, dump_path="own")
        trainer._dump_generations(["q"], ["c"], [None], [0.0], {}, dump_path="validation")
    trainer._shutdown_dump_executor()
    run.finish()
"""


def test_dumps_of_the_trainer_with_a_queue(tmp_path: Path) -> None:
    """Texts and scores of its dump of rollouts are recorded; those of its validation are not."""
    launched(tmp_path, "-c", _DUMP, options=_VERL, OTEL_RL_CONTENT="true")
    directory = only(tmp_path / "runs" / "p").directory
    lines = map(json.loads, (tmp_path / "own" / "3.jsonl").read_text().splitlines())

    assert [own[-1]["text"] for own in messages_of(directory)[3]] == [line["output"] for line in lines] == ["a", "b"]


def test_configuration(recorded: Recorded) -> None:
    """Flattened."""
    params = recorded.params

    assert (params["trainer.total_epochs"], params["algorithm.adv_estimator"]) == (1, "grpo")


def test_a_tracker_that_is_not_finished(tmp_path: Path) -> None:
    """It ends with the interpreter, without a traceback. One line says what a trainer without timers lacks."""
    script = """if True:
    from verl.utils.tracking import Tracking
    tracking = Tracking("p", "ppo", "console", {})
    tracking.log(data={"actor/pg_loss": 1.0}, step=1)
    tracking.log(data={"actor/pg_loss": 1.0}, step=2)
    tracking.log(data={"actor/pg_loss": 1.0}, step=3)
    """
    told = told_by(tmp_path, "-c", script, options=_VERL)

    assert "Traceback" not in told
    assert told.count("has no timers") == 1
    assert [row["actor/pg_loss"] for row in only(tmp_path / "runs" / "p").rows.values()] == [1.0] * 3


_ELSEWHERE = """if True:
    import ray, verl
    from ray.cluster_utils import Cluster
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for passed in ({}, {"OTEL_RL_INSTRUMENT": "verl"}):
        print("connecting", file=sys.stderr)
        ray.init(address=cluster.address, runtime_env={"env_vars": passed}, logging_level="error")
        ray.shutdown()
    cluster.shutdown()
    """


def test_a_cluster_that_runs_already(tmp_path: Path) -> None:
    """One line says which variables verl's trainer needs, unless the driver passes them."""
    _, without, passed = told_by(tmp_path, "-c", f"import sys\n{_ELSEWHERE}").split("connecting")

    assert without.count("verl trains in a Ray actor, and this Ray cluster was running already") == 1
    assert "Ray actor" not in passed


def test_states_that_are_not_recorded(tmp_path: Path) -> None:
    """One line says which variables workers need to join the run, unless all of them are set."""
    script = """if True:
    import verl.trainer.ppo.ray_trainer
    from verl.utils.tracking import Tracking
    Tracking("p", "ppo", "console", {}).finish()
    """
    told = [told_by(tmp_path, "-c", script, options=_VERL, **named) for named in ({}, _NAMED)]

    assert [lines.count("states of workers and inference servers are not recorded") for lines in told] == [1, 0]


def test_names_in_verls_source() -> None:
    """The dialect has a meaning or a reason for each."""
    (source,) = find_spec("verl").submodule_search_locations  # type: ignore[union-attr, misc]

    assert drift([source, "--dialect", "verl"]) is None


_WORKERS = """
import asyncio, subprocess, sys
from types import SimpleNamespace
from verl.utils.profiler.profile import DistProfiler
from verl.utils.tracking import RLInsightLogger, Tracking

class Worker:
    profiler = SimpleNamespace(rank=3, check_enable=lambda: False)
    @DistProfiler.annotate(color="red", role="actor_update")
    def update(self):
        return "updated"

async def generate():
    with RLInsightLogger.trace_state("vllm_generate", state_lane_id="replica_1"):
        await asyncio.sleep(0.01)

async def generate_two():
    await asyncio.gather(generate(), generate())

what = sys.argv[1] if len(sys.argv) > 1 else "driver"
if what == "worker":
    assert Worker().update() == "updated"
elif what == "server":
    asyncio.run(generate_two())
else:
    logger = Tracking("p", "ppo", "console", {})
    for name in ("worker", "server"):
        subprocess.run([sys.executable, __file__, name], check=True)
    logger.log(data={"loss": 1.0}, step=1)
    logger.finish()
"""


def test_states_of_workers(tmp_path: Path) -> None:
    """Reports of workers and inference servers to RL-Insight are spans of their roles, with their lanes."""
    script = tmp_path / "states.py"
    script.write_text(_WORKERS)
    launched(tmp_path, str(script), options=_VERL, **_NAMED)
    recorded = only(tmp_path / "runs" / "p")  # the trainer's and the workers'
    found = [(span.name, span.attributes["rl.role"], span.attributes["verl.lane"]) for span in recorded.spans]

    assert [row["loss"] for row in recorded.rows.values()] == [1.0]
    assert sorted(found) == [
        ("actor_update", "worker", "rank_3"),
        ("vllm_generate", "rollout", "replica_1"),
        ("vllm_generate", "rollout", "replica_1"),
    ]
