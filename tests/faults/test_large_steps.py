"""Steps with more values or phases than the agent can hold."""

from __future__ import annotations

import time
from array import array
from pathlib import Path

import pytest

import otel_rl
from tests.processes import rows_of

PHASES = 400_000
LISTS = 420
"""Each takes 64 kB of the checkpoint, which has at most 24 MiB."""


@pytest.mark.slow
def test_the_step_is_in_two_rows_and_the_run_goes_on(tmp_path: Path) -> None:
    """The first row has the values from before the checkpoint became too large, a late row has the others."""
    run = otel_rl.init(dir=tmp_path, exporters=["jsonl"], quiet=True)
    log = run.dir / "agent.log"
    with run.step(0):
        for n in range(LISTS):
            run.log({f"list{n}": array("d", range(8_000))})
        deadline = time.monotonic() + 60
        while not log.exists() or "they close now" not in log.read_text():
            assert time.monotonic() < deadline
            run.event("now")  # an item, so that a checkpoint is written
            time.sleep(0.1)
        run.log({"loss": 1.0})
    with run.step(1):
        run.log({"loss": 2.0})

    assert run.finish(60), log.read_text()
    first, late, last = rows_of(run.dir)
    assert (first["values"]["list0/count"], first["values"][f"list{LISTS - 1}/count"]) == (8_000, 8_000)
    assert (late["step"], late["part"], late["values"]["loss"]) == (0, 1, 1.0)
    assert last["values"]["loss"] == 2.0


@pytest.mark.slow
def test_a_step_with_many_phases(tmp_path: Path) -> None:
    """Each of 400,000 phases of one step is counted in its row, and all rows arrive."""
    run = otel_rl.init(dir=tmp_path, exporters=["jsonl"], quiet=True)
    for number in range(20):
        with run.step(number):
            for _ in range(PHASES if number == 5 else 0):
                with run.phase("generate"):
                    pass
            run.log({"loss": number})

    assert run.finish(600), (run.dir / "agent.log").read_text()
    assert [row["step"] for row in rows_of(run.dir)] == [*range(20)]
    found = otel_rl.open_run(run.dir).sql("SELECT count(*) AS n FROM spans WHERE step = 5 AND name <> 'rl.loop'")
    assert found["n"].tolist() == [PHASES]
