"""Records the runs in `tests/data/recorded` again: `python -m tests.look.checked_in_runs [KIND...]`, as root.

Real processes record them, and real signals kill some. All of this happens in namespaces with a host name, paths and a
machine id of their own, so that nothing of the machine is in the files but the version of its kernel. Each kind is a
function below. `unsent` needs sshfs and an SFTP server.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories

DATA = Path(__file__).parents[1] / "data" / "recorded" / "0.1.0"
_CHECKOUT = Path(__file__).parents[2]
_RUNS, _SHARED, _DISK, _WORK = Path("/srv/runs"), Path("/srv/shared"), Path("/srv/disk"), Path("/srv/train")
_ENTER = """
set -e
mount --make-rprivate /
hostname node1
mount -t tmpfs none /srv
mkdir /srv/{otel-rl,python,packages,home,runs,remote,shared,disk,train}
mount --bind "$1" /srv/otel-rl
mount --bind "$2" /srv/python
mount --bind "$3" /srv/packages
echo 00000000000000000000000000000001 > /srv/home/machine-id
echo 00000000-0000-0000-0000-000000000001 > /srv/home/boot-id
mount --bind /srv/home/boot-id /proc/sys/kernel/random/boot_id
[ ! -e /etc/machine-id ] || mount --bind /srv/home/machine-id /etc/machine-id
mount -t tmpfs none "$(dirname "$1")"
mount -t tmpfs none "$HOME"
cd /srv/train
exec env -i LD_LIBRARY_PATH=/srv/python/lib PATH=/usr/bin:/bin HOME=/srv/home LANG=C.UTF-8 \\
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$4" /srv/python/bin/"$5" -m tests.look.checked_in_runs inside "${@:6}"
"""
_SFTP = "/usr/lib/openssh/sftp-server"
_PATHS = "/srv/otel-rl:/srv/otel-rl/exporters:/srv/packages"
KEPT_ZEROS = 64
"""Bytes of the unused rest of a segment that are kept; a test makes the segment as large as it was."""

_INIT = """
import json, os, subprocess, sys, time
from pathlib import Path
import otel_rl

def begin(run_id, **options):
    options = dict(exporters=["jsonl"], dir="/srv/runs", hardware=False, idle_timeout=2, stalled_after=600) | options
    return otel_rl.init(project="recorded", id=run_id, quiet=True, **options)
"""
_FINISHED = """
import torch
rank = int(os.environ["RANK"])
run = begin("finished", content=True, exporters=["jsonl", "tensorboard"], config={"lr": 1e-6, "total_steps": 4},
            hardware={"interval": 1, "flush_interval": 1})
tickets = []
if rank == 0:
    subprocess.run([sys.executable, "rollout.py"], env=os.environ | run.environment(), check=True)
    tickets = json.loads(Path("tickets.json").read_text())
weights = [("layer.weight", torch.arange(16.0).reshape(4, 4)), ("layer.bias", torch.ones(4))]
for n in range(4):
    with run.step(n):
        with run.phase("generate", tokens=100):
            run.queue("rollouts", depth=4 - n, waited=0.5)
            time.sleep(0.3)
        with run.phase("update_actor"):
            time.sleep(0.2)
        run.log({"loss": 1 / (n + 1), "reward": [float(rank), float(n)], "tokens": 2**60 + 1})
        if rank == 0 and n < 3:
            run.trained([tickets[n]], policy_version=n, advantages=[0.5], losses=[0.25], logprobs=[[-0.5, -1.5]])
        elif rank == 0:
            run.dropped([tickets[n]], reason="stale")
            run.log({"kl": float("nan")})
        if rank == 0 and n < 2:
            run.weights(n, [(name, tensor + n) for name, tensor in weights])
            run.weights(n, weights, side="engine")
        if rank == 0 and n == 1:
            run.completions(["2+2="], [["4", "5"]], rewards=[[1.0, 0.0]])
        if rank == 0 and n == 2:
            run.table("failures", {"prompt": ["9+9="], "answer": ["99"]})
            run.event("checkpoint", path="ckpt/2")
            run.params({"beta": 0.04})
assert run.finish(60)
"""
_ROLLOUT = """
run = otel_rl.init(role="rollout")
tickets = []
for n in range(4):
    with run.trajectory(policy_version=0, prompt_id=f"p-{n}", group_id=f"g-{n}", row=n) as t:
        t.message("user", f"{n} + 2 = ?")
        with t.part("tool", name="python"):
            time.sleep(0.01)
        t.message("tool", str(n + 2), name="python")
        t.message("assistant", f"It is {n + 2}", tokens=[19, n], logprobs=[-0.25, -1.0], mask=[True, False],
                  pieces=["It is", f" {n + 2}"])
        t.generated(2)
        t.rewarded(n / 4, components={"format": 1.0, "verifier": 0.5})
    tickets.append(t.ticket())
Path("tickets.json").write_text(json.dumps(tickets))
"""
_CRASHED = """
run = begin("crashed")
for n in range(4):
    with run.step(n):
        with run.phase("generate"):
            run.log({"loss": float(n)})
        with run.phase("update_actor"):
            if n == 3:
                time.sleep(1)  # the agent has all of it
                os.kill(os.getpid(), 9)
"""
_RESUMED = """
run = begin("resumed")
for n in range(2 * run.attempt, 4 + 2 * run.attempt):
    with run.step(n), run.phase("update_actor"):
        run.log({"loss": n + 0.5 * run.attempt})
if run.attempt == 0:
    time.sleep(1)
    os.kill(os.getpid(), 9)
assert run.finish(60)
"""
_FAILED = """
run = begin("failed")
for n in range(4):
    with run.step(n), run.phase("generate"):
        run.log({"loss": float(n)})
        if n == 2:
            raise ValueError("no prompt")
"""
_GOES_ON = """
run = begin(sys.argv[1], content=True)
for n in range(6):
    while n == 3 and not Path("go").exists():
        time.sleep(0.05)
    with run.step(n):
        with run.phase("generate"), run.trajectory(policy_version=n, group_id=f"g-{n}") as t:
            t.message("assistant", f"answer {n}", tokens=[n], logprobs=[-0.5], mask=[True])
            t.generated(1)
            t.rewarded(1.0)
        run.trained([t.ticket()], policy_version=n)
        run.log({"loss": float(n)})
with run.step(6), run.phase("update_actor"):
    run.log({"loss": 6.0})
    Path("ready").touch()
    time.sleep(10**6)
"""
_NODES = """
rank = int(os.environ["RANK"])
run = begin(sys.argv[1], dir=os.environ["DIR"], head=os.environ["HEAD"], rows={"deadline": 60})
for n in range(4):
    with run.step(n), run.phase("generate"):
        run.log({"reward": [float(rank), float(n)]})
run.finish(float(os.environ["FINISH"]))
"""
_WITHOUT_ARCHIVE = """
run = begin("without-archive", archive_limit=0, hardware={"interval": 1, "flush_interval": 1})
for n in range(4):
    with run.step(n), run.phase("generate"):
        run.log({"loss": float(n)})
        time.sleep(0.5)
assert run.finish(60)
"""
_HUNG = """
rank = int(os.environ["RANK"])
run = begin("hung")
for n in range(3):
    with run.step(n), run.phase("generate"):
        run.log({"loss": float(n)})
with run.step(3), run.phase("update_actor"):
    Path(f"ready.{rank}").touch()
    if rank == 1:
        os.kill(os.getpid(), 19)
    while True:
        time.sleep(0.1)
"""
_THINNED = """
run = begin("thinned", archive_limit=34_000, content=True)
for n in range(40):
    with run.step(n):
        for _ in range(5):
            with run.phase("generate"):
                pass
        with run.trajectory(policy_version=n, group_id=f"g-{n}") as t:
            t.message("assistant", f"answer {n}")
        run.trained([t.ticket()], policy_version=n)
        run.log({"loss": float(n)})
assert run.finish(60)
"""


def main() -> None:
    """Record all kinds, or those that are named, in namespaces of their own."""
    if sys.argv[1:2] != ["inside"]:
        python = Path(sys.executable).resolve().name
        places = [_CHECKOUT, sys.base_prefix, sysconfig.get_path("purelib")]
        spaces = ["--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = ["unshare", *spaces, "bash", "-c", _ENTER, "enter", *map(str, places), _PATHS, python, *sys.argv[1:]]
        raise SystemExit(subprocess.run(command, check=False).returncode)
    for name in sys.argv[2:] or _KINDS:
        shutil.rmtree(DATA / name, ignore_errors=True)
        _KINDS[name]()
        with suppress(OSError):
            os.kill(-1, signal.SIGKILL)  # this is the first process of its namespace: all others
        _wait(_is_alone, "a process does not end")
        for path in _WORK.iterdir():
            path.unlink()
        print(name, flush=True)  # noqa: T201


def _finished() -> None:
    """Record two ranks of torchrun and a rollout worker, with everything that can be recorded."""
    _write("rollout.py", _ROLLOUT)
    _end(_start(_FINISHED, **_rank(n, 2), TORCHELASTIC_RUN_ID="job") for n in range(2))
    _keep("finished", _RUNS / "recorded" / "finished")


def _crashed() -> None:
    """Record a trainer that is killed inside of a phase; its agent goes on to its end."""
    _end([_start(_CRASHED)], -signal.SIGKILL)
    _keep("crashed", _RUNS / "recorded" / "crashed")


def _resumed() -> None:
    """Record an attempt that is killed, and another one that repeats two steps."""
    for code in (-signal.SIGKILL, 0):
        _end([_start(_RESUMED)], code)
    _keep("resumed", _RUNS / "recorded" / "resumed")


def _failed() -> None:
    """Record a trainer that ends with an exception inside of a phase."""
    _end([_start(_FAILED)], 1)
    _keep("failed", _RUNS / "recorded" / "failed")


def _live() -> None:
    """Copy a run between two writes of its agent and its trainer, both of which go on."""
    run = _RUNS / "recorded" / "live"
    _go_on("live", run, lambda: None)
    _wait(lambda: len((run / "rows.jsonl").read_bytes().splitlines()) == 6, "there are not six rows")
    os.kill(-1, signal.SIGSTOP)
    _keep("live", run)


def _killed() -> None:
    """Kill the trainer, its agent and the supervisor at once, while a journal has records that the agent has not."""
    run = _RUNS / "recorded" / "killed"
    agent = directories.at(run)
    _go_on("killed", run, lambda: os.kill(agent_start.read_status(agent).pid, signal.SIGSTOP))
    os.kill(-1, signal.SIGKILL)
    _wait(_is_alone, "a process does not end")
    _keep("killed", run)


def _go_on(name: str, run: Path, before: Callable[[], None]) -> None:
    """Start a run; when its first three steps are archived, do something, and let it record four more."""
    _start(_GOES_ON, name)
    _wait(lambda: [*run.glob("archive/*/tail/rows/*.parquet")], "nothing is archived")
    _wait(lambda: len((run / "rows.jsonl").read_bytes().splitlines()) == 3, "there are not three rows")
    before()
    (_WORK / "go").touch()
    _wait((_WORK / "ready").exists, "the trainer does not go on")


def _head() -> None:
    """Record two machines with a directory each, of which one sends to the head on the other."""
    nodes = [_node(n, "head", DIR=f"/srv/runs/node{n + 1}", HEAD="127.0.0.1:4320", FINISH="60") for n in range(2)]
    _end(nodes)
    for name in ("node1", "node2"):
        _keep(f"head/{name}", _RUNS / name / "recorded" / "head")


def _unsent() -> None:
    """Record two machines that share a directory; what one cannot send to the head stays in `unsent/`."""
    heads = ("127.0.0.1:4320", "192.0.2.1:4320")  # no machine answers at the second one
    settings = {"DIR": str(_SHARED), "OTEL_RL_TOKEN": "a-secret-of-the-tests", "OTEL_RL_INSECURE": "true"}
    server = subprocess.Popen([_SFTP], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    mount = ["sshfs", "-f", "-o", "passive,dir_cache=no", ":/srv/remote", str(_SHARED)]
    client = subprocess.Popen(mount, stdin=server.stdout, stdout=server.stdin)
    _wait(_SHARED.is_mount, "nothing is mounted")
    nodes = []
    for n, head in enumerate(heads):
        (disk := _DISK / f"node{n + 1}").mkdir()
        nodes.append(_node(n, "unsent", HEAD=head, FINISH="3", OTEL_RL_LOCAL_DIR=str(disk), **settings))
    _end(nodes, besides=(server.pid, client.pid))
    (part,) = (_DISK / "node1").glob("*/*")
    _keep("unsent/run", _SHARED / "recorded" / "unsent")
    _keep("unsent/node1", part)
    subprocess.run(["umount", str(_SHARED)], check=True)


def _without_archive() -> None:
    """Keep the two files of a run that `open_run` reads if there is no archive."""
    _end([_start(_WITHOUT_ARCHIVE)])
    run = _RUNS / "recorded" / "without-archive"
    (kept := _RUNS / "recorded" / "kept").mkdir()
    for name in ("rows.jsonl", "machine.jsonl"):
        shutil.copy(run / name, kept)
    _keep("without-archive", kept)


def _hung() -> None:
    """Ask for an autopsy of two ranks, of which one is stopped; then kill both."""
    ranks = [_start(_HUNG, **_rank(n, 2), TORCHELASTIC_RUN_ID="job") for n in range(2)]
    _wait(lambda: len([*_WORK.glob("ready.*")]) == 2, "the run does not hang")
    time.sleep(2)
    run = _RUNS / "recorded" / "hung"
    ask = [sys.executable, "-m", "otel_rl.cli", "autopsy", str(run), "--cause", "hangs"]
    subprocess.run(ask, check=True, stdout=subprocess.DEVNULL)
    for rank in reversed(ranks):
        rank.kill()
        time.sleep(1)
    _end(ranks, -signal.SIGKILL)
    _keep("hung", run)


def _thinned() -> None:
    """Record more spans and messages than the archive may have."""
    _end([_start(_THINNED)])
    _keep("thinned", _RUNS / "recorded" / "thinned")


_KINDS: dict[str, Callable[[], None]] = {
    "finished": _finished,
    "crashed": _crashed,
    "resumed": _resumed,
    "failed": _failed,
    "live": _live,
    "killed": _killed,
    "head": _head,
    "unsent": _unsent,
    "without-archive": _without_archive,
    "hung": _hung,
    "thinned": _thinned,
}


def _rank(rank: int, world: int) -> dict[str, str]:
    """Return the variables of a rank on one machine, as torchrun sets them."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "GROUP_RANK": 0}
    return {name: str(value) for name, value in numbers.items()}


def _node(number: int, name: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start the rank of a machine, which has a host name, and its own identity."""
    enter = f"""hostname node{number + 1}
echo 00000000-0000-0000-0000-00000000000{number + 1} > /srv/home/boot-id.{number}
mount --bind /srv/home/boot-id.{number} /proc/sys/kernel/random/boot_id
echo 0000000000000000000000000000000{number + 1} > /srv/home/machine-id.{number}
[ ! -e /etc/machine-id ] || mount --bind /srv/home/machine-id.{number} /etc/machine-id
exec "$@" """
    ranks = {"RANK": number, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 1, "GROUP_RANK": number}
    told = environment | {key: str(value) for key, value in ranks.items()}
    return _start(_NODES, name, through=["unshare", "--uts", "--mount", "bash", "-ec", enter, "enter"], **told)


def _start(script: str, *arguments: str, through: Iterable[str] = (), **environment: str) -> subprocess.Popen[bytes]:
    """Start a trainer."""
    command = [*through, sys.executable, _write("train.py", script), *arguments]
    return subprocess.Popen(command, env=os.environ | environment)


def _write(name: str, script: str) -> str:
    (_WORK / name).write_text(_INIT + script)
    return name


def _end(processes: Iterable[subprocess.Popen[bytes]], code: int = 0, besides: Iterable[int] = ()) -> None:
    """Wait until processes and all that they have started have ended."""
    for process in list(processes):
        if (ended := process.wait(120)) != code:
            raise SystemExit(f"a trainer has ended with {ended}")
    _wait(lambda: _is_alone(besides), "an agent does not end", 120)


def _is_alone(besides: Iterable[int] = ()) -> bool:
    """Return whether this process is alone, besides some others; those that have lost their parent are its children."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return {path.name for path in Path("/proc").iterdir() if path.name.isdecimal()} <= {"1", *map(str, besides)}


def _wait(condition: Callable[[], object], otherwise: str, timeout_s: float = 60) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(otherwise)
        time.sleep(0.05)


def _keep(name: str, run: Path) -> None:
    """Copy a run directory; of the unused rest of a segment, a few zeros are kept."""
    shutil.copytree(run, DATA / name)
    for path in (DATA / name).rglob("*.seg"):
        content = path.read_bytes()
        used = len(content.rstrip(b"\0"))
        if len(content) > used + KEPT_ZEROS:
            os.truncate(path, used + KEPT_ZEROS)


if __name__ == "__main__":
    main()
