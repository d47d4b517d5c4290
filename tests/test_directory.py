"""The run directory: the same for all ranks, and never a journal on a network."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import pytest

import otel_rl
from otel_rl import directory
from otel_rl.directory import disk_usage
from otel_rl.journal import Reader
from otel_rl.records import AnyRecord, Logged
from otel_rl.settings import Settings, SettingsError


def settings(place: Path, **changes: object) -> Settings:
    return Settings(**({"project": "grpo", "name": "base", "id": "run-7", "dir": str(place)} | changes))  # type: ignore[arg-type]


@pytest.fixture
def on_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make every directory look like one on NFS, and return the temporary directory of this machine."""
    local = tmp_path / "machine"
    local.mkdir()
    monkeypatch.setattr(directory, "_file_system", lambda path: "nfs")
    monkeypatch.setattr(tempfile, "tempdir", str(local))
    return local


def test_all_ranks(tmp_path: Path) -> None:
    """All ranks of a run find the same directory, whoever is first."""
    paths = {directory.create(settings(tmp_path, rank=rank, world_size=4)).path for rank in (2, 0, 3, 1)}

    assert {tmp_path / "grpo" / "base-run-7"} == paths


def test_unnamed_run(tmp_path: Path) -> None:
    """A run without a name of its own has a directory named by its id."""
    assert tmp_path / "grpo" / "run-7" == directory.create(settings(tmp_path, name="run-7")).path


@pytest.mark.parametrize(
    ("project", "name", "expected"),
    [
        ("a/b", "c d", "a-b/c-d-run-7"),
        ("..", "../../etc", "run/etc-run-7"),
        ("grpo.v2", "x_y-z", "grpo.v2/x_y-z-run-7"),
        ("项目", "é", "项目/é-run-7"),
        ("p" * 300, "x", "p" * 100 + "/x-run-7"),
    ],
)
def test_names(tmp_path: Path, project: str, name: str, expected: str) -> None:
    """Project and name become parts of a path that stay inside the directory."""
    assert tmp_path / expected == directory.create(settings(tmp_path, project=project, name=name)).path


def test_long_name(tmp_path: Path) -> None:
    """Runs with the same long name have directories of their own."""
    first, second = (directory.create(settings(tmp_path, name="n" * 200, id=f"run-{n}")).path for n in (1, 2))

    assert first != second


def test_relative(tmp_path: Path) -> None:
    """A relative directory is taken from where the process is, once and for all."""
    assert tmp_path / "runs" / "grpo" / "base-run-7" == directory.create(settings(Path("runs"))).path


def test_places(tmp_path: Path) -> None:
    """Journals, outbox and cursors are in `local`, and made."""
    place = directory.create(settings(tmp_path))

    assert [place.path / "local" / name for name in ("journals", "outbox", "cursors")] == [
        path for path in (place.journals, place.outbox, place.cursors) if path.is_dir()
    ]


def test_unwritable(tmp_path: Path) -> None:
    """A directory that cannot be made is named, with the reason and the fix."""
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"dir=.*Not a directory.*init\(dir=…\) or OTEL_RL_DIR"):
        directory.create(settings(tmp_path / "file" / "runs"))


def test_local_disk(tmp_path: Path) -> None:
    """On a local disk the journals lie in the run directory itself."""
    place = directory.create(settings(tmp_path))

    assert not (place.path / "local").is_symlink()


def test_network(tmp_path: Path, on_network: Path) -> None:
    """On a network file system `local` is a link into the machine's temporary directory."""
    place = directory.create(settings(tmp_path))

    assert (place.path / "local").is_symlink()
    assert on_network in (place.path / "local").resolve().parents
    assert place.journals.is_dir()


def test_network_privacy(tmp_path: Path, on_network: Path) -> None:
    """What lies in the shared temporary directory is for the user alone."""
    place = directory.create(settings(tmp_path))

    assert (place.path / "local").resolve().stat().st_mode & 0o077 == 0


def test_network_on_all_ranks(tmp_path: Path, on_network: Path) -> None:
    """All ranks of a machine find the same journals."""
    places = [directory.create(settings(tmp_path, rank=rank, world_size=2)) for rank in range(2)]

    assert places[0].journals.resolve() == places[1].journals.resolve()


def test_network_on_another_machine(tmp_path: Path, on_network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that finds the link of another one has a directory of its own behind it."""
    first = directory.create(settings(tmp_path))
    (first.journals / "rank0.attempt0").mkdir()
    on_network.rename(tmp_path / "another machine")
    on_network.mkdir()
    second = directory.create(settings(tmp_path))

    assert first == second
    assert list(second.journals.iterdir()) == []


def test_network_recording(tmp_path: Path, on_network: Path) -> None:
    """A run whose directory is on a network records to the local disk."""
    run = otel_rl.init(agent="off", exporters=[], dir=tmp_path, quiet=True)
    run.log({"loss": 0.5}, step=0)
    records = [r for path in on_network.rglob("rank0.attempt0.*") for r in Reader(path, AnyRecord).read()]

    assert [record.values for record in records if isinstance(record, Logged)] == [{"loss": 0.5}]


def test_network_and_two_projects(tmp_path: Path, on_network: Path) -> None:
    """Runs of two projects that have the same id do not share journals."""
    first, second = (directory.create(settings(tmp_path, project=project)) for project in ("a", "b"))

    assert first.journals.resolve() != second.journals.resolve()


def test_write_atomically(tmp_path: Path) -> None:
    """A file is replaced as a whole, and nothing else is left."""
    (tmp_path / "file").write_bytes(b"before")
    directory.write_atomically(tmp_path / "file", b"after")

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"after"}


def test_disk_usage_while_directories_come_and_go(tmp_path: Path) -> None:
    """A start of the run makes its journal under another name first: that is no error of whoever adds up."""
    (tmp_path / "kept").write_bytes(b"x" * 100_000)
    stopped = threading.Event()

    def come_and_go() -> None:
        while not stopped.is_set():
            for n in range(20):
                (tmp_path / f".{n}").mkdir()
            for n in range(20):
                (tmp_path / f".{n}").rmdir()

    other = threading.Thread(target=come_and_go)
    other.start()
    found = [disk_usage(tmp_path) for _ in range(500)]
    stopped.set()
    other.join()

    assert min(found) >= 100_000
