"""Other users of the machine read, list and write nothing of a run, whatever the umask, unless it is shared."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import otel_rl
from otel_rl.recorder.files.modes import SHARED
from otel_rl.serve.bridge.runs import Runs
from tests.collector import wait_for
from tests.exporters.every import EVERY_EXPORTER, OFFLINE, needs_every_package
from tests.prometheus import running
from tests.real_parts import needs_program
from tests.security.other_users import NOBODY, as_nobody, everything_in, modes_of, needs_root, reached_by_nobody

pytestmark = needs_root
UMASKS = ["0", "777"]
_TRAIN = """
import sys, otel_rl
run = otel_rl.init(dir="runs", project="p", id="r", exporters=sys.argv[1].split(","), content=True, quiet=True,
                   config={"lr": 1e-6}, hardware=False, **({"share": sys.argv[2]} if sys.argv[2] else {}))
for step in range(3):
    with run.step(step):
        run.log({"loss": 1.0, "reward": [0.0, 1.0]})
        run.table("texts", {"prompt": ["a prompt"], "reward": [1.0]})
assert run.finish(120), run.dir
"""
_AS_A_USER = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]
"""Root, to whom modes apply as to every user."""


def train(place: Path, umask: str, exporters: list[str], share: str = "") -> list[Path]:
    """Record a run with a umask; return all that was created, also by trackers outside of the run directory."""
    for name in ("home", "temporary"):
        (place / name).mkdir()
    environment = {"HOME": str(place / "home"), "TMPDIR": str(place / "temporary")}
    command = [*_AS_A_USER, "sh", "-c", f'umask {umask}; exec "$@"', "sh", sys.executable, "-c", _TRAIN]
    done = subprocess.run(
        [*command, ",".join(exporters), share],
        cwd=place,
        env=os.environ | environment | OFFLINE,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    wait_for(lambda: not _writers(place), "the agent and the trackers do not end", 120)
    return everything_in(*(place / name for name in ("runs", "home", "temporary")))


def _writers(place: Path) -> list[int]:
    """Return the processes whose home is in a place: an agent, and what trackers start; they remove files too."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HOME") == str(place / "home") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def private(place: Path, created: list[Path]) -> list[Path]:
    """Return what no other user may reach: everything but the way to the target files of Prometheus."""
    open_to_all = {place / "runs", place / "home", place / "temporary"}
    return [path for path in created if path not in open_to_all and ".targets" not in path.parts]


@pytest.mark.slow
@pytest.mark.parametrize("umask", UMASKS)
def test_the_umask_does_not_decide(crowded: Path, umask: str) -> None:
    """A run is recorded under each, and directories are 0700, files 0600."""
    found = private(crowded, train(crowded, umask, ["jsonl", "sidecar"]))

    assert len(found) > 20
    assert modes_of(path for path in found if path.is_dir()) == {0o700}
    assert modes_of(path for path in found if path.is_file()) == {0o600}


@needs_every_package
@pytest.mark.slow
def test_nobody_reaches_what_exporters_write(crowded: Path) -> None:
    """Of a run with every exporter, nothing is read, listed or written, with umask 0."""
    found = private(crowded, train(crowded, "0", EVERY_EXPORTER))
    names = {path.relative_to(crowded / "runs" / "p" / "r").parts[0] for path in found if "r" in path.parts[:-1]}
    print(f"{len(found)} files and directories")  # noqa: T201 - a figure for the docs

    assert {"rows.jsonl", "tensorboard", "wandb", "mlflow.db", "swanlab", "tables"} <= names
    assert reached_by_nobody(found) == {"read": [], "write": []}
    assert {mode & 0o077 for mode in modes_of(found)} == {0}


@pytest.mark.parametrize(("share", "is_member"), [("group", True), ("group", False), ("all", False)])
def test_a_shared_run(crowded: Path, share: str, is_member: bool) -> None:
    """The group of the directory reads it, or all users; nobody else does, and nobody writes or reaches `local/`."""
    created = private(crowded, train(crowded, "077", ["jsonl"], share))
    local = crowded / "runs" / "p" / "r" / "local"
    found = [path for path in created if not path.is_relative_to(local)]
    reached = reached_by_nobody([*found, *everything_in(local)], *([os.getgid()] if is_member else []))

    assert modes_of(found) == {*SHARED[share]}
    assert modes_of([local]) == {0o700}
    assert reached["read"] == ([str(path) for path in found] if is_member or share == "all" else [])
    assert reached["write"] == []


@pytest.mark.slow
@needs_program("prometheus")
def test_prometheus_is_another_user(crowded: Path) -> None:
    """It finds the agent by the target files of a private run."""
    targets = {"files": ["runs/.targets/*.json"], "refresh_interval": "1s"}
    job = {"job_name": "runs", "scrape_interval": "1s", "file_sd_configs": [targets]}
    (crowded / "prometheus.yml").write_text(json.dumps({"scrape_configs": [job]}))
    run = otel_rl.init(dir=crowded / "runs", exporters=["prometheus"], hardware=False, quiet=True, project="p")
    with running(crowded, user=NOBODY) as prometheus:
        wait_for(lambda: prometheus.query("up"), "Prometheus does not find the agent", 90)
    run.finish(30)


@pytest.mark.slow
def test_killed_at_each_moment_of_a_start(crowded: Path) -> None:
    """SIGKILL before any operation on a file: nothing that exists then is open to others, with umask 0."""
    for moment in itertools.count():
        runs = crowded / f"killed{moment}"
        code = _start_in_child(runs, moment)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        found = [path for path in everything_in(runs) if path != runs] if runs.exists() else []
        assert {mode & 0o077 for mode in modes_of(found)} <= {0}, (moment, found)
    print(f"{moment} moments")  # noqa: T201 - a figure for the docs

    assert moment > 20


def _start_in_child(runs: Path, killed_at: int) -> int:
    """Begin a run in a child with umask 0, which dies before an operation on a file; return its exit code."""
    child = os.fork()
    if child == 0:
        left = [killed_at]

        def count(event: str, arguments: tuple[object, ...]) -> None:
            if event in ("open", "os.mkdir", "os.rename", "os.chmod") and str(runs) in str(arguments[0]):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        os.umask(0)
        sys.addaudithook(count)
        try:
            otel_rl.init(dir=runs, project="p", id="r", agent="off", exporters=["jsonl"], quiet=True)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_run_of_an_earlier_version(crowded: Path) -> None:
    """Its next attempt closes it: earlier versions left runs open to all."""
    run = crowded / "runs" / "p" / "r"
    (run / "attempts").mkdir(parents=True)
    (run / "run.json").touch()
    (run / "checkpoint.pt").touch()
    for path in (run, *run.iterdir()):
        path.chmod(0o775)
    otel_rl.init(dir=crowded / "runs", project="p", id="r", agent="off", quiet=True).finish(0)

    assert reached_by_nobody(everything_in(run)) == {"read": [], "write": []}
    assert modes_of([run, run / "attempts"]) == {0o700}
    assert modes_of([run / "checkpoint.pt"]) == {0o775}  # of the user, who may move it elsewhere


def test_a_second_attempt_stays_private(crowded: Path) -> None:
    """Files that exist, and those that are new, are this user's alone."""
    os.umask(0)
    for _ in range(2):
        otel_rl.init(dir=crowded / "runs", project="p", id="r", agent="off", quiet=True).finish(0)

    assert modes_of(everything_in(crowded / "runs" / "p")) == {0o700, 0o600}


def test_directories_of_the_user_stay_as_they_are(crowded: Path) -> None:
    """The mode of a `dir` that existed is the user's."""
    runs = crowded / "runs"
    runs.mkdir()
    runs.chmod(0o770)
    otel_rl.init(dir=runs, project="p", agent="off", quiet=True).finish(0)

    assert modes_of([runs]) == {0o770}


def test_the_umask_of_the_trainer(crowded: Path) -> None:
    """It is the user's, and stays as it is."""
    os.umask(0o027)
    otel_rl.init(dir=crowded / "runs", agent="off", quiet=True, project="p").finish(0)

    assert os.umask(0o027) == 0o027


def test_a_file_system_without_modes(crowded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the mode of a file cannot be changed, the run is recorded all the same."""

    def refuse(*_: object) -> None:
        raise PermissionError

    os.umask(0o777)
    monkeypatch.setattr(os, "fchmod", refuse)
    run = otel_rl.init(dir=crowded / "runs", agent="off", quiet=True, project="p")

    assert run.dir.is_relative_to(crowded)


@pytest.mark.parametrize("umask", [0, 0o777])
def test_runs_of_a_bridge(crowded: Path, umask: int) -> None:
    """The directories of a bridge are private too; its process has a umask of its own."""
    os.umask(umask)
    runs = Runs(crowded / "bridged", [])
    runs.close()

    assert as_nobody(lambda: os.access(crowded / "bridged", os.R_OK)) is False
