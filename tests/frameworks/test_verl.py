"""verl's PPO trainer, for real: its loop, metrics, timers and tracking, with stand-ins for GPU workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

from otel_rl.export import Params, Span
from otel_rl.semconv.drift import main as drift
from otel_rl.semconv.drift import sorted_out
from tests.frameworks.results import compared, keep, phase_coverage
from tests.processes import items_of, rows_of, run

pytestmark = pytest.mark.timeout(500)
_SCRIPT = str(Path(__file__).with_name("examples") / "verl_ppo.py")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training under `otel-rl run`, with verl's own file backend."""
    place: Path = tmp_path_factory.mktemp("verl")
    told = {"OTEL_RL_RUN_ID": "verl", "OTEL_RL_HARDWARE": "false", "VERL_FILE_LOGGER_ROOT": "own"}
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--instrument", "verl", "--", sys.executable, _SCRIPT]
    run(command, place, **told)
    return place


def run_dir(directory: Path) -> Path:
    (found,) = (directory / "runs" / "p").iterdir()
    return found


def test_rows_are_what_verl_logged(directory: Path) -> None:
    """At verl's steps, number by number, as its own file has them."""
    lines = [json.loads(line) for line in (directory / "own" / "p" / "ppo.jsonl").read_text().splitlines()]
    wrote = {(line["step"], name): value for line in lines for name, value in line["data"].items()}
    found = compared(wrote, rows_of(run_dir(directory)))
    ran = "RayPPOTrainer.fit, GRPO, 4 steps, GPU workers replaced"
    keep("verl", metadata.version("verl"), ran, found, phase_coverage(run_dir(directory)))

    assert found.different == []
    assert found.steps == [1, 2, 3, 4]
    assert {"actor/pg_loss", "critic/advantages/mean", "timing_s/step", "rollout_corr/kl"} < found.names
    assert sorted_out(found.names, "verl").unknown == []


def test_phases(directory: Path) -> None:
    """Verl's timings are under the root of their step, also those before and after its own timer of the step."""
    spans = [item for item in items_of(run_dir(directory)) if isinstance(item, Span)]
    roots = {span.span_id: span.attributes["rl.loop.iteration"] for span in spans if span.name == "rl.loop"}
    phases = {n: [str(s.attributes["rl.phase"]) for s in spans if roots.get(s.parent_id) == n] for n in roots.values()}
    timed = ["gen", "reward", "old_log_prob", "ref", "adv", "update_actor", "update_weights"]

    assert list(phases) == [1, 2, 3, 4]
    assert phases[1] == phases[3] == ["start_profile", *timed, "stop_profile"]
    assert phases[2] == phases[4] == ["start_profile", *timed, "testing", "stop_profile"]


def test_configuration(directory: Path) -> None:
    """Flattened."""
    (params,) = (item for item in items_of(run_dir(directory)) if isinstance(item, Params))

    assert (params.values["trainer.total_epochs"], params.values["algorithm.adv_estimator"]) == (1, "grpo")


def test_a_tracker_that_is_not_finished(tmp_path: Path) -> None:
    """It ends with the interpreter, without a traceback. One line says what a trainer without timers lacks."""
    script = """if True:
    from verl.utils.tracking import Tracking
    tracking = Tracking("p", "ppo", "console", {})
    tracking.log(data={"actor/pg_loss": 1.0}, step=1)
    tracking.log(data={"actor/pg_loss": 1.0}, step=2)
    tracking.log(data={"actor/pg_loss": 1.0}, step=3)
    """
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--instrument", "verl", "--", sys.executable, "-c", script]
    environment = os.environ | {"OTEL_RL_HARDWARE": "false"}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    (directory,) = (tmp_path / "runs" / "p").iterdir()

    assert "Traceback" not in ended.stderr
    assert ended.stderr.count("has no timers") == 1
    assert [row["values"]["actor/pg_loss"] for row in rows_of(directory)] == [1.0] * 3  # type: ignore[index]


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
    script = f"import sys\n{_ELSEWHERE}"
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--", sys.executable, "-c", script]
    ended = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=True)
    _, without, passed = ended.stderr.split("connecting")

    assert without.count("verl trains in a Ray actor, and this Ray cluster was running already") == 1
    assert "Ray actor" not in passed


def test_states_that_are_not_recorded(tmp_path: Path) -> None:
    """One line says which variables workers need to join the run, unless all of them are set."""
    script = """if True:
    import verl.trainer.ppo.ray_trainer
    from verl.utils.tracking import Tracking
    Tracking("p", "ppo", "console", {}).finish()
    """
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--instrument", "verl", "--", sys.executable, "-c", script]
    identified = {"OTEL_RL_RUN_ID": "r", "OTEL_RL_PROJECT": "p", "OTEL_RL_NAME": "ppo"}
    counts = []
    for told in ({}, identified):
        environment = os.environ | {"OTEL_RL_HARDWARE": "false"} | told
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        counts.append(ended.stderr.count("states of workers and inference servers are not recorded"))

    assert counts == [1, 0]


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
    told = {"OTEL_RL_RUN_ID": "states", "OTEL_RL_PROJECT": "p", "OTEL_RL_NAME": "ppo", "OTEL_RL_HARDWARE": "false"}
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--instrument", "verl", "--", sys.executable, str(script)]
    run(command, tmp_path, **told)
    (directory,) = (tmp_path / "runs" / "p").iterdir()  # the trainer's and the workers'
    spans = [item for item in items_of(directory) if isinstance(item, Span)]

    assert [row["values"]["loss"] for row in rows_of(directory)] == [1.0]  # type: ignore[index]
    assert sorted((span.name, span.attributes["rl.role"], span.attributes["verl.lane"]) for span in spans) == [
        ("actor_update", "worker", "rank_3"),
        ("vllm_generate", "rollout", "replica_1"),
        ("vllm_generate", "rollout", "replica_1"),
    ]
