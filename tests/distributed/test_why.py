"""Why steps of a real training took their time: ranks, workers and an engine, with delays in 20 steps."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import otel_rl
from otel_rl.look.insight.span_work import SpanWork
from otel_rl.look.insight.why.conclude import explained_steps
from tests.collector import free_port
from tests.distributed.why_pipeline import PLANTED
from tests.processes import start
from tests.real_parts import needs

pytestmark = [needs("torch"), pytest.mark.timeout(400), pytest.mark.slow]
EXPECTED = {
    **{phase: SpanWork("phase", phase) for phase in ("reward", "update_actor", "sync_weights")},
    "tool": SpanWork("tool", "pytest"),
    "verifier": SpanWork("verifier", "grader"),
    "engine": SpanWork("request", "llm_request"),
    "outside": SpanWork("none", ""),
}
_RIGHT = 19


def test_the_causes_of_delays(tmp_path: Path) -> None:
    """At least 19 of 20 are named first, and the parts of each step add up to its time."""
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared |= {"OTEL_RL_RUN_ID": "run-7", "HEAD": f"127.0.0.1:{free_port()}"}
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-m", "tests.distributed.why_pipeline"]
    ranks = [
        start([*command, rank], tmp_path, **shared, RANK=rank, LOCAL_RANK=rank, PYTHONPATH=root) for rank in ("0", "1")
    ]
    ended = [rank.communicate(timeout=300) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], ended
    told = json.loads(ended[0][0].splitlines()[-1])
    run = otel_rl.open_run(tmp_path / told["dir"])
    wrong = {}
    for step, where in PLANTED.items():
        found = explained_steps(run, (step, step))
        assert sum(part.seconds for part in found.parts) == pytest.approx(found.seconds, rel=1e-6)
        if (found.parts[0].kind, found.parts[0].name) != EXPECTED[where]:
            wrong[step] = (where, found.sentences)

    assert len(PLANTED) - len(wrong) >= _RIGHT, wrong
