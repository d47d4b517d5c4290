"""Which run and which attempt each start of a trainer is, where a launcher names the job and not the run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.faults.nodes import Nodes
from tests.file_systems import sshfs
from tests.processes import run, start
from tests.real_parts import needs

pytestmark = pytest.mark.slow
_TRAIN = """
import os, sys, time
import otel_rl
{0}
run = otel_rl.init(dir="runs", project="p", quiet=True, agent="off", exporters=[], **GIVEN)
print("%s %d" % (run.id, run.attempt) + "\\n", end="", flush=True)  # one write: trainings share a pipe
run.log({{"loss": 1.0}}, step=0)
{1}
"""
_MEET = """
import pathlib
rank, world = os.environ["SLURM_PROCID"], int(os.environ["SLURM_STEP_NUM_TASKS"])
number = 1 + len(list(pathlib.Path().glob(f"met.{rank}.*")))
pathlib.Path(f"met.{rank}.{number}").touch()
while len(list(pathlib.Path().glob(f"met.*.{number}"))) < world:
    time.sleep(0.02)
if rank in sys.argv[1:]:
    raise ValueError(rank)
"""
"""Ranks that wait for each other, as those of a training do; the named ones fail then."""
STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "0",
    "SLURM_NODEID": "0",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where trainings are started: `ok.py`, `fails.py` and others."""
    for name, before, after in (
        ("ok", "", ""),
        ("fails", "", "raise ValueError(1)"),
        ("finishes", "", "run.finish(0)"),
        ("exits", "", "sys.exit(3)"),
        ("killed", "", "os.kill(os.getpid(), 9)"),
        ("slow", "", "time.sleep(float(sys.argv[1]))"),
        ("late", "time.sleep(float(sys.argv[1]))", ""),
        ("reward", "GIVEN['role'] = 'reward'", ""),
        (
            "twice",
            "",
            "run.finish(0)\nother = otel_rl.init(dir='runs', project='p', quiet=True, agent='off')\nprint(other.id)",
        ),
        ("meets", "", _MEET),
        ("parent", "import subprocess", "subprocess.run([sys.executable, 'ok.py'])\nrun.finish(0)"),
    ):
        (tmp_path / f"{name}.py").write_text("GIVEN = {}\n" + _TRAIN.format(before, after))
    return tmp_path


def shell(place: Path, script: str, environ: Mapping[str, str] = STEP) -> list[str]:
    """Return the lines that a shell script prints; `t X` is `python X.py`."""
    lines = run(["bash", "-c", f't() {{ "{sys.executable}" "$1.py" "${{@:2}}"; }}\n{script}\ntrue'], place, **environ)
    return lines.splitlines()


_LOGGERS = """
from otel_rl.frameworks.recording import Recording
one = None
for continues in (False, True, False):
    before = one if continues else None
    one = Recording(dir="runs", project="p", quiet=True, agent="off", exporters=[], after=before)
    print(one.run.id, one.run.attempt, flush=True)
    one.run.finish(0)
"""


def test_loggers_of_frameworks(place: Path) -> None:
    """Each training that a framework begins is a run of the job; one that goes on is an attempt of its run."""
    (place / "loggers.py").write_text(_LOGGERS)

    ids = [line.removeprefix("slurm-7.0") for line in shell(place, "t loggers; t loggers")]
    assert ids == [" 0", " 1", "-2 0", "-3 0", "-3 1", "-4 0"]


@pytest.mark.parametrize("training", ["ok", "finishes", "twice"])
def test_one_after_the_other(place: Path, training: str) -> None:
    """After a training has finished, the next one in the same job step is another run, whoever starts it."""
    found = shell(place, f"t {training}; t ok")

    assert found[0] == "slurm-7.0 0"
    assert found[1:] == (["slurm-7.0-2", "slurm-7.0-3 0"] if training == "twice" else ["slurm-7.0-2 0"])


def test_at_once(place: Path) -> None:
    """While one training goes on, another one in the same job step is another run."""
    assert sorted(shell(place, "t slow 3 & sleep 1.5; t ok; wait")) == ["slurm-7.0 0", "slurm-7.0-2 0"]


@pytest.mark.parametrize("training", ["killed", "fails", "exits"])
def test_until_it_works(place: Path, training: str) -> None:
    """A failed training that the same command starts again is another attempt, until it has finished."""
    script = f"cp {training}.py x.py; t x; t x; cp ok.py x.py; t x; t x"

    assert shell(place, script) == ["slurm-7.0 0", "slurm-7.0 1", "slurm-7.0 2", "slurm-7.0-2 0"]


def test_a_rank_that_was_not_there(place: Path) -> None:
    """The other rank failed before this one began: both go on with the run, in one attempt."""
    script = "cp fails.py x.py; t x; cp ok.py x.py; SLURM_PROCID=1 t x; t x"

    assert shell(place, script, STEP | {"SLURM_STEP_NUM_TASKS": "2"}) == ["slurm-7.0 0", "slurm-7.0 1", "slurm-7.0 1"]


def test_another_command(place: Path) -> None:
    """A sweep goes on after a failure: what has other arguments is another run."""
    assert shell(place, "t fails 1; t fails 2") == ["slurm-7.0 0", "slurm-7.0-2 0"]


@pytest.mark.parametrize("shown", [{"SLURM_PTY_PORT": "40001"}, {"SLURM_STEP_ID": "4294967290"}])
def test_an_interactive_shell(place: Path, shown: dict[str, str]) -> None:
    """A user who types a command again after a failure has changed something: another run."""
    first, second = shell(place, "t fails; t fails", STEP | shown)

    assert second == f"{first.removesuffix(' 0')}-2 0"


def test_a_requeue(place: Path) -> None:
    """A job that begins again begins with its first run; each is another attempt of the same run."""
    first = shell(place, "t ok; t killed")
    again = shell(place, "t ok; t ok; t ok", STEP | {"SLURM_RESTART_COUNT": "1"})

    assert first == ["slurm-7.0 0", "slurm-7.0-2 0"]
    assert again == ["slurm-7.0 1", "slurm-7.0-2 1", "slurm-7.0-3 0"]


@pytest.mark.parametrize("explicit", [{}, {"OTEL_RL_RUN_ID": "slurm-7.0"}])
def test_a_requeue_that_finds_nothing(place: Path, explicit: dict[str, str]) -> None:
    """On another node with a disk of its own, the launcher's count of restarts is the least number of the attempt."""
    assert shell(place, "t ok", STEP | explicit | {"SLURM_RESTART_COUNT": "2"}) == ["slurm-7.0 2"]


def test_an_identity_that_was_given(place: Path) -> None:
    """An explicit identity is always the same run, however its attempts ended."""
    assert shell(place, "t ok; t ok", STEP | {"OTEL_RL_RUN_ID": "mine"}) == ["mine 0", "mine 1"]


def test_a_child_of_a_training(place: Path) -> None:
    """A process that a training starts is recorded with it, and does not count as a training at the next start."""
    assert shell(place, "t parent; t ok") == ["slurm-7.0 0", "slurm-7.0-2 0", "slurm-7.0-3 0"]
    notes = [path.name for path in next(place.glob("runs/.trainings-*/slurm-7.0")).iterdir()]
    assert sorted(notes) == ["1", "3"]


def test_damaged_entries(place: Path) -> None:
    """Entries that are damaged or of another program keep no training from being recorded, and count as taken."""
    assert shell(place, "t ok") == ["slurm-7.0 0"]
    notes = next(place.glob("runs/.trainings-*/slurm-7.0"))
    (notes / "2").write_text("garbage")
    (notes / "x").write_text(json.dumps({"label": "../../x"}))
    attempts = place / "runs" / "p" / "slurm-7.0" / "attempts"
    (attempts / "rank0.attempt7.0123456789abcdef").write_text('{"journal": "../../x", "part": "y"}')
    (attempts / "attempt8").write_text("garbage")
    (attempts / "attempt8.elsewhere").write_text("garbage")

    assert shell(place, "t ok") == ["slurm-7.0-3 0"]
    assert shell(place, "t ok", STEP | {"OTEL_RL_RUN_ID": "slurm-7.0"}) == ["slurm-7.0 9"]


def test_a_role_belongs_to_the_training_of_its_time(place: Path) -> None:
    """A reward server has the run of the trainer next to it, whichever of them starts first."""
    found = shell(place, "t ok; t reward; t ok; t slow 3 & sleep 1.5; t reward; wait")

    assert [line.split()[0].removeprefix("slurm-7.0") for line in found] == ["", "-2", "-2", "-3", "-3"]


def ranks(place: Path, scripts: list[str], **shown: str) -> list[list[str]]:
    """Return what each of the ranks of a job step prints that runs its own script."""
    processes = []
    for rank, script in enumerate(scripts):
        own = {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(len(scripts))}
        command = f't() {{ "{sys.executable}" "$1.py" "${{@:2}}"; }}\n{script}'
        processes.append(start(["bash", "-c", command], place, **STEP | own | shown))
    return [process.communicate(timeout=100)[0].splitlines() for process in processes]


@pytest.mark.parametrize("spread", [(0, 0, 0, 0), (0, 0.8, 0, 1.6)])
def test_ranks_agree(place: Path, spread: tuple[float, ...]) -> None:
    """All ranks have each training under one identity, also where some end it before others begin it."""
    found = ranks(place, [f"for n in 1 2 3; do t late {late}; done" for late in spread])

    assert found == [["slurm-7.0 0", "slurm-7.0-2 0", "slurm-7.0-3 0"]] * 4


def test_ranks_agree_without_a_directory_in_common(place: Path) -> None:
    """Nodes that share nothing count alike."""
    found = []
    for node in ("a", "b"):
        shutil.copytree(place, place / node, ignore=shutil.ignore_patterns("a", "b"))
        found += ranks(place / node, ["t ok; t ok"] * 2)

    assert found == [["slurm-7.0 0", "slurm-7.0-2 0"]] * 4


def test_ranks_of_which_one_failed_agree(place: Path) -> None:
    """The first rank that starts again decides whether the run goes on."""
    again = "until [ -e {0} ]; do sleep 0.1; done; t meets 0"
    found = ranks(place, [f"t meets 0; {again.format('ended')}", f"t meets 0; touch ended; {again.format('met.0.2')}"])

    assert found == [["slurm-7.0 0", "slurm-7.0 1"]] * 2


def test_ranks_that_start_again_at_once_agree(place: Path) -> None:
    """Ranks that all start a second training at the same moment have one run: the log has one author."""
    all_down = "touch down.$SLURM_PROCID; until [ $(ls down.* | wc -l) = 6 ]; do sleep 0.1; done"
    found = ranks(place, [f"t ok; t meets 0 1 2 3 4 5; {all_down}; t meets 0 1 2 3 4 5"] * 6)

    assert {tuple(lines) for lines in found} == {("slurm-7.0 0", "slurm-7.0-2 0", "slurm-7.0-2 1")}


def test_trainings_at_once_with_several_ranks(place: Path) -> None:
    """Two trainings of two ranks each, in one step: the port at which their ranks meet distinguishes them."""
    both = "MASTER_PORT={0} t ok {0} & MASTER_PORT={1} t ok {1} & wait"
    found = ranks(place, [both.format(1, 2), both.format(2, 1)])

    assert [sorted(lines) for lines in found] == [["slurm-7.0 0", "slurm-7.0-2 0"]] * 2
    for run_dir in (place / "runs" / "p").iterdir():
        entries = run_dir / "attempts"
        commands = {
            json.loads(entry.read_bytes())["command"] for entry in [*entries.glob("rank*"), entries / "attempt0"]
        }
        assert len(commands) == 1


_ELASTIC = """
import os, pathlib, sys, time
import otel_rl
run = otel_rl.init(dir="runs", project="p", quiet=True, agent="off", exporters=[])
run.log({"loss": 1.0}, step=0)
print(f"saw {run.id} {run.attempt}\\n", end="")  # one write: torchrun starts workers unbuffered, and they share a pipe
run.finish(0)
seen = pathlib.Path(f"{sys.argv[1]}.{os.environ['RANK']}.{os.environ['TORCHELASTIC_RESTART_COUNT']}")
seen.touch()
if seen.name.endswith(".1.0"):
    while not seen.with_name(f"{sys.argv[1]}.0.0").exists():
        time.sleep(0.1)
    raise SystemExit(3)
"""


@needs("torch")
@pytest.mark.parametrize("named", [[], ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--rdzv-id=mine"]])
def test_torchrun_starts_workers_again(tmp_path: Path, named: list[str]) -> None:
    """A restart by torchrun is another attempt, even if a rank had finished; a later start is not."""
    (tmp_path / "elastic.py").write_text(_ELASTIC)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1", *named]
    seen = []
    for training in "ab":
        output = run([*torchrun, "elastic.py", training], tmp_path)
        seen.append(re.findall(r"saw (\S+) (\d)", output))

    for starts in seen:
        assert sorted(attempt for _, attempt in starts) == ["0", "0", "1", "1"]
        assert len({run_id for run_id, _ in starts}) == 1
    assert seen[0][0][0] != seen[1][0][0]


@pytest.mark.skipif(not shutil.which("mpiexec.hydra"), reason="MPICH is not installed")
def test_mpich(place: Path) -> None:
    """Ranks of one `mpiexec` have one run, also below a shell each; another `mpiexec` has another."""
    shell_each = ["mpiexec.hydra", "-n", "2", "bash", "-c", f"{sys.executable} ok.py; true"]
    found = [subprocess.run(shell_each, cwd=place, capture_output=True, text=True, check=True).stdout for _ in "12"]
    ids = [{line.split()[0] for line in text.splitlines()} for text in found]

    assert [len(one) for one in ids] == [1, 1]
    assert ids[0] != ids[1]


_ON_A_NODE = """
import logging, os, sys
import otel_rl
logging.basicConfig(stream=sys.stdout, format="%(message)s")
os.environ["OTEL_RL_IDLE_TIMEOUT"] = "2"
run = otel_rl.init(dir="runs", project="p", quiet=True, exporters=["jsonl"], hardware=False)
run.log({"loss": 1.0}, step=run.attempt)
"""


def test_a_backlog_on_another_node_is_told(tmp_path: Path) -> None:
    """A requeued job says where the former attempt was recorded, and the command that brings it; but for own nodes."""
    with sshfs(tmp_path) as shared:
        nodes = Nodes(shared, tmp_path / "disk")
        nodes.run("node1", _ON_A_NODE, **STEP, OTEL_RL_AGENT="off")
        again = STEP | {"SLURM_RESTART_COUNT": "1", "OTEL_RL_AGENT": "off"}
        told = nodes.run("node2", _ON_A_NODE, **again, SLURM_JOB_NODELIST="node[2-3]")
        own = nodes.run("node2", _ON_A_NODE, **again, SLURM_JOB_NODELIST="node[1-3]")
        run_dir = shared / "runs" / "p" / "slurm-7.0"
        said = [nodes.once(host, run_dir) for host in ("node1", "node2", "node2")]
        later = nodes.run("node3", _ON_A_NODE, **STEP, SLURM_RESTART_COUNT="2", OTEL_RL_AGENT="off")

        assert "attempt 0 of the run was recorded on node1" in told
        assert f"run on node1: otel-rl agent {run_dir} --once" in told
        assert "was recorded on node1" not in own
        assert said[2][0] == 0, said
        assert later == ""
