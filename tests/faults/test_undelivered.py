"""Undelivered items of a job that has ended are found, and delivered once, from any machine that sees the files."""

from __future__ import annotations

import json
import os
import shutil
import signal
from typing import TYPE_CHECKING

import psutil
import pytest

from otel_rl.delivery import signs, undelivered
from otel_rl.setup import parts
from tests.collector import wait_for
from tests.faults.nodes import Nodes, sshfs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STEPS = 60
_GATED = """
import pathlib
class Gated:
    def __init__(self, run): self.run = pathlib.Path(run.directory)
    def export(self, items):
        if not (self.run / "open").exists():
            raise ConnectionError("closed")
        rows = [item for item in items if type(item).__name__ == "Row"]
        with (self.run / "gated.txt").open("a") as file:
            file.writelines(f"{row.attempt} {row.step}\\n" for row in rows)
        if any(row.missing_ranks for row in rows):
            (self.run / "partial.txt").touch()
    def shutdown(self): pass
"""
_TRAIN = f"""
import os, time, otel_rl
place = dict(dir="runs", project="p", id="r", quiet=True, exporters=["gated:Gated"])
if "HEAD" in os.environ:
    os.environ["OTEL_RL_LOCAL_WORLD_SIZE"] = "1"
    place |= dict(rank=int(os.environ["N"]), world_size=2, head=os.environ["HEAD"])
os.environ["OTEL_RL_IDLE_TIMEOUT"] = "2"
run = otel_rl.init(**place, hardware=False, rows={{"deadline": 60}})
print(run.attempt, flush=True)
for n in range({STEPS}):
    with run.step(n):
        run.log({{"loss": float(n)}})
    time.sleep(float(os.environ.get("PAUSE", "0")))
if "STAY" in os.environ:
    print("ready", flush=True)
    time.sleep(300)
print(run.finish(float(os.environ.get("FINISH", "0.5"))))
"""


@pytest.fixture(params=["", "no_contain_symlinks"])
def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Nodes]:
    """Machines with an sshfs that allows absolute links, or as of default does not."""
    options = ["-o", request.param] if request.param else []
    with sshfs(tmp_path, *options) as shared:
        (shared / "gated.py").write_text(_GATED)
        yield Nodes(shared, tmp_path / "disk")


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Nodes]:
    """Machines with an sshfs as it is by default."""
    with sshfs(tmp_path) as shared:
        (shared / "gated.py").write_text(_GATED)
        yield Nodes(shared, tmp_path / "disk")


def gated(run_dir: Path) -> list[tuple[int, int]]:
    """Return attempt and step of the rows that the exporter got, in the order in which they came."""
    path = run_dir / "gated.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(attempt), int(step)) for attempt, step in map(str.split, lines)]


def ended(run_dir: Path, name: str) -> bool:
    """Tell whether the agent of a machine has ended and left a copy."""
    copy = undelivered.read(run_dir, name)
    return copy is not None and not signs.alive(undelivered.place_of(run_dir, name)).path.exists()


def test_the_part_of_each_machine(nodes: Nodes) -> None:
    """A file in the run directory says where it is, links or not; the agent's log and `init` say so too."""
    run_dir = nodes.shared / "runs" / "p" / "r"
    (nodes.shared / "open").touch()
    process = nodes.start("node1", _TRAIN.replace("quiet=True, ", ""), FINISH="20")
    (run_dir).mkdir(parents=True, exist_ok=True)
    (run_dir / "open").touch()
    errors = process.communicate(timeout=100)[1]
    pointer = json.loads((run_dir / "local" / "node1").read_text())

    assert pointer["place"].startswith(str(nodes.disk))
    assert f"its journals are in {pointer['place']} on node1" in errors
    assert f"the journals of this machine, node1, are in {pointer['place']}" in (run_dir / "agent.log").read_text()
    assert gated(run_dir) == [(0, n) for n in range(STEPS)]


def test_a_backlog_on_another_machine(plain: Nodes) -> None:
    """The machine is gone for good: any other one delivers all rows once from the copy in the run directory."""
    run_dir = plain.shared / "runs" / "p" / "r"
    plain.run("node1", _TRAIN)
    wait_for(lambda: ended(run_dir, "node1"), "no copy")
    shutil.rmtree(plain.disk_of("node1"))
    (run_dir / "open").touch()
    log = (run_dir / "agent.log").read_text()

    assert f"deliver it on node1 with: otel-rl agent {run_dir} --once" in log
    assert plain.once("node2", run_dir) == (0, "")
    assert gated(run_dir) == [(0, n) for n in range(STEPS)]
    assert plain.once("node3", run_dir) == (0, "")
    assert gated(run_dir) == [(0, n) for n in range(STEPS)]


@pytest.mark.slow
def test_a_copy_and_then_its_source(plain: Nodes) -> None:
    """Another machine delivers from the copy; then the job goes on where it was: nothing is sent again."""
    run_dir = plain.shared / "runs" / "p" / "r"
    plain.run("node1", _TRAIN)
    wait_for(lambda: ended(run_dir, "node1"), "no copy")
    (run_dir / "open").touch()
    first = plain.once("node2", run_dir)
    delivered = gated(run_dir)
    plain.run("node1", _TRAIN, FINISH="20")

    assert first[0] == 0, first
    assert delivered == [(0, n) for n in range(STEPS)]
    assert gated(run_dir) == [*delivered, *((1, n) for n in range(STEPS))]
    wait_for(lambda: not undelivered.place_of(run_dir, "node1").exists(), "the copy stays")


@pytest.mark.slow
def test_a_machine_that_is_not_here(plain: Nodes) -> None:
    """An agent was killed, and no copy was made: the command says where to run it, and there it brings all rows."""
    run_dir = plain.shared / "runs" / "p" / "r"
    process = plain.start("node1", _TRAIN, STAY="1")
    assert process.stdout is not None
    while process.stdout.readline() != "ready\n":
        pass
    status = json.loads(next(plain.disk_of("node1").glob("*/*/agent.json")).read_text())
    kill_all(process.pid, status["pid"])
    code, said = plain.once("node2", run_dir)
    (run_dir / "open").touch()

    assert code == 1
    assert f"is on node1; run there: otel-rl agent {run_dir} --once" in said
    assert plain.once("node1", run_dir)[0] == 0
    assert gated(run_dir) == [(0, n) for n in range(STEPS)]


@pytest.mark.slow
def test_a_disk_that_ends_with_the_job(plain: Nodes) -> None:
    """All processes are killed at once, and the job's directory is removed: what was copied until then is delivered."""
    run_dir = plain.shared / "runs" / "p" / "r"
    job = {"SLURM_JOB_ID": "4711", "OTEL_RL_LOCAL_DIR": str(plain.disk / "job-4711")}
    process = plain.start("node1", _TRAIN, STAY="1", **job)
    wait_for(lambda: undelivered.read(run_dir, "node1"), "no copy", 30)
    wait_for(lambda: undelivered.read(run_dir, "node1").waiting["gated:Gated"] >= STEPS - 1, "too few", 30)  # type: ignore[union-attr]
    status = json.loads(next(plain.disk_of("node1").glob("*/*/*/agent.json")).read_text())
    kill_all(process.pid, status["pid"])
    shutil.rmtree(plain.disk_of("node1"))
    (run_dir / "open").touch()
    sign = signs.alive(undelivered.place_of(run_dir, "node1"))
    was_fresh = sign.is_fresh()
    os.utime(sign.path, (1, 1))
    code, said = plain.once("node2", run_dir)

    assert was_fresh
    assert code == 1
    assert "what node1 recorded after its last copy is in" in said
    assert gated(run_dir) == [(0, n) for n in range(STEPS)]


@pytest.mark.slow
def test_a_copy_that_is_being_delivered(plain: Nodes) -> None:
    """Two machines at once: the second one waits for nobody and sends nothing; nor does the machine itself."""
    run_dir = plain.shared / "runs" / "p" / "r"
    plain.run("node1", _TRAIN)
    wait_for(lambda: ended(run_dir, "node1"), "no copy")
    taken = signs.taken(undelivered.place_of(run_dir, "node1"))
    taken.put("pid 7 on node2")
    (run_dir / "open").touch()
    found = [plain.once(host, run_dir) for host in ("node3", "node1")]
    sent = gated(run_dir)
    os.utime(taken.path, (1, 1))  # it was killed

    assert [code for code, _ in found] == [1, 1]
    assert "pid 7 on node2 delivers the copy of node1 now" in found[0][1]
    assert sent == []
    assert plain.once("node3", run_dir) == (0, "")
    assert gated(run_dir) == [(0, n) for n in range(STEPS)]


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["index", "segment"])
def test_a_copy_that_is_damaged(plain: Nodes, damage: str) -> None:
    """It is not used; the machine itself still has everything, and the command says so."""
    run_dir = plain.shared / "runs" / "p" / "r"
    plain.run("node1", _TRAIN)
    wait_for(lambda: ended(run_dir, "node1"), "no copy")
    place = undelivered.place_of(run_dir, "node1")
    (place / "index" if damage == "index" else next(place.glob("outbox/*.seg"))).unlink()
    (run_dir / "open").touch()
    code, said = plain.once("node2", run_dir)

    assert code == 1
    assert "is on node1; run there" in said
    assert plain.once("node1", run_dir)[0] == 0
    assert gated(run_dir) == [(0, n) for n in range(STEPS)]


@pytest.mark.slow
def test_a_job_that_goes_on_where_its_disk_was_removed(plain: Nodes) -> None:
    """The next attempt on the same machine takes what was not delivered from the copy: all rows of both, once."""
    run_dir = plain.shared / "runs" / "p" / "r"
    plain.run("node1", _TRAIN)
    wait_for(lambda: ended(run_dir, "node1"), "no copy")
    shutil.rmtree(plain.disk_of("node1"))
    (run_dir / "open").touch()
    said = plain.run("node1", _TRAIN, FINISH="20")

    assert said == "1\nTrue\n"
    assert gated(run_dir) == [(attempt, n) for attempt in range(2) for n in range(STEPS)]


@pytest.mark.slow
def test_a_part_that_is_gone(plain: Nodes) -> None:
    """Somebody removed it on its machine: said, with its place; where all of it was delivered, nothing is wrong."""
    run_dir = plain.shared / "runs" / "p" / "r"
    run_dir.mkdir(parents=True)
    (run_dir / "open").touch()
    plain.run("node1", _TRAIN, FINISH="30")
    wait_for(lambda: parts.read(run_dir, "node1").is_delivered, "the end is not noted")  # type: ignore[union-attr]
    place = parts.read(run_dir, "node1").place  # type: ignore[union-attr]
    shutil.rmtree(plain.disk_of("node1"))
    delivered = plain.once("node1", run_dir)
    pointer = run_dir / "local" / "node1"
    pointer.write_text(pointer.read_text().replace("true", "false"))
    code, said = plain.once("node1", run_dir)

    assert delivered == (0, "")
    assert code == 1
    assert f"{place} of this machine was removed; its backlog is lost" in said


def kill_all(*pids: int) -> None:
    """Kill processes and the supervisors of agents, as the end of a job does."""
    for pid in pids:
        process = psutil.Process(pid)
        for one in [*process.children(recursive=True), process, process.parent()]:
            if one is not None and one.pid != os.getpid():
                os.kill(one.pid, signal.SIGKILL)
