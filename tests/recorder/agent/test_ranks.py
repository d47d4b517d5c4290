"""Several ranks on one machine: one agent, one endpoint, one row and one trace for each step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_rl.export import Span
from tests.processes import items_of, rows_of, start_python

RANK = """
import json, os, pathlib, time, otel_rl
rank = int(os.environ["RANK"])
run = otel_rl.init(dir="runs", project="ranks", quiet=True, reduce={"tokens": "sum", "time/*": "max"})
pathlib.Path(f"ready{rank}").touch()
while not (pathlib.Path("ready0").exists() and pathlib.Path("ready1").exists()): time.sleep(0.01)
for n in range(20):
    with run.step(n), run.phase("generate"):
        time.sleep(0.002 * (1 + rank))
        run.log({"loss": float(rank), "tokens": 10, f"only/{rank}": 1.0})
print(json.dumps([run.prometheus, bool(run.finish(30))]))
"""


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of two ranks that has finished."""
    tmp_path = tmp_path_factory.mktemp("ranks")
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "OTEL_RL_RUN_ID": "two"}
    ranks = [start_python(RANK, tmp_path, RANK=str(rank), **common) for rank in range(2)]
    said = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    endpoints, finished = zip(*[json.loads(out) for out, _ in said], strict=True)
    assert finished == (True, True)
    assert endpoints[0] == endpoints[1]
    return tmp_path / "runs" / "ranks" / "two"


def test_each_step_is_one_row_of_both_ranks(run_dir: Path) -> None:
    """Values are reduced as asked for: a mean, a sum; each rank may have names of its own."""
    rows = rows_of(run_dir)

    assert [row["step"] for row in rows] == list(range(20))
    for row in rows:
        values: dict[str, float] = row["values"]  # type: ignore[assignment]
        assert (values["loss"], values["tokens"], values["only/0"], values["only/1"]) == (0.5, 20, 1.0, 1.0)
        assert values["time/generate"] >= 0.004  # the slower rank's
        assert "missing_ranks" not in row


def test_each_step_is_one_trace_of_both_ranks(run_dir: Path) -> None:
    """One root for both ranks, and a phase of each below it, without a word between them."""
    spans = [item for item in items_of(run_dir) if isinstance(item, Span)]
    roots = {span.trace_id: span for span in spans if span.name == "rl.loop"}

    assert len(roots) == 20
    for root in roots.values():
        children = [span for span in spans if span.trace_id == root.trace_id and span.name == "rl.sample"]
        assert {span.attributes["rl.rank"] for span in children} == {0, 1}
        assert {span.parent_id for span in children} == {root.span_id}


def test_a_rank_that_dies_is_named_in_the_rows(tmp_path: Path) -> None:
    """The other rank's rows go on, and say which rank is missing."""
    script = RANK.replace(
        "    with run.step(n)", "    rank == 1 and n == 5 and os.kill(os.getpid(), 9)\n    with run.step(n)"
    )
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "OTEL_RL_RUN_ID": "two", "OTEL_RL_IDLE_TIMEOUT": "5"}
    ranks = [start_python(script, tmp_path, RANK=str(rank), **common) for rank in range(2)]
    said = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert json.loads(said[0])[1] is True  # at once: it does not wait for the agent to give up rank 1

    rows = rows_of(tmp_path / "runs" / "ranks" / "two")
    assert [row["step"] for row in rows] == list(range(20))
    assert [row.get("missing_ranks") for row in rows] == [None] * 5 + [[1]] * 15


@pytest.mark.slow
def test_ranks_that_were_numbered_by_hand_are_awaited(tmp_path: Path) -> None:
    """No launcher, and rank 1 begins when rank 0 has gone through several steps: each row is of both."""
    script = (
        RANK.replace("run = otel", "time.sleep(rank)\nrun = otel").replace("ready1", "ready0").replace("0.002", "0.1")
    )
    common = {"OTEL_RL_WORLD_SIZE": "2", "OTEL_RL_RUN_ID": "two"}
    ranks = [start_python(script, tmp_path, RANK=str(n), OTEL_RL_RANK=str(n), **common) for n in range(2)]
    said = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert [json.loads(text)[1] for text in said] == [True, True]

    rows = rows_of(tmp_path / "runs" / "ranks" / "two")
    assert [(row["step"], row.get("late"), row["values"]["loss"]) for row in rows] == [  # type: ignore[index]
        (n, None, 0.5) for n in range(20)
    ]
