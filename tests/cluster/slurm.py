"""A Slurm on machines: controller on the first one, nodes on the others, and a file system over the network."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.cluster.machines import ROOT, SUPERUSER, Machines, RefusedError, User

PROGRAMS = ("slurmctld", "slurmd", "munged", "mpirun", "sshfs", "socat")
"""Of Debian's packages slurm-wlm, munge, openmpi-bin, sshfs and socat; `_SFTP` is of openssh-sftp-server."""
SFTP = Path("/usr/lib/openssh/sftp-server")
ALICE, BOB, CAROL, DAVE = User("alice", 23001), User("bob", 23002), User("carol", 23003), User("dave", 23004)
"""The homes of Alice and Bob are on a file system that all machines mount, and that no list of network file systems
names. Carol's and Dave's are an sshfs each: Carol's refuses links that lead out of it, as sshfs does by default."""
_SSHFS = {CAROL: "contain_symlinks", DAVE: "no_contain_symlinks"}
NODE_CPUS = 8
"""More than there are, so that many jobs run at once."""
_READY_S = 60
_SFTP_PORT = 7000
_CONTROLLER = "ctl"
_CONF = """
ClusterName=test
SlurmctldHost={controller}({address})
SlurmUser=root
AuthInfo=cred_expire=5
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile={root}/log/{controller}
SlurmdLogFile={root}/log/%n
SlurmdParameters=config_overrides
ProctrackType={proctrack}
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=100000
GresTypes=gpu
Prolog={root}/etc/prolog
TaskProlog={root}/etc/task-prolog
Epilog={root}/etc/epilog
PrologFlags=Alloc
ReturnToService=2
KillWait=10
MinJobAge=36000
"""
_PROLOG = """#!/bin/sh
# A temporary directory of the job alone, for jobs of one partition.
if [ "$SLURM_JOB_PARTITION" = scratch ]; then
  mkdir -m 700 "/tmp/job.$SLURM_JOB_ID" && chown "$SLURM_JOB_UID" "/tmp/job.$SLURM_JOB_ID"
fi
"""
_TASK_PROLOG = """#!/bin/sh
if [ -d "/tmp/job.$SLURM_JOB_ID" ]; then echo "export TMPDIR=/tmp/job.$SLURM_JOB_ID"; fi
"""
_EPILOG = """#!/bin/sh
rm -rf "/tmp/job.$SLURM_JOB_ID"
"""


class Job(NamedTuple):
    """What Slurm says of a job."""

    id: int  # its number
    state: str  # such as COMPLETED, TIMEOUT or CANCELLED
    exit_code: str  # exit status of the batch script and the signal that ended it, such as `0:0`
    nodes: str  # its nodes in Slurm's short form
    restarts: int  # how often it was requeued


class Slurm:
    """A cluster: a controller and nodes.

    Args:
        root: An empty directory.
        nodes: Host names of the nodes.
        seen: Directories of this host that jobs see: what Python and this package need is always among them.
    """

    def __init__(self, root: Path, nodes: Sequence[str], seen: Sequence[Path] = ()) -> None:
        self.nodes = list(nodes)
        self.repository = Path(__file__).parents[2]
        always = [Path(sys.prefix), Path(sys.base_prefix), self.repository]
        self.machines = Machines(root, [_CONTROLLER, *nodes], [ALICE, BOB, *_SSHFS], [*always, *seen])
        self.root = root

    def start(self) -> None:
        """Start everything, and wait until the nodes are idle.

        Raises:
            RefusedError: The kernel does not allow machines.
        """
        self.machines.start()
        self._try_python()
        self._configure()
        for name in self.machines.names:
            place = "--socket=/run/munge/munge.socket.2 --pid-file=/run/munge/pid --seed-file=/run/munge/seed"
            self._root(name, f"munged --force {place} --log-file=/run/munge/log --key-file={ROOT}/etc/munge.key")
        for number, user in enumerate(_SSHFS):
            listen, program = f"TCP-LISTEN:{_SFTP_PORT + number},fork,reuseaddr", f"EXEC:{SFTP},su={user.name}"
            self._root(_CONTROLLER, f"setsid -f socat {listen} {program} >/run/socat.{number} 2>&1")
        self._root(_CONTROLLER, f"slurmctld -c -f {ROOT}/etc/slurm.conf")
        for name in self.nodes:
            self._root(name, f"slurmd -N {name} -f {ROOT}/etc/slurm.conf")
        self.until(lambda: len(self.idle()) == len(self.nodes), "the nodes are not idle")
        self.until(lambda: not self._mount(), "the homes on the network are not there")

    def close(self) -> None:
        """End it."""
        self.machines.close()

    def run(self, user: User, command: str, machine: str = _CONTROLLER, timeout: float = 120, **more: str) -> str:
        """Run a command of the shell as a user does; return what it prints. It must succeed."""
        code, output, errors = self.attempt(user, command, machine, timeout, **more)
        assert code == 0, (command, code, output, errors)
        return output

    def attempt(
        self, user: User, command: str, machine: str = _CONTROLLER, timeout: float = 120, **more: str
    ) -> tuple[int, str, str]:
        """Run a command of the shell as a user does; return its exit status, output and errors."""
        process = self.popen(user, command, machine, **more)
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return process.returncode, output, errors

    def popen(self, user: User, command: str, machine: str = _CONTROLLER, **more: str) -> subprocess.Popen[str]:
        """Start a command of the shell as a user does: with this Python's directory on PATH, and Slurm's commands."""
        path = f"{Path(sys.prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        return self.machines.popen(
            machine, user, command, {"PATH": path, "SLURM_CONF": f"{ROOT}/etc/slurm.conf", **more}
        )

    def sbatch(self, user: User, directory: str, options: str, **more: str) -> int:
        """Submit a job from a directory; return its number."""
        told = self.run(user, f"cd {directory} && sbatch --parsable {options}", **more)
        return int(told.strip().partition(";")[0])

    def job(self, number: int | str) -> Job:
        """Return what Slurm says of a job, or of a task of an array such as `12_1`."""
        told = self.run(SUPERUSER, f"scontrol --oneliner show job {number}")
        said = dict(re.findall(r"(\w+)=(\S*)", told))
        return Job(int(said["JobId"]), said["JobState"], said["ExitCode"], said["NodeList"], int(said["Restarts"]))

    def wait(self, number: int | str, timeout: float = 240) -> Job:
        """Wait until a job has ended and its nodes are free; return Slurm's record of it."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED")
        self.until(lambda: self.job(number).state in over, f"job {number} is not over", timeout)
        return self.job(number)

    def wait_for(self, number: int | str, *states: str, timeout: float = 120) -> Job:
        """Wait until a job is in one of some states."""
        self.until(lambda: self.job(number).state in states, f"job {number} is not {states}", timeout)
        return self.job(number)

    def idle(self) -> list[str]:
        """Return the nodes that are up, whatever runs there."""
        code, told, _ = self.attempt(SUPERUSER, "sinfo --noheader --Node --partition=main --format='%N %t'")
        return (
            [line.split()[0] for line in told.splitlines() if line.split()[1] in ("idle", "mix", "alloc")]
            if not code
            else []
        )

    def home(self, user: User) -> Path:
        """Return where this host sees the home of a user."""
        return self.root / ("remote" if user in _SSHFS else "home") / user.name

    def log(self, name: str) -> str:
        """Return what a daemon logged."""
        return (self.root / "log" / name).read_text(errors="replace")

    def until(self, condition: object, otherwise: str, timeout: float = _READY_S) -> None:
        """Wait until a condition holds; fail with what the daemons logged last."""
        until = time.monotonic() + timeout
        while not condition():  # type: ignore[operator]
            assert time.monotonic() < until, f"{otherwise}: {self._tail()}"
            time.sleep(0.3)

    def _root(self, machine: str, command: str) -> None:
        code, output, errors = self.attempt(SUPERUSER, command, machine)
        assert code == 0, (machine, command, output, errors)

    def _mount(self) -> int:
        """Mount the network file systems; return the number of mounts that are still missing."""
        refused = 0
        for number, (user, how) in enumerate(_SSHFS.items()):
            options = f"directport={_SFTP_PORT + number},allow_other,dir_cache=no,{how},uid={user.uid},gid={user.uid}"
            source = f"{_CONTROLLER}:{ROOT}/remote/{user.name} {user.home}"
            for machine in self.machines.names:
                command = f"mountpoint -q {user.home} || sshfs -o {options} {source}"
                refused += self.attempt(SUPERUSER, command, machine)[0] != 0
        return refused

    def _try_python(self) -> None:
        """Run Python as an ordinary user.

        Raises:
            RefusedError: It does not run.
        """
        code, _, errors = self.attempt(ALICE, f"{sys.executable} -c 'import otel_rl'")
        if code:
            raise RefusedError(f"an ordinary user cannot run this Python: {errors.strip()[-300:]}")

    def _configure(self) -> None:
        machines, root = self.machines, self.root
        for place in ("state", "spool", "log", "remote"):
            (root / place).mkdir()
        for user in _SSHFS:
            (root / "remote" / user.name).mkdir()
            os.chown(root / "remote" / user.name, user.uid, user.uid)
        key = root / "etc" / "munge.key"
        key.write_bytes(secrets.token_bytes(256))
        key.chmod(0o400)
        for name, script in (("prolog", _PROLOG), ("task-prolog", _TASK_PROLOG), ("epilog", _EPILOG)):
            (root / "etc" / name).write_text(script)
            (root / "etc" / name).chmod(0o755)
        proctrack = "proctrack/cgroup" if machines.has_freezer else "proctrack/linuxproc"
        conf = _CONF.format(
            controller=_CONTROLLER, address=machines.address(_CONTROLLER), root=ROOT, proctrack=proctrack
        )
        for name in self.nodes:
            conf += (
                f"NodeName={name} NodeAddr={machines.address(name)} NodeHostname={name} CPUs={NODE_CPUS} Gres=gpu:8\n"
            )
        for partition, default in (("main", "YES"), ("scratch", "NO")):
            conf += f"PartitionName={partition} Nodes=ALL Default={default} State=UP\n"
        (root / "etc" / "slurm.conf").write_text(conf)
        (root / "etc" / "cgroup.conf").write_text("CgroupMountpoint=/sys/fs/cgroup\nCgroupPlugin=cgroup/v1\n")
        for number in range(8):  # Slurm wants a file for each, and no more of it
            (root / "etc" / f"gpu{number}").touch()
        (root / "etc" / "gres.conf").write_text(f"Name=gpu File={ROOT}/etc/gpu[0-7]\n")

    def _tail(self) -> str:
        return "\n".join(
            f"{one.name}: {one.read_text(errors='replace')[-1500:]}" for one in (self.root / "log").iterdir()
        )


def missing() -> list[str]:
    """Return the programs that are not on this host."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    absent = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    return [*absent, *([] if SFTP.exists() else [str(SFTP)])]
