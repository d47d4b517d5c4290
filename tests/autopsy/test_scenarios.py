"""Runs that hang for a known reason, and what an autopsy says of each."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from otel_rl import semconv
from otel_rl.autopsy.conclude import autopsy
from otel_rl.export import Event
from otel_rl.recorder.archive.autopsy_text import lines_of
from otel_rl.recorder.archive.now import read_now
from otel_rl.recorder.directory import agent_events
from otel_rl.recorder.directory import directory as directories
from tests.autopsy.scenarios import SCENARIOS, WELL, Scenario
from tests.collector import answers, free_port, wait_for
from tests.real_parts import needs

pytestmark = [needs("torch"), pytest.mark.slow, pytest.mark.timeout(120)]
_ALL = os.environ.get("AUTOPSY_SCENARIOS") == "all"
_IN_CI = (
    *("stopped", "sleeps and holds the GIL", "logs", "another group", "silent engine", "full engine"),
    *("rollout worker killed", "data worker killed", "circle", "drops what is made"),
)
"""Those that always run; `AUTOPSY_SCENARIOS=all` runs all of them."""
DEADLINE = 15
"""Seconds in a phase after which a process is late; the default is 60 at least."""
_PROCESS = """
import contextlib, ctypes, os, signal, socket, sys, threading, time, urllib.request
rank, server, role = int(os.environ.get("RANK", 0)), os.environ["SERVER"], os.environ.get("ROLE", "")
{gloo}
import otel_rl
if rank != int(os.environ["HIDDEN"]):
    run = otel_rl.init(
        dir="runs", project="p", id="r", quiet=True, role=role, idle_timeout=5, exporters=[], stalled_after={deadline},
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
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    environment |= {"WORLD_SIZE": str(scenario.ranks), "LOCAL_WORLD_SIZE": str(scenario.ranks)}
    environment |= {"OTEL_RL_AUTOPSY": "1", **scenario.variables}
    begin = _PROCESS.format(gloo=_GLOO if scenario.gloo else "", deadline=DEADLINE)
    trainer = begin + _RANK.format(
        before=scenario.before,
        phase=scenario.phase,
        reduce="dist.all_reduce(torch.ones(4))" if scenario.gloo else "pass",
        generate=textwrap.indent(scenario.generate, " " * 8),
        update=textwrap.indent(scenario.update, " " * 8),
    )
    processes: list[subprocess.Popen[bytes]] = []
    needed = contextlib.ExitStack()
    try:
        environment |= needed.enter_context(_NEEDS[scenario.needs](place))
        if scenario.server:
            processes.append(_started(["-c", scenario.server], place, environment))
        if scenario.server and "server" in scenario.server.lower() and "kill" not in scenario.server:
            wait_for(lambda: answers(int(environment["SERVER"])), "the server does not listen", 60)
        (place / "train.py").write_text(trainer)
        for rank in range(scenario.ranks):
            processes.append(_started(["train.py"], place, environment | {"RANK": str(rank)}))
        if scenario.rollout:
            begin = _PROCESS.format(gloo="", deadline=DEADLINE)
            (place / "rollout.py").write_text(f"{begin}\n{scenario.rollout}\ntime.sleep(10**6)")
            processes.append(_started(["rollout.py"], place, environment | {"ROLE": "rollout"}))
        run = place / "runs" / "p" / "r"
        expected = scenario.ranks - (scenario.hidden >= 0) + bool(scenario.rollout)
        wait_for(lambda: _hangs(run, expected, moves=scenario.moves), "the run does not hang", 90)
        yield run
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
        needed.close()
        for process in processes:
            process.wait()


@contextlib.contextmanager
def _small_disk(place: Path) -> Iterator[dict[str, str]]:
    """Mount a file system of 1 MiB."""
    (full := place / "full").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", full], check=False).returncode:
        pytest.skip("needs the right to mount")
    yield {"PLACE": str(full)}
    subprocess.run(["umount", "-l", full], check=False)


@contextlib.contextmanager
def _file_server(place: Path) -> Iterator[dict[str, str]]:
    """Mount the files of a server, which can be stopped."""
    if not shutil.which("sshfs") or not _SFTP.exists():
        pytest.skip("needs sshfs and a server of SFTP")
    (served := place / "served").mkdir()
    (served / "data").write_bytes(bytes(1 << 20))
    (mounted := place / "mounted").mkdir()
    server = subprocess.Popen([_SFTP], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    client = subprocess.Popen(
        ["sshfs", "-f", "-o", "passive", f":{served}", mounted], stdin=server.stdout, stdout=server.stdin
    )
    try:
        wait_for((mounted / "data").exists, "nothing is mounted", 20)
        yield {"PLACE": str(mounted), "FILE_SERVER": str(server.pid)}
    finally:
        for process in (server, client):
            process.kill()
            process.wait()
        subprocess.run(["umount", "-l", mounted], check=False)


@contextlib.contextmanager
def _little_memory(_place: Path) -> Iterator[dict[str, str]]:
    """Make a cgroup whose processes may use 300 MiB."""
    group = Path(f"/sys/fs/cgroup/memory/otel-rl-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(300 << 20))
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    yield {"PLACE": str(group)}
    wait_for(lambda: not (group / "cgroup.procs").read_text(), "the cgroup has processes", 20)
    group.rmdir()


_SFTP = Path("/usr/lib/openssh/sftp-server")
_NEEDS: dict[str, Callable[[Path], AbstractContextManager[dict[str, str]]]] = {
    "": lambda _: contextlib.nullcontext({}),
    "small disk": _small_disk,
    "file server": _file_server,
    "little memory": _little_memory,
}
"""The things that scenarios need, each with its variables."""


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


def _events(run: Path, name: str) -> list[Event]:
    return [one for one in agent_events.read(directories.at(run).events) if one.name == name]


def _stood_still_at(run: Path, cause: object) -> float:
    """Return when the process that is the reason of an autopsy went on last, in Unix nanoseconds."""
    if cause == "died":
        return _events(run, semconv.EVENT_PROCESS_LOST)[0].time_unix_nano
    first = _events(run, semconv.EVENT_PHASE_STALLED)[0]
    return first.time_unix_nano - 1e9 * float(str(first.attributes[semconv.STALL_AGE]))


@pytest.mark.parametrize("name", SCENARIOS if _ALL else _IN_CI)
def test_the_cause_is_named(tmp_path: Path, name: str) -> None:
    """The agent's verdict has the kind and the process or server of the cause, within twice the deadline."""
    scenario = SCENARIOS[name]
    with started(scenario, tmp_path) as run:
        wait_for(lambda: bool(_events(run, semconv.EVENT_AUTOPSY_CONCLUDED)), "there is no verdict", 60)
        found = _events(run, semconv.EVENT_AUTOPSY_CONCLUDED)[0]
        text = Path(str(found.attributes[semconv.AUTOPSY_FILE])).read_text()
        since = _stood_still_at(run, found.attributes[semconv.AUTOPSY_CAUSE])

    assert found.attributes[semconv.AUTOPSY_KIND] == scenario.kind, text
    assert str(found.attributes[semconv.AUTOPSY_CULPRITS][0]).startswith(scenario.who), text  # type: ignore[index]
    assert (found.time_unix_nano - since) / 1e9 <= 2 * DEADLINE


@pytest.mark.parametrize("name", WELL)
def test_a_run_that_is_well(tmp_path: Path, name: str) -> None:
    """An autopsy that somebody asks for names no cause before the deadline."""
    with started(WELL[name], tmp_path) as run:
        found = autopsy(run)

    assert found.verdict.kind == "well", "\n".join(line for _, line in lines_of(found))
