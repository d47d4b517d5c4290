"""Another user makes the directories first that otel-rl uses next to the runs, in a place where all can make some."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import otel_rl
from otel_rl.cli import main
from otel_rl.cli.late.once import LateDelivery
from otel_rl.cli.verbs.watch import waiting
from otel_rl.recorder.agent.output.targets import STALE_S, Target, sweep
from otel_rl.recorder.directory import agent_start, trainings
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.files.locks import Lock, is_held
from otel_rl.recorder.files.own_directory import OwnDirectory
from otel_rl.recorder.settings.loading import load
from otel_rl.recorder.settings.settings import JobSettings
from otel_rl.serve.bridge.runs import Runs
from otel_rl.serve.verbs.stack import prepare
from tests.collector import wait_for
from tests.faults.test_trainings import STEP
from tests.security.other_users import NOBODY, SOMEBODY, as_nobody, everything_in, needs_root

pytestmark = needs_root
WAYS: dict[str, Callable[[Path, Path], object]] = {
    "a link": lambda place, victim: place.symlink_to(victim),
    "a directory": lambda place, _: place.mkdir(),
}
"""How another user takes the name of a directory; the victim has one too."""


@pytest.fixture
def runs(crowded: Path) -> Path:
    """Return a directory of runs in which every user can make files, as in `/tmp`."""
    place = crowded / "runs"
    place.mkdir()
    place.chmod(0o1777)
    return place


@pytest.fixture
def victim(crowded: Path) -> Path:
    """Return a directory of this user with a file that is old and would be removed as a scrape target."""
    place = crowded / "victim"
    place.mkdir()
    for name in ("old.json", "prometheus.yml", "prometheus.log"):
        (place / name).write_text("of the victim")
        os.utime(place / name, (time.time() - 2 * STALE_S,) * 2)
    return place


def content_of(place: Path) -> dict[str, str]:
    """Return what is in a directory, files with their content."""
    return {path.name: path.read_text() if path.is_file() else "" for path in place.iterdir()}


def stack(command: str, runs: Path) -> tuple[int, str]:
    """Run `otel-rl stack` without containers; return its exit code and what it printed."""
    done = CliRunner().invoke(main, ["stack", command, "--dir", str(runs), *(["--local"] if command == "up" else [])])
    return done.exit_code, done.output


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Find no servers and no container engine, and keep the umask."""
    monkeypatch.setenv("PATH", "/nonexistent")
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize("way", WAYS)
def test_scrape_targets_in_a_directory_of_another_user(runs: Path, victim: Path, way: str) -> None:
    """Nothing is written there, and nothing is removed: by an agent, `watch` and `stack` alike."""
    as_nobody(lambda: str(WAYS[way](runs / ".targets", victim)))
    before = content_of(victim)
    target = Target(runs / ".targets" / "p.r.node.json", "r", "http://node:9464/metrics", [], sweeps=True)
    target.start()
    sweep(runs / ".targets", now=time.time())
    code, said = stack("up", runs)
    target.close()

    assert content_of(victim) == before
    assert content_of(runs / ".targets") == (before if way == "a link" else {})
    assert code == 1
    assert ".targets" in said


def test_scrape_targets_on_a_volume_that_a_group_can_write(runs: Path) -> None:
    """Kubernetes opens the directories of a volume: the agent closes its own again."""
    (runs / ".targets").mkdir(mode=0o775)
    (runs / ".targets").chmod(0o2775)
    target = Target(runs / ".targets" / "p.r.node.json", "r", "http://node:9464/metrics", [], sweeps=False)
    target.start()
    written = (runs / ".targets" / "p.r.node.json").exists()
    target.close()

    assert written
    assert (runs / ".targets").stat().st_mode & 0o022 == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_stack_in_a_directory_of_another_user(runs: Path, victim: Path, way: str) -> None:
    """No file is written through his links, no server reads his configuration, and the message has the fix."""

    def attack() -> None:
        WAYS[way](runs / ".stack", victim)
        if way == "a directory":
            (runs / ".stack" / "prometheus.yml").symlink_to(victim / "prometheus.yml")
            (runs / ".stack" / "prometheus.log").symlink_to(victim / "prometheus.log")

    as_nobody(attack)
    before = content_of(victim)
    code, said = stack("up", runs)

    assert content_of(victim) == before
    assert (code, "remove it" in said) == (1, True), said


def test_a_process_that_another_user_names(runs: Path) -> None:
    """`stack down` ends no process whose id he wrote down, though the command line of it has the directory."""
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", str(runs / ".stack")])

    def attack() -> None:
        (runs / ".stack").mkdir()
        (runs / ".stack" / "prometheus.pid").write_text(str(sleeper.pid))

    as_nobody(attack)
    code, said = stack("down", runs)
    lives = sleeper.poll() is None
    sleeper.send_signal(signal.SIGKILL)
    sleeper.wait()

    assert lives
    assert (code, "belongs to nobody" in said) == (1, True), said


def test_a_stack_that_others_can_replace(runs: Path) -> None:
    """Where other users can rename the directory, its servers would read what they put in its place."""
    runs.chmod(0o777)
    code, said = stack("up", runs)

    assert (code, f"run chmod +t {runs}" in said) == (1, True), said


def test_links_that_stay_from_an_open_directory(runs: Path, victim: Path) -> None:
    """Files of the stack are replaced, never written through a link."""
    (runs / ".stack").mkdir(mode=0o700)
    (runs / ".stack" / "prometheus.yml").symlink_to(victim / "prometheus.yml")
    before = content_of(victim)
    prepare(runs, {})

    assert content_of(victim) == before
    assert not (runs / ".stack" / "prometheus.yml").is_symlink()


@pytest.mark.parametrize("way", WAYS)
def test_trainings_of_a_job_in_a_directory_of_another_user(
    runs: Path, victim: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is made there: the start counts as the only training of its job."""
    name = f".trainings-{os.getuid()}"
    as_nobody(lambda: str(WAYS[way](runs / name, victim)))
    before = content_of(victim)
    for variable, value in STEP.items():
        monkeypatch.setenv(variable, value)
    settings = load({"dir": str(runs), "project": "p"})
    found = trainings.find_run(settings)

    assert isinstance(settings, JobSettings)
    assert content_of(victim) == before
    assert content_of(runs / name) == (before if way == "a link" else {})
    assert found.settings.id == settings.id


def test_what_takes_the_place_of_a_directory_that_is_open(runs: Path, victim: Path) -> None:
    """It gets nothing: the directory that was examined is the one that is used."""
    with OwnDirectory(runs / "own", 0o755) as own:
        (runs / "own").rename(runs / "moved")
        (runs / "own").symlink_to(victim)
        own.write("old.json", b"new")
        own.remove("old.json")

    assert content_of(victim)["old.json"] == "of the victim"


def begin(runs: Path, **given: object) -> otel_rl.Run:
    """Begin a run without an agent, and log a step."""
    run = otel_rl.init(  # type: ignore[arg-type]
        dir=runs, project="p", id="r", exporters=["jsonl"], hardware=False, quiet=True, **given
    )
    run.log({"loss": 1.0}, step=0)
    return run


def test_watch_among_the_directories_of_others(runs: Path) -> None:
    """Whatever others put next to a run, `watch` finds the run."""
    (runs / "secret" / "inside").mkdir(parents=True)
    (runs / "secret").chmod(0o700)

    def attack() -> None:
        for place in (runs, runs / "p"):
            (place / "a run" / "local" / "node" / "journals" / "rank0.attempt0.0").mkdir(parents=True)
            (place / "a run" / "local" / "node").chmod(0o711)
            os.mkfifo(place / "a run" / "run.json")
            os.mkfifo(place / "a run" / "local" / "node" / "agent.json")
            for name in ("a private run", "a private part/local"):
                (place / name / "local").mkdir(parents=True)
                (place / name).chmod(0)
            (place / "a loop").symlink_to("a loop")
            (place / "a link into a private directory").symlink_to(runs / "secret" / "inside")
            (place / "a file").touch()
            os.mkfifo(place / "a pipe")

    begin(runs, agent="off").finish(0)
    for path in everything_in(runs / "p" / "r"):
        os.chown(path, SOMEBODY, SOMEBODY)
    (runs / "p").chmod(0o1777)
    as_nobody(attack)
    found = as_nobody(lambda: [str(directory.path) for directory in waiting(runs)], user=SOMEBODY)

    assert str(runs / "p" / "r") in found  # type: ignore[operator]


def test_a_run_of_another_user_who_holds_its_lock(runs: Path) -> None:
    """No agent is started for it, and nobody waits for the lock."""
    begin(runs, agent="off").finish(0)
    run = directories.at(runs / "p" / "r")
    for path in everything_in(run.path):
        os.chown(path, NOBODY, NOBODY)
    with Lock(run.start_lock), pytest.raises(SettingsError, match="belongs to nobody"):
        agent_start.ensure_agent(run, show_output=False)


@pytest.mark.parametrize("share", ["group", "all"])
def test_a_reader_cannot_lock_a_run(runs: Path, share: str) -> None:
    """Readers of a run can hold none of its locks: the next attempt and the agent start at once."""
    begin(runs, share=share).finish(30)
    before = directories.at(runs / "p" / "r")
    wait_for(lambda: not agent_start.is_looked_after(before), "the agent does not end", 60)
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(os.getgid() if share == "group" else NOBODY)
        os.setuid(NOBODY)
        held = []
        for place, _, _ in os.walk(runs / "p" / "r"):
            fd = os.open(place, os.O_RDONLY)
            fcntl.flock(fd, fcntl.LOCK_EX)
            held.append(place)
        os.write(sink, b"x")
        time.sleep(60)
        os._exit(0)
    assert os.read(source, 1) == b"x"
    try:
        locked = [place for place in (before.local, before.outbox, before.journals) if is_held(place)]
        second = begin(runs, share=share, agent="off")
        second.finish(0)
        delivered = LateDelivery(runs / "p" / "r", print).deliver()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    assert locked == []
    assert (second.dir, second.attempt) == (runs / "p" / "r", 1)
    assert delivered


def test_a_reader_cannot_lock_a_bridge(crowded: Path) -> None:
    """Users who may list the directory of a bridge cannot keep it from starting."""
    place = crowded / "bridged"
    place.mkdir(mode=0o755)
    fd = os.open(place, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    Runs(place, []).close()
    os.close(fd)
    reached = as_nobody(lambda: os.access(place / ".bridge", os.R_OK))

    assert reached is False
