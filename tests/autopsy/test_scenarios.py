"""Runs that hang for a known reason, and what an autopsy says of each."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

from otel_rl.archive.now import read_now
from otel_rl.autopsy.conclude import autopsy
from otel_rl.autopsy.text import lines_of
from tests.autopsy.scenarios import SCENARIOS, Scenario
from tests.collector import answers, free_port, wait_for
from tests.real_parts import needs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [needs("torch"), pytest.mark.slow, pytest.mark.timeout(120)]
_ALL = os.environ.get("AUTOPSY_SCENARIOS") == "all"
_IN_CI = (
    *("stopped", "sleeps and holds the GIL", "logs", "another group", "silent engine", "full engine"),
    *("rollout worker killed", "data worker killed", "circle", "steps"),
)
"""Those that always run; `AUTOPSY_SCENARIOS=all` runs all of them."""
_PROCESS = """
import contextlib, ctypes, os, signal, socket, sys, threading, time, urllib.request
rank, server, role = int(os.environ.get("RANK", 0)), os.environ["SERVER"], os.environ.get("ROLE", "")
{gloo}
import otel_rl
if rank != int(os.environ["HIDDEN"]):
    run = otel_rl.init(
        dir="runs", project="p", id="r", quiet=True, role=role, idle_timeout=5, exporters=[],
        hardware={{"enabled": False, "engines": [f"http://127.0.0.1:{{server}}/metrics"] * bool(os.environ["ENGINE"])}},
    )
else:
    class Nothing:
        step = phase = lambda *_: contextlib.nullcontext()
    run = Nothing()
"""
_GLOO = "import torch, torch.distributed as dist\ndist.init_process_group('gloo')"
_RANK = """
{before}
for n in range(3):
    with run.step(n):
        with run.phase("generate"):
            time.sleep(0.01)
        with run.phase("{phase}"):
            {reduce}
with run.step(3):
    with run.phase("generate"):
{generate}
    with run.phase("{phase}"):
{update}
        {reduce}
time.sleep(10**6)
"""


@contextlib.contextmanager
def started(scenario: Scenario, place: Path) -> Iterator[Path]:
    """Start the processes of a run, and yield its directory when all of them hang."""
    environment = {"SERVER": str(free_port()), "HIDDEN": str(scenario.hidden), "ENGINE": "1" * scenario.engine}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    environment |= {"WORLD_SIZE": str(scenario.ranks), "LOCAL_WORLD_SIZE": str(scenario.ranks)}
    environment |= scenario.variables
    begin = _PROCESS.format(gloo=_GLOO if scenario.gloo else "")
    trainer = begin + _RANK.format(
        before=scenario.before,
        phase=scenario.phase,
        reduce="dist.all_reduce(torch.ones(4))" if scenario.gloo else "pass",
        generate=textwrap.indent(scenario.generate, " " * 8),
        update=textwrap.indent(scenario.update, " " * 8),
    )
    processes: list[subprocess.Popen[bytes]] = []
    full = place / "full"
    try:
        if scenario.needs == "mount":
            full.mkdir()
            mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", full], check=False)
            if mounted.returncode:
                pytest.skip("needs the right to mount")
            environment["FULL"] = str(full)
        if scenario.server:
            processes.append(_started(["-c", scenario.server], place, environment))
        if scenario.server and "server" in scenario.server.lower() and "kill" not in scenario.server:
            wait_for(lambda: answers(int(environment["SERVER"])), "the server does not listen", 60)
        (place / "train.py").write_text(trainer)
        for rank in range(scenario.ranks):
            processes.append(_started(["train.py"], place, environment | {"RANK": str(rank)}))
        if scenario.rollout:
            (place / "rollout.py").write_text(f"{_PROCESS.format(gloo='')}\n{scenario.rollout}\ntime.sleep(10**6)")
            processes.append(_started(["rollout.py"], place, environment | {"ROLE": "rollout"}))
        run = place / "runs" / "p" / "r"
        expected = scenario.ranks - (scenario.hidden >= 0) + bool(scenario.rollout)
        wait_for(lambda: _hangs(run, expected, moves="range(4" in scenario.update), "the run does not hang", 90)
        yield run
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
            process.wait()
        if environment.get("FULL"):
            subprocess.run(["umount", "-l", full], check=False)


def _started(arguments: list[str], place: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with (place / "output").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=place,
            env=os.environ | environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _hangs(run: Path, expected: int, *, moves: bool) -> bool:
    """Return whether all processes have recorded their last phase, for a second at least."""
    processes = [one for now in read_now(run) for one in now.processes]
    if len(processes) < expected or not all(one.step is None or one.step >= 3 for one in processes):
        return False
    if not any(one.step is not None and one.step >= 3 for one in processes):
        return False
    return moves or all(time.time_ns() - one.last_unix_nano > 1.5e9 for one in processes)


@pytest.mark.parametrize("name", SCENARIOS if _ALL else _IN_CI)
def test_the_cause_is_named(tmp_path: Path, name: str) -> None:
    """The verdict has the kind of the cause, and the process or server that is the cause."""
    scenario = SCENARIOS[name]
    with started(scenario, tmp_path) as run:
        found = autopsy(run, scenario.cause)
        text = "\n".join(line for _, line in lines_of(found))

    assert found.verdict.kind == scenario.kind, text
    assert "".join(found.verdict.who[:1]).startswith(scenario.who), text
