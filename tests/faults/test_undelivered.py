"""Undelivered items of a job that has ended are found, and delivered once, from any machine that sees the files."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import otel_rl
from otel_rl.recorder.archive import delivered, now
from otel_rl.recorder.archive.delivered import Delivered
from otel_rl.recorder.directory import parts
from otel_rl.recorder.files.atomic_files import read_json
from tests.collector import wait_for
from tests.faults.nodes import Nodes
from tests.file_systems import sshfs

pytestmark = pytest.mark.slow
STEPS = 60
_GATED = """
import pathlib, time
class Gated:
    def __init__(self, run): self.run = pathlib.Path(run.directory)
    def export(self, items):
        if not (self.run / "open").exists():
            raise ConnectionError("closed")
        rows = [item for item in items if type(item).__name__ == "Row"]
        with (self.run / "gated.txt").open("a") as file:
            for row in rows:
                file.write(f"{row.attempt} {row.step}\\n")
                if (self.run / "slow").exists():
                    file.flush()
                    time.sleep(0.2)
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
print(bool(run.finish(float(os.environ.get("FINISH", "0.5")))))
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
    """Tell whether the agent of a machine has ended, and the archive has everything."""
    found = read_json(now.place_of(run_dir, name), now.Now)
    return found is not None and found.has_everything


def archived(run_dir: Path) -> int:
    """Return the number of rows in the archive of a machine."""
    return len(otel_rl.open_run(run_dir).rows("loss"))


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
    """The machine is gone for good: any other one delivers all rows once from the archive."""
    run_dir = plain.shared / "runs" / "p" / "r"
    plain.run("node1", _TRAIN)
    wait_for(lambda: ended(run_dir, "node1"), "it is not archived")
    shutil.rmtree(plain.disk_of("node1"))
    (run_dir / "open").touch()
    log = (run_dir / "agent.log").read_text()

    assert f"deliver it on node1 with: otel-rl agent {run_dir} --once" in log
    assert plain.once("node2", run_dir) == (0, "")
    assert gated(run_dir) == [(0, n) for n in range(STEPS)]
    assert plain.once("node3", run_dir) == (0, "")
    assert gated(run_dir) == [(0, n) for n in range(STEPS)]


def test_an_archive_and_then_its_machine(plain: Nodes) -> None:
    """Another machine delivers from the archive; then the job goes on where it was: nothing is sent again."""
    run_dir = plain.shared / "runs" / "p" / "r"
    plain.run("node1", _TRAIN)
    wait_for(lambda: ended(run_dir, "node1"), "it is not archived")
    (run_dir / "open").touch()
    first = plain.once("node2", run_dir)
    sent = gated(run_dir)
    plain.run("node1", _TRAIN, FINISH="20")

    assert first[0] == 0, first
    assert sent == [(0, n) for n in range(STEPS)]
    assert gated(run_dir) == [*sent, *((1, n) for n in range(STEPS))]
    assert not delivered.place_of(run_dir, "node1").exists()


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_machine_that_was_killed(plain: Nodes, *, is_removed: bool) -> None:
    """The archived rows are delivered, and the command says where the rest is; there, it brings all rows, once."""
    run_dir = plain.shared / "runs" / "p" / "r"
    process = plain.start("node1", _TRAIN, STAY="1")
    assert process.stdout is not None
    while process.stdout.readline() != "ready\n":
        pass
    wait_for(lambda: archived(run_dir) >= STEPS - 1, "the rows are not archived", 30)
    status = json.loads(next(plain.disk_of("node1").glob("*/*/agent.json")).read_text())
    kill_all(process.pid, status["pid"])
    was_fresh = delivered.is_fresh(now.place_of(run_dir, "node1"))
    os.utime(now.place_of(run_dir, "node1"), (1, 1))
    if is_removed:
        shutil.rmtree(plain.disk_of("node1"))
    (run_dir / "open").touch()
    code, said = plain.once("node2", run_dir)

    assert was_fresh
    assert code == 1
    assert "what node1 recorded after it saved its archive last is in" in said
    assert gated(run_dir)[: STEPS - 1] == [(0, n) for n in range(STEPS - 1)]
    if not is_removed:
        assert plain.once("node1", run_dir)[0] == 0
        assert gated(run_dir) == [(0, n) for n in range(STEPS)]


def test_an_archive_that_is_being_delivered(plain: Nodes) -> None:
    """Two machines at once: the second one sends nothing; nor does the machine itself."""
    run_dir = plain.shared / "runs" / "p" / "r"
    plain.run("node1", _TRAIN)
    wait_for(lambda: ended(run_dir, "node1"), "it is not archived")
    delivered.write(run_dir, "node1", Delivered(who="pid 7 on node2", exporters={}, works=True))
    (run_dir / "open").touch()
    found = [plain.once(host, run_dir) for host in ("node3", "node1")]
    sent = gated(run_dir)
    os.utime(delivered.place_of(run_dir, "node1"), (1, 1))  # it was killed

    assert [code for code, _ in found] == [1, 1]
    assert "pid 7 on node2 delivers from the archive of node1 now" in found[0][1]
    assert sent == []
    assert plain.once("node3", run_dir) == (0, "")
    assert gated(run_dir) == [(0, n) for n in range(STEPS)]


def test_a_delivery_that_is_killed(plain: Nodes) -> None:
    """The next one continues where it was; an exporter that cannot say what it holds may get one row again."""
    run_dir = plain.shared / "runs" / "p" / "r"
    plain.run("node1", _TRAIN)
    wait_for(lambda: ended(run_dir, "node1"), "it is not archived")
    (run_dir / "slow").touch()
    (run_dir / "open").touch()
    process = plain.start("node2", f"from otel_rl.cli import main; main(['agent', {str(run_dir)!r}, '--once'])")
    wait_for(lambda: len(gated(run_dir)) > STEPS // 4, "nothing is delivered", 60)
    process.kill()
    process.wait()
    os.utime(delivered.place_of(run_dir, "node1"), (1, 1))
    (run_dir / "slow").unlink()

    assert len(gated(run_dir)) < STEPS
    assert plain.once("node2", run_dir) == (0, "")
    assert sorted(set(gated(run_dir))) == [(0, n) for n in range(STEPS)]
    assert len(gated(run_dir)) <= STEPS + 1


@pytest.mark.parametrize("lost", ["rows", "steps"])
def test_an_archive_that_is_damaged(plain: Nodes, lost: str) -> None:
    """It is said each time how many items it lacks; the machine itself still has everything."""
    run_dir = plain.shared / "runs" / "p" / "r"
    plain.run("node1", _TRAIN)
    wait_for(lambda: ended(run_dir, "node1"), "it is not archived")
    shutil.rmtree(run_dir / "archive" / "node1" / lost)
    (run_dir / "open").touch()
    for host in ("node2", "node3"):
        code, said = plain.once(host, run_dir)
        assert code == 1
        assert f"{STEPS} item(s) are missing in the archive of node1" in said

    assert gated(run_dir) == []
    assert plain.once("node1", run_dir)[0] == 0
    assert gated(run_dir) == [(0, n) for n in range(STEPS)]


def test_nothing_but_the_archive_is_left(plain: Nodes) -> None:
    """Not even the file that says where the part of the machine was: everything is delivered, once."""
    run_dir = plain.shared / "runs" / "p" / "r"
    plain.run("node1", _TRAIN)
    wait_for(lambda: ended(run_dir, "node1"), "it is not archived")
    shutil.rmtree(plain.disk_of("node1"))
    shutil.rmtree(run_dir / "local")
    (run_dir / "open").touch()

    assert [plain.once(host, run_dir) for host in ("node2", "node3")] == [(0, ""), (0, "")]
    assert gated(run_dir) == [(0, n) for n in range(STEPS)]


def test_an_attempt_that_no_agent_has_read(plain: Nodes) -> None:
    """It is not in the archive: the command says where it is."""
    run_dir = plain.shared / "runs" / "p" / "r"
    run_dir.mkdir(parents=True)
    (run_dir / "open").touch()
    plain.run("node1", _TRAIN, FINISH="30")
    plain.run("node1", _TRAIN, OTEL_RL_AGENT="off")
    code, said = plain.once("node2", run_dir)

    assert code == 1
    assert "what node1 recorded after it saved its archive last is in" in said
    assert plain.once("node1", run_dir)[0] == 0
    assert gated(run_dir) == [(attempt, n) for attempt in range(2) for n in range(STEPS)]


def test_a_job_that_goes_on_where_its_disk_was_removed(plain: Nodes) -> None:
    """The next attempt on the same machine takes what was not delivered from the archive: all rows of both, once."""
    run_dir = plain.shared / "runs" / "p" / "r"
    plain.run("node1", _TRAIN)
    wait_for(lambda: ended(run_dir, "node1"), "it is not archived")
    shutil.rmtree(plain.disk_of("node1"))
    (run_dir / "open").touch()
    said = plain.run("node1", _TRAIN, FINISH="20")

    assert said == "1\nTrue\n"
    assert gated(run_dir) == [(attempt, n) for attempt in range(2) for n in range(STEPS)]


def test_a_part_that_is_gone(plain: Nodes) -> None:
    """Without an archive this is said, with its place; where all of it was delivered, nothing is wrong."""
    run_dir = plain.shared / "runs" / "p" / "r"
    run_dir.mkdir(parents=True)
    (run_dir / "open").touch()
    plain.run("node1", _TRAIN, FINISH="30")
    wait_for(lambda: parts.read(run_dir, "node1").is_delivered, "the end is not noted")  # type: ignore[union-attr]
    place = parts.read(run_dir, "node1").place  # type: ignore[union-attr]
    shutil.rmtree(plain.disk_of("node1"))
    delivered = plain.once("node1", run_dir)
    shutil.rmtree(run_dir / "archive")
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
