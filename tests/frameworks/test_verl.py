"""verl's `Tracking` and `marked_timer`, for real, called as its trainer does; the trainer itself needs GPUs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from otel_rl.export import Params, Span
from tests.processes import items_of, rows_of, run

pytestmark = pytest.mark.timeout(500)
_SCRIPT = str(Path(__file__).with_name("examples") / "verl_loop.py")


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
    (file,) = (path for path in (directory / "own").rglob("*") if path.is_file())
    told = [json.loads(line) for line in file.read_text().splitlines()]
    rows = {row["step"]: row["values"] for row in rows_of(run_dir(directory))}

    assert [line["step"] for line in told] == list(rows) == list(range(11, 16))
    for line in told:
        assert {name: rows[line["step"]][name] for name in line["data"]} == line["data"]  # type: ignore[index]


def test_phases(directory: Path) -> None:
    """Verl's timings are under the root of their step, even those after its own timer of the step."""
    spans = [item for item in items_of(run_dir(directory)) if isinstance(item, Span)]
    roots = {span.span_id: span.attributes["rl.loop.iteration"] for span in spans if span.name == "rl.loop"}
    phases = {n: [str(s.attributes["rl.phase"]) for s in spans if roots.get(s.parent_id) == n] for n in roots.values()}
    timed = ["start_profile", "gen", "reward", "old_log_prob", "adv", "update_actor", "testing"]

    assert phases == dict.fromkeys(range(11, 16), timed)


def test_configuration(directory: Path) -> None:
    """Flattened."""
    (params,) = (item for item in items_of(run_dir(directory)) if isinstance(item, Params))

    assert params.values == {"trainer.total_epochs": 2, "lr": 0.5}


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
