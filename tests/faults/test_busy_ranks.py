"""A rank that hangs while another one logs without a pause."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.processes import start

if TYPE_CHECKING:
    from pathlib import Path

TRAINER = """
import json, os, pathlib, sys, time, otel_rl
rank = int(sys.argv[1])
os.environ |= {"OTEL_RL_LOCAL_WORLD_SIZE": "2", "OTEL_RL_IDLE_TIMEOUT": "5"}
run = otel_rl.init(
    id="run", project="p", dir=".", exporters=["jsonl"], rows={"deadline": 1}, hardware=False, quiet=True,
    rank=rank, world_size=2,
)
rows = pathlib.Path("p/run/rows.jsonl")
if rank:
    run.step(0).__enter__()
    run.log({"x": 1.0})
    time.sleep(100)
for n in range(100_000):
    with run.step(n):
        for _ in range(30):
            run.log({"x": 1.0})
    time.sleep(0.001)
    if n % 200 == 0 and rows.exists() and (lines := rows.read_text().splitlines()):
        print(lines[0])
        break
run.finish(0)
"""


@pytest.mark.slow
def test_a_row_leaves_at_the_deadline_though_another_rank_is_busy(tmp_path: Path) -> None:
    """The agent always finds records of rank 0, and yet the row that waits for rank 1 leaves."""
    hung = start([sys.executable, "-c", TRAINER, "1"], tmp_path)
    try:
        busy = start([sys.executable, "-c", TRAINER, "0"], tmp_path)
        output, errors = busy.communicate(timeout=100)
    finally:
        hung.kill()
        hung.communicate()
    row = msgspec.json.decode(output) if output else errors

    assert (row["step"], row["missing_ranks"]) == (0, [1])
