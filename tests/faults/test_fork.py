"""Forked children: DataLoader workers say nothing, unless they begin to record themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.processes import rows_of, run_python
from tests.real_parts import needs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@needs("torch")
def test_dataloader_workers_export_nothing_and_do_not_hang(tmp_path: Path) -> None:
    """Workers that are forked in the middle of a step, and that log, add nothing to the run."""
    script = """
import torch, otel_rl
run = otel_rl.init(dir="runs", project="fork", id="f", quiet=True)

class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i):
        run.log({"from_worker": float(i)}, step=i)
        with run.phase("in_worker"):
            return torch.tensor(i)

seen = 0
for n in range(3):
    with run.step(n), run.phase("generate"):
        loader = torch.utils.data.DataLoader(Data(), num_workers=2, multiprocessing_context="fork")
        seen += sum(int(batch.sum()) for batch in loader)
        run.log({"loss": float(n)})
assert run.finish(20)
print(seen)
"""
    assert int(run_python(script, tmp_path)) == 3 * sum(range(8))

    rows = rows_of(tmp_path / "runs" / "fork" / "f")
    assert [(row["step"], row["values"]["loss"]) for row in rows] == [(0, 0.0), (1, 1.0), (2, 2.0)]  # type: ignore[index]
    assert all({"from_worker", "time/in_worker"}.isdisjoint(row["values"]) for row in rows)  # type: ignore[call-overload]


@pytest.mark.slow
def test_a_child_that_outlives_its_killed_parent_does_not_keep_it_alive(tmp_path: Path) -> None:
    """The journal's lock is not inherited: the agent sees the parent's death though a child lives on."""
    script = """
import os, signal, time, otel_rl
run = otel_rl.init(dir="runs", project="fork", id="f", quiet=True)
run.log({"loss": 1.0}, step=0)
if os.fork() == 0:
    os.close(1); os.close(2)
    time.sleep(20)
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
"""
    from otel_rl.setup import agent_start
    from otel_rl.setup import directory as directories
    from tests.collector import wait_for
    from tests.processes import start_python

    start_python(script, tmp_path, OTEL_RL_IDLE_TIMEOUT="0.3").wait()
    run_dir = tmp_path / "runs" / "fork" / "f"
    wait_for(
        lambda: agent_start.read_status(directories.at(run_dir)).state == "ended", "the agent waits for the child", 10
    )

    assert [row["values"] for row in rows_of(run_dir)] == [{"loss": 1.0}]


def test_a_spawned_process_that_forgets_finish_is_not_lost(tmp_path: Path) -> None:
    """A multiprocessing child ends its recording as it should, though such a child runs no atexit."""
    (tmp_path / "child.py").write_text(
        "import otel_rl\n"
        "def work():\n"
        "    run = otel_rl.init(dir='runs', project='spawn', id='s', quiet=True)\n"
        "    run.log({'loss': 2.0}, step=0)\n"
    )
    run_python(
        "import multiprocessing, child\n"
        "if __name__ == '__main__':\n"
        "    p = multiprocessing.get_context('spawn').Process(target=child.work); p.start(); p.join()\n"
        "    assert p.exitcode == 0\n",
        tmp_path,
    )
    from otel_rl.setup import agent_start
    from otel_rl.setup import directory as directories
    from tests.collector import wait_for
    from tests.processes import items_of

    run_dir = tmp_path / "runs" / "spawn" / "s"
    wait_for(lambda: agent_start.read_status(directories.at(run_dir)).state == "ended", "the agent does not end")

    assert [row["values"] for row in rows_of(run_dir)] == [{"loss": 2.0}]
    assert "rl.process.lost" not in [getattr(item, "name", "") for item in items_of(run_dir)]
