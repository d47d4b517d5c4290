"""Another user makes files and directories first, so that the agent of this user imports his code or writes for him."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import otel_rl
from otel_rl.recorder.directory import agent_start, directory, parts
from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.files.own_files import ForeignError, check_levels, read_own
from otel_rl.recorder.files.private_directories import home, make_private, private_directory
from otel_rl.recorder.settings.loading import load
from tests.processes import journal_of
from tests.security.other_users import NOBODY, as_nobody, needs_root

pytestmark = needs_root
_USUAL = f"otel-rl-{os.getuid()}"


@pytest.fixture
def temporary(crowded: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the temporary directory, in which every user can make files."""
    monkeypatch.setattr("tempfile.tempdir", str(crowded))
    monkeypatch.setattr("otel_rl.recorder.files.private_directories._LASTING", crowded)
    return crowded


def begin(runs: Path, **given: object) -> otel_rl.Run:
    settings: dict[str, object] = {"project": "p", "id": "r", "exporters": [], "quiet": True, "agent": "off"}
    return otel_rl.init(**{**settings, "dir": runs, **given})  # type: ignore[arg-type]


def a_run_with_code_of_nobody(place: Path) -> Path:
    """Record a run whose manifest names an exporter that leaves a sign that it was imported."""
    (place / "evil.py").write_text(f"open({str(place / 'imported')!r}, 'w').close()\nclass Exporter: pass\n")
    run = begin(place / "runs")
    run.log({"loss": 1.0}, step=0)
    run.finish(0)
    manifest = msgspec.json.decode((run.dir / "run.json").read_bytes())
    manifest["exporters"], manifest["idle_timeout"] = [["evil:Exporter", {}]], 1.0
    (run.dir / "run.json").write_bytes(msgspec.json.encode(manifest))
    return run.dir


def deliver(run: Path, *options: str) -> tuple[int, str]:
    """Run the agent of a run directory; return its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "otel_rl.cli", "agent", str(run), *options],
        env=os.environ | {"PYTHONPATH": str(run.parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def to_nobody(*paths: Path) -> None:
    """Give files to another user."""
    for path in paths:
        os.chown(path, NOBODY, NOBODY)


def to_a_link(path: Path) -> None:
    """Put a link in the place of a file."""
    path.symlink_to(path.rename(path.with_name("other.json")))


ATTACKS: dict[str, Callable[[Path], object]] = {
    "the manifest is of nobody": lambda run: to_nobody(run / "run.json"),
    "all can write the manifest": lambda run: (run / "run.json").chmod(0o666),
    "the group can write the manifest": lambda run: (run / "run.json").chmod(0o660),
    "the manifest is a link": lambda run: to_a_link(run / "run.json"),
    "the whole run is of nobody": lambda run: to_nobody(run, *run.rglob("*")),
    "all can write the run directory": lambda run: run.chmod(0o777),
    "the archive is of nobody": lambda run: ((run / "archive").mkdir(exist_ok=True), to_nobody(run / "archive")),
    "all can write the journals": lambda run: directory.at(run).journals.chmod(0o777),
}


@pytest.mark.parametrize("once", [["--once"], []])
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_manifest_of_another_user(crowded: Path, attack: str, once: list[str]) -> None:
    """An agent imports nothing that it names, and says why."""
    run = a_run_with_code_of_nobody(crowded)
    ATTACKS[attack](run)
    code, said = deliver(run, *once)

    assert code == 1, said
    assert str(run) in said
    assert not (crowded / "imported").exists()


def test_the_attack_works_for_its_own_user(crowded: Path) -> None:
    """The manifest of this user is believed; else the tests above would prove nothing."""
    deliver(a_run_with_code_of_nobody(crowded), "--once")

    assert (crowded / "imported").exists()


def test_the_trainer_starts_no_agent_there(crowded: Path) -> None:
    """Not even its log is opened, which could be a link to a file of the victim."""
    run = a_run_with_code_of_nobody(crowded)
    run.chmod(0o777)
    (run / "agent.log").unlink(missing_ok=True)
    (run / "agent.log").symlink_to(crowded / "victim")
    with pytest.raises(SettingsError, match="other users can write"):
        agent_start.ensure_agent(directory.at(run), show_output=False)

    assert not (crowded / "victim").exists()


def test_a_pointer_of_another_user(crowded: Path) -> None:
    """It names no part: the agent opens nothing that it points to."""
    run = a_run_with_code_of_nobody(crowded)
    pointer = parts.Pointer(place=str(crowded / "planted"), machine=parts.this_machine())
    place = run / "local" / "node9"
    place.write_bytes(msgspec.json.encode(pointer))
    to_nobody(place)

    assert parts.read(run, "node9") is None


@pytest.mark.parametrize("name", ["cursors/jsonl.json", "agent.json", "machine.json"])
def test_other_files_of_another_user(crowded: Path, name: str) -> None:
    """They are not read."""
    run = a_run_with_code_of_nobody(crowded)
    place = directory.at(run).local / name
    place.write_bytes(b"{}")
    to_nobody(place)
    with pytest.raises(ForeignError, match=f"{place} belongs to nobody, not to root: remove it"):
        read_own(place)


@pytest.mark.parametrize(
    "attack",
    [
        lambda place: place.mkdir(mode=0o777),
        lambda place: place.symlink_to(place.parent / "victim"),
        lambda place: place.touch(),
    ],
    ids=["a directory", "a link to files of the victim", "a file"],
)
def test_a_name_that_another_user_took(temporary: Path, attack: Callable[[Path], None]) -> None:
    """The private directory is refused, for a strict run with the fix, and nothing is written there."""
    (temporary / "victim").mkdir(mode=0o700)
    as_nobody(lambda: attack(temporary / _USUAL))
    with pytest.raises(ForeignError, match="remove it"):
        private_directory()
    with pytest.raises(ForeignError, match="remove it"):
        home(strict=True)

    assert [*(temporary / "victim").iterdir()] == []


def test_a_private_directory_that_others_can_read(temporary: Path) -> None:
    """It is refused, with the command that closes it."""
    (temporary / _USUAL).mkdir(mode=0o755)
    with pytest.raises(ForeignError, match=rf"\(mode 0755\): run chmod 700 {temporary / _USUAL}"):
        private_directory()


def test_a_run_that_needs_a_name_that_another_user_took(temporary: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A run that can be recorded nowhere else does not raise into the trainer; one warning has the fix."""
    as_nobody((temporary / _USUAL).mkdir)
    (temporary / "file").touch()
    run = begin(temporary / "file")
    run.log({"loss": 1.0}, step=0)

    assert not run.finish(0)
    assert (
        sum("belongs to nobody, not to root: remove it, or run this as its owner" in text for text in caplog.messages)
        == 1
    )


def test_another_private_directory(temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a run on a network go to the next place of this machine, with one warning."""
    (tmp_path / "lasting").mkdir()
    monkeypatch.setattr("otel_rl.recorder.files.private_directories._LASTING", tmp_path / "lasting")
    (tmp_path / "lasting" / _USUAL).mkdir(mode=0o755)

    assert home() == temporary / _USUAL


def test_a_level_above_it(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary directory that another user made is not used at all."""
    as_nobody((temporary / "job").mkdir)
    (temporary / "job").chmod(0o777)
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "job"))
    with pytest.raises(ForeignError, match="belongs to nobody, in a directory that everybody can write"):
        private_directory()


def test_a_private_directory_that_changes(temporary: Path) -> None:
    """It is examined at each use: opened to others later, it is refused."""
    place = private_directory()
    (place / "part").mkdir(mode=0o700)
    make_private(place / "part")
    place.chmod(0o750)
    with pytest.raises(ForeignError, match="other users can read"):
        make_private(place / "part")


@pytest.mark.parametrize("level", ["runs", "runs/p", "runs/p/r", "runs/p/r/local"])
def test_a_run_directory_that_another_user_made(temporary: Path, level: str, caplog: pytest.LogCaptureFixture) -> None:
    """The run is recorded elsewhere, with one warning; a strict one raises."""
    (temporary / "runs").mkdir(mode=0o1777)
    (temporary / "runs").chmod(0o1777)
    if level == "runs":
        (temporary / "runs").rmdir()

    def attack() -> None:
        (temporary / level).mkdir(parents=True, exist_ok=True)
        (temporary / level).chmod(0o777)

    as_nobody(attack)
    with pytest.raises(SettingsError, match="belongs to nobody"):
        begin(temporary / "runs", strict=True)
    run = begin(temporary / "runs")

    assert run.dir.is_relative_to(temporary / _USUAL)
    assert sum("belongs to nobody" in text for text in caplog.messages) == 1
    assert [path for path in (temporary / "runs").rglob("*") if path.owner() != "nobody"] == []


def test_a_link_that_another_user_made(temporary: Path) -> None:
    """Links of others lead nowhere, also to directories of this user."""
    (temporary / "victim").mkdir(mode=0o700)
    as_nobody(lambda: (temporary / "runs").symlink_to(temporary / "victim"))
    with pytest.raises(ForeignError, match="belongs to nobody"):
        check_levels(temporary / "runs" / "p")


def test_links_of_root_and_of_this_user(temporary: Path) -> None:
    """They are followed: home directories and `/tmp` are links on many machines."""
    (temporary / "real").mkdir()
    (temporary / "link").symlink_to("real")
    check_levels(temporary / "link" / "below")

    assert begin(temporary / "link").dir == temporary / "link" / "p" / "r"


def test_files_that_a_container_made(crowded: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where the last attempt had another user, the run is recorded elsewhere: nothing raises into the trainer."""
    run = begin(crowded / "runs")
    run.finish(0)
    to_nobody(run.dir)
    second = begin(crowded / "runs")
    second.log({"loss": 1.0}, step=0)

    assert second.dir != run.dir
    assert journal_of(second.dir).is_dir()
    assert "belongs to nobody" in caplog.text


@pytest.mark.parametrize("name", ["otel-rl.toml", "otel-rl.yaml"])
@pytest.mark.parametrize("way", ["a file", "a link", "a file of this user that all can write"])
def test_settings_that_another_user_planted(
    crowded: Path, way: str, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A settings file in the working directory is used only if no stranger can have put it there, or if it is named."""
    monkeypatch.chdir(crowded)
    written = 'share = "all"' if name.endswith("toml") else "share: all"

    def attack() -> None:
        if way == "a link":
            (crowded / name).symlink_to(crowded / "own")
        else:
            (crowded / name).write_text(written)

    (crowded / "own").write_text(written)
    as_nobody(attack)
    if way.endswith("can write"):
        os.chown(crowded / name, os.getuid(), -1)
        (crowded / name).chmod(0o666)

    assert load({}).share == "none"
    assert f"OTEL_RL_CONFIG_FILE={name}" in caplog.text
    assert load({}, {"OTEL_RL_CONFIG_FILE": name}).share == "all"


def test_settings_of_this_user_and_of_root(crowded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are used, also behind a link and if the group may write them, as with the umask 002."""
    monkeypatch.chdir(crowded)
    (crowded / "own.toml").write_text('share = "all"')
    (crowded / "own.toml").chmod(0o664)
    (crowded / "otel-rl.toml").symlink_to("own.toml")

    assert load({}).share == "all"
