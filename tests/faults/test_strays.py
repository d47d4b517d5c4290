"""Values that are logged for other steps than the one that the trainer is in: no step loses the times of its phases."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from tests.collector import free_port, wait_for
from tests.distributed.machines import head
from tests.processes import rows_of, start_python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
STEPS = 20
_SETTINGS = """
import os, sys, threading, time, otel_rl
settings = dict(dir=".", project="p", id="run", head=os.environ["HEAD"] or None, rows={"deadline": 2})
"""
_TRAINER = f"""{_SETTINGS}
run = otel_rl.init(**settings, hardware=False, quiet=True)
print(run.dir, flush=True)
case, done = sys.argv[-1], threading.Event()
if case == "evaluation":
    run.log({{"eval/acc": 0.5}}, step=0)
    time.sleep(3)  # the model is loaded
def sample():
    for n in range({STEPS} * 4):
        run.log({{"sampler/n": 1.0}}, step=n // 4 + 2)
        done.wait(0.03)
sampler = threading.Thread(target=sample)
if case == "thread":
    sampler.start()
for n in range({STEPS}):
    with run.step(n):
        with run.phase("generate"):
            time.sleep(0.1)
        run.log({{"loss": 1.0}})
        if case == "tokens" and n == 10:
            run.log({{"reward": 1.0}}, step=1_000_000)
done.set()
if case == "thread":
    sampler.join()
print(bool(run.finish(90)), flush=True)
"""
_ROLLOUT = f"""{_SETTINGS}
run = otel_rl.init(**settings, role="rollout", hardware=False, quiet=True)
for n in range({STEPS}):
    run.log({{"rollout/n": 1.0}}, step=n + 2)
    time.sleep(0.1)
run.finish(90)
"""


@pytest.mark.parametrize("accident", ["none", "the agent is killed", "two machines"])
@pytest.mark.parametrize("case", ["rollout", "thread", "evaluation", "tokens"])
def test_each_step_has_the_times_of_its_phases(tmp_path: Path, case: str, accident: str) -> None:
    """A rollout process or a thread that is ahead, an evaluation before the first step, tokens in place of a step."""
    nodes = [tmp_path / "node0", tmp_path / ("node1" if accident == "two machines" else "node0")]
    shared = {
        "HEAD": head() if accident == "two machines" else "",
        "OTEL_RL_TOKEN": "a-secret-of-the-tests",
        "WORLD_SIZE": "1",
    }
    for node in nodes:
        node.mkdir(exist_ok=True)
    ports = [str(free_port()) for _ in nodes]
    script = _TRAINER.replace("sys.argv[-1]", repr(case))
    trainer = start_python(script, nodes[0], **shared, RANK="0", OTEL_EXPORTER_PROMETHEUS_PORT=ports[0])
    assert trainer.stdout is not None
    run = nodes[0] / trainer.stdout.readline().strip()
    others = [start_python(_ROLLOUT, nodes[1], **shared, OTEL_EXPORTER_PROMETHEUS_PORT=ports[1])]
    try:
        if accident == "the agent is killed":
            wait_for(lambda: len(rows_of(run)) > 4, "no rows", 60)
            os.kill(agent_start.read_status(directories.at(run)).pid, signal.SIGKILL)
        output, errors = trainer.communicate(timeout=120)
    finally:
        for process in (trainer, *others):
            process.kill()

    assert output.split() == ["True"], errors
    rows = [row for row in rows_of(run) if "loss" in row["values"]]  # type: ignore[operator]
    assert [row["step"] for row in rows] == [*range(STEPS)]
    assert all(row["values"]["time/generate"] >= 0.1 for row in rows)  # type: ignore[index]
    assert [row["step"] for row in rows if row.get("late")] == []
