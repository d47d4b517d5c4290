"""Real file systems: what they are taken for, and where the journals of machines that share them are."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from otel_rl.recorder.files.atomic_files import write_first
from otel_rl.recorder.files.file_systems import is_shared, what_fails
from otel_rl.recorder.files.modes import make_directory
from otel_rl.recorder.files.mounts import type_of
from tests.faults.nodes import Nodes
from tests.file_systems import sshfs
from tests.processes import rows_of

TRIES = 60
_TRAIN = """
import otel_rl
run = otel_rl.init(dir="runs", project="p", id="r", quiet=True, hardware=False)
run.log({"loss": 1.0}, step=run.attempt)
print(run._session.directory.local, bool(run.finish(30)))
"""


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A place to mount something at."""
    place = tmp_path / "mounted"
    place.mkdir()
    yield place
    subprocess.run(["umount", place], check=False, capture_output=True)


def mount(place: Path, *given: str) -> None:
    """Mount something; skip the test where that cannot be done."""
    if os.geteuid() != 0 or subprocess.run(["mount", *given, place], check=False, capture_output=True).returncode:
        pytest.skip(f"mount {' '.join(given)} cannot be done here")


def test_overlay(tmp_path: Path, mounted: Path) -> None:
    """It is of one machine; locks, mappings and renames hold."""
    for name in ("lower", "upper", "work"):
        (tmp_path / name).mkdir()
    options = ",".join(f"{name}dir={tmp_path / name}" for name in ("lower", "upper", "work"))
    mount(mounted, "-t", "overlay", "overlay", "-o", options)

    assert (type_of(mounted), is_shared(mounted), what_fails(mounted)) == ("overlay", False, "")


def test_tmpfs(mounted: Path) -> None:
    """The same."""
    mount(mounted, "-t", "tmpfs", "none")

    assert (type_of(mounted), is_shared(mounted), what_fails(mounted)) == ("tmpfs", False, "")


def test_sshfs(tmp_path: Path) -> None:
    """It is shared, although locks and mappings hold on one machine."""
    with sshfs(tmp_path) as place:
        assert (type_of(place), is_shared(place)) == ("fuse.sshfs", True)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="namespaces need privileges")
def test_two_machines_on_a_type_that_looks_local(tmp_path: Path) -> None:
    """Each has a part of its own, under its name; a run goes on at the other one, and all rows are there."""
    nodes = Nodes(tmp_path, tmp_path / "disk")
    said = [nodes.run(host, _TRAIN) for host in ("node1", "node2", "node1")]
    run_dir = tmp_path / "runs" / "p" / "r"

    assert said == [f"{run_dir / 'local' / host} True\n" for host in ("node1", "node2", "node1")]
    assert [(row["attempt"], row["step"]) for row in rows_of(run_dir)] == [(n, n) for n in range(3)]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="namespaces need privileges")
def test_a_backlog_of_an_earlier_attempt(tmp_path: Path) -> None:
    """A run goes on at another machine: `init` names the machine that holds the earlier attempt, and the command."""
    nodes = Nodes(tmp_path, tmp_path / "disk")
    nodes.run("node1", _TRAIN.replace("30", "0"), OTEL_RL_AGENT="off")
    second = nodes.start("node2", _TRAIN)
    errors = second.communicate(timeout=100)[1]
    third = nodes.once("node2", tmp_path / "runs" / "p" / "r")
    last = nodes.start("node2", _TRAIN)

    assert "attempt 0 of the run was recorded on node1" in errors
    assert "run here: otel-rl agent" in errors
    assert third[0] == 0, third
    assert "was recorded on" not in last.communicate(timeout=100)[1]


def test_two_machines_are_first_over_sshfs(tmp_path: Path) -> None:
    """One of them makes a file or a directory; the other one sees that it is there, and whole, whatever SFTP says."""
    with sshfs(tmp_path) as here:
        there = tmp_path / "second"
        there.mkdir()
        given = ["-o", f"ssh_command={tmp_path / 'sftp'},allow_other,dir_cache=no"]
        subprocess.run(["sshfs", *given, f"host:{tmp_path / 'remote'}", there], check=True, timeout=30)
        try:
            for number in range(TRIES):
                begin = Barrier(2)

                def make(place: Path, name: str = f"{number}", begin: Barrier = begin) -> tuple[bool, bytes]:
                    begin.wait()
                    make_directory(place / f"{name}.folder")
                    return write_first(place / name, b"x"), (place / name).read_bytes()

                with ThreadPoolExecutor(2) as pool:
                    assert sorted(pool.map(make, (here, there))) == [(False, b"x"), (True, b"x")]
        finally:
            subprocess.run(["umount", "-l", there], check=True, timeout=30)
