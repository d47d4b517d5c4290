"""Jobs as users submit them, each in a directory of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.cluster.left_behind import LeftBehind
from tests.cluster.slurm import DAVE, Job, Slurm, User

_HERE = Path(__file__).parent
_BEGUN_S = 400
TEMPLATES = _HERE.parents[1] / "deploy" / "slurm"


class Case(NamedTuple):
    """A job to submit."""

    script: str  # what the batch script does, or the name of a template such as `train.sbatch`, which is used as it is
    options: str = ""  # of sbatch
    variables: Mapping[str, str] = {}  # the environment of sbatch
    user: User = DAVE  # who submits it
    then: Callable[[Submitted], None] | None = None
    """The action on it when it has delivered rows; a training with WAITS waits for it."""


class Submitted(NamedTuple):
    """A job that was submitted."""

    slurm: Slurm  # where
    id: int  # its number
    case: Case  # what it is
    inside: str  # the directory it works in, as machines see it
    done: list[Future[None]]  # what is done to it

    @property
    def left(self) -> LeftBehind:
        """The files and processes that it has left behind by now."""
        return LeftBehind(self.slurm.home(self.case.user) / Path(self.inside).name)

    def begun(self) -> None:
        """Wait until it has delivered rows."""
        try:
            self.slurm.until(
                lambda: any(len(run.rows) > 5 for run in self.left.runs), f"no rows of {self.inside}", _BEGUN_S
            )
        except AssertionError as error:
            logs = "\n".join(f"{run.path} {len(run.rows)} rows\n{run.log}" for run in self.left.runs)
            raise AssertionError(f"{error}\n{self.left.output}\n{logs}") from None

    def user(self, command: str) -> str:
        """Run a command as the user of the job; it must succeed."""
        return self.slurm.run(self.case.user, command)

    def wait(self, timeout: float = 400) -> Job:
        """Wait until it has ended and everything is done to it; return Slurm's record of it."""
        for one in self.done:
            one.result(timeout)
        return self.slurm.wait(self.id, timeout)

    def run(self, command: str, machine: str = "ctl", timeout: float = 120) -> tuple[int, str]:
        """Run a command in the job's directory, outside of the job; return its exit status and all it printed."""
        code, output, errors = self.slurm.attempt(
            self.case.user, f"cd {self.inside} && {command}", machine, timeout, **self.case.variables
        )
        return code, output + errors

    def deliver(self, machine: str) -> tuple[int, str]:
        """Do what the documentation says of runs whose rows are not all there, on a machine."""
        (run,) = self.left.runs
        return self.run(f"otel-rl agent runs/test/{run.path.name} --once", machine)


class Cluster:
    """A Slurm, and the directories of jobs on it.

    Args:
        slurm: The Slurm.
    """

    def __init__(self, slurm: Slurm) -> None:
        self.slurm = slurm
        self._threads = ThreadPoolExecutor(32)

    def directory(self, name: str, user: User = DAVE) -> str:
        """Make a directory of a user with the training in it; return where machines see it."""
        outside = self.slurm.home(user) / name
        outside.mkdir()
        shutil.copy(_HERE / "train.py", outside)
        for path in (outside, *outside.iterdir()):
            os.chown(path, user.uid, user.uid)
        return f"{user.home}/{name}"

    def submit(self, name: str, case: Case) -> Submitted:
        """Submit a job."""
        inside = self.directory(name, case.user)
        outside = self.slurm.home(case.user) / name
        if case.script.endswith(".sbatch"):
            self.template(case.script, name, case.user)
            script, output = case.script, ""
        else:
            script, output = "job.sh", "--output=job.log"
            (outside / script).write_text(f"#!/bin/bash\n{case.script}\n")
        options = f"{output} {case.options} {script}"
        number = self.slurm.sbatch(case.user, inside, options, **case.variables)
        job = Submitted(self.slurm, number, case, inside, [])
        if case.then is not None:
            job.done.append(self._threads.submit(_do, case.then, job))
        return job

    def template(self, script: str, name: str, user: User) -> str:
        """Copy a script of `deploy/slurm` into a directory of a user, as it is; return where machines see it."""
        shutil.copy(TEMPLATES / script, self.slurm.home(user) / name)
        return f"{user.home}/{name}/{script}"

    def left(self, inside: str, user: User) -> LeftBehind:
        """Return what is left in a directory of a user."""
        return LeftBehind(self.slurm.home(user) / Path(inside).name)


def _do(then: Callable[[Submitted], None], job: Submitted) -> None:
    job.begun()
    then(job)
