"""An asynchronous training with rollout workers, recorded in processes of their own."""

from __future__ import annotations

from pathlib import Path

import otel_rl
from otel_rl.look.insight import facts_of
from otel_rl.recorder.archive.now import read_now
from tests.collector import wait_for
from tests.look.recorded import Shape, record
from tests.processes import start_python

_PLACE = 'dict(project="p", id="async", dir="runs", hardware=False, quiet=True)'
_WORKER = f"""
import sys, time, otel_rl
run = otel_rl.init(role="rollout", rank={{rank}}, world_size=2, **{_PLACE})
for n in range({{count}}):
    with run.trajectory(policy_version=1):
        time.sleep(0.001)
run.finish()
"""
_TRAINER = f"""
import time, otel_rl
run = otel_rl.init(**{_PLACE})
for step in range(8):
    with run.step(step):
        with run.phase("wait_for_rollouts"):
            time.sleep(0.02)
        with run.phase("update_actor"):
            time.sleep(0.01)
        run.trained([{{{{"policy_version": max(0, step - 3), "tokens": 5}}}}], policy_version=step)
assert run.finish()
"""


def test_a_worker_that_gets_no_work(tmp_path: Path) -> None:
    """Its name follows that of the busiest one; the trainer's shares are without the workers, and staleness is read."""
    scripts = [_TRAINER.format(), _WORKER.format(rank=0, count=80), _WORKER.format(rank=1, count=4)]
    processes = [start_python(script, tmp_path, OTEL_RL_IDLE_TIMEOUT="1") for script in scripts]
    errors = [process.communicate()[1] for process in processes]
    run = tmp_path / "runs" / "p" / "async"
    wait_for(lambda: bool(now := read_now(run)) and now[0].state == "ended", "the agent did not end", 100)
    facts = facts_of(otel_rl.open_run(run))
    sentences = {finding.kind: finding.sentence for finding in facts.findings}

    assert [process.returncode for process in processes] == [0, 0, 0], errors
    assert sentences["engines"] == "Rollout 0 generated 80 trajectories, rollout 1 4: routing."
    assert sentences["data"].startswith("Samples were 2.25 policy versions old.")
    assert {share.name: share.category for share in facts.shares if share.name} == {
        "wait_for_rollouts": "waiting",
        "update_actor": "training",
    }
    assert (facts.summary.state, facts.summary.ranks) == ("finished", 1)


def test_a_worker_that_works_while_the_others_do_not(tmp_path: Path) -> None:
    """Of workers without trajectories, the time of their phases is compared."""
    facts = facts_of(otel_rl.open_run(record(tmp_path / "run", Shape(steps=20, workers=3))))
    (sentence,) = (finding.sentence for finding in facts.findings if finding.kind == "engines")

    assert sentence == "Rollout 0 worked for 100 % of the time of steps, the other 2 for 33 %."
