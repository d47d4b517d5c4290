"""The run directory: the same for all ranks, and never a journal on a network."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.directory import births, directory, parts
from otel_rl.recorder.directory.parts import MachineId
from otel_rl.recorder.files import file_systems, private_directories
from otel_rl.recorder.files.atomic_files import disk_usage
from otel_rl.recorder.files.locks import Lock
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Logged
from otel_rl.recorder.settings.settings import Settings
from tests.processes import remove


def settings(place: Path, **changes: object) -> Settings:
    return Settings(**({"project": "grpo", "name": "base", "id": "run-7", "dir": str(place)} | changes))  # type: ignore[arg-type]


@pytest.fixture
def on_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make every directory look like one on NFS, and return the temporary directory of this machine."""
    local = tmp_path / "machine"
    local.mkdir()
    monkeypatch.setattr(file_systems, "type_of", lambda path: "ext4" if local in (path, *path.parents) else "nfs")
    monkeypatch.setattr(private_directories, "_LASTING", local)
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
        ("a/b", "c d", "a-b-c14cddc033f64b9d/c-d-run-7"),
        ("..", "../../etc", "unnamed-5ec1f7e700f37c3d/etc-run-7"),
        ("grpo.v2", "x_y-z", "grpo.v2/x_y-z-run-7"),
        ("项目", "é", "项目/é-run-7"),
        ("p" * 300, "x", "p" * 100 + "-67f102b906240ff5/x-run-7"),
    ],
)
def test_names(tmp_path: Path, project: str, name: str, expected: str) -> None:
    """Project and name become parts of a path that stay inside the directory."""
    assert tmp_path / expected == directory.create(settings(tmp_path, project=project, name=name)).path


def test_relative(tmp_path: Path) -> None:
    """A relative directory is taken from where the process is, once and for all."""
    assert tmp_path / "runs" / "grpo" / "base-run-7" == directory.create(settings(Path("runs"))).path


def test_places(tmp_path: Path) -> None:
    """Journals, outbox and cursors are in `local`, and made."""
    place = directory.create(settings(tmp_path))

    assert [place.local / name for name in ("journals", "outbox", "cursors")] == [
        path for path in (place.journals, place.outbox, place.cursors) if path.is_dir()
    ]


def test_local_disk(tmp_path: Path) -> None:
    """On a local disk the part of the machine lies in the run directory itself, under the machine's name."""
    place = directory.create(settings(tmp_path))

    assert place.local == place.path / "local" / socket.gethostname()


def test_network(tmp_path: Path, on_network: Path) -> None:
    """On a network file system a file says where on this machine its part is, which only the user can read."""
    place = directory.create(settings(tmp_path))

    assert (place.path / "local" / socket.gethostname()).is_file()
    assert on_network in place.local.parents
    assert place.local.stat().st_mode & 0o077 == 0
    assert place.journals.is_dir()
    assert directory.at(place.path) == place


def test_a_chosen_place(tmp_path: Path, on_network: Path) -> None:
    """`local_dir` is used before all others."""
    place = directory.create(settings(tmp_path, local_dir=str(on_network / "scratch")))

    assert on_network / "scratch" in place.local.parents


def machine(host: str, boot: str = "1", id_: str = "") -> MachineId:
    return MachineId(host=host, boot=boot, id=id_)


@pytest.mark.parametrize(("hosts", "names"), [(["n1", "n2"], ["n1", "n2"]), (["node", "node"], ["node", "node.2"])])
def test_two_machines(tmp_path: Path, on_network: Path, hosts: list[str], names: list[str]) -> None:
    """Machines that share the run directory have a part each, also with one host name, and find it again."""
    machines = [machine(host, str(n)) for n, host in enumerate(hosts)]
    made = [parts.make(tmp_path, one) for one in (*machines, *machines)]

    assert [part.name for part in made] == names * 2
    assert len({part.place for part in made}) == 2


def test_a_reboot(tmp_path: Path, on_network: Path) -> None:
    """The same machine finds its part again."""
    before = parts.make(tmp_path, machine("node", "1", "abc"))

    assert parts.make(tmp_path, machine("node", "2", "abc")).place == before.place


def test_a_disk_in_another_machine(tmp_path: Path) -> None:
    """A local disk that is mounted by another machine of the same name has its part; one that is in use has not."""
    before = parts.make(tmp_path, machine("node", "1"))
    held = Lock(before.place / "outbox")
    names = [parts.make(tmp_path, machine("node", "2")).name]
    held.release()
    names.append(parts.make(tmp_path, machine("node", "3")).name)

    assert names == ["node.2", "node"]


def test_a_damaged_pointer(tmp_path: Path, on_network: Path) -> None:
    """It is written again; the part is the same, so nothing is lost."""
    before = parts.make(tmp_path, machine("node"))
    (tmp_path / "local" / "node").write_bytes(b"{")

    assert parts.make(tmp_path, machine("node")) == before


def test_another_run_at_the_same_path(tmp_path: Path, on_network: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing that the machine kept for a run that was removed is used for the next one, and one line names it."""
    run = tmp_path / "run"
    run.mkdir()
    before = parts.make(run, machine("node")).place
    (before / "journals" / "rank0.attempt0.aa").mkdir()
    remove(run)
    run.mkdir()
    made = [parts.make(run, machine("node")).place for _ in range(2)]

    assert made[0] == made[1] != before
    assert list((made[0] / "journals").iterdir()) == []
    assert (before / "journals" / "rank0.attempt0.aa").is_dir()
    assert [f"{before} has records of another run" in line for line in caplog.messages] == [True]


def test_parts_of_removed_runs_are_removed_later(tmp_path: Path, on_network: Path) -> None:
    """Nobody can use them any more; 30 days are the time that systemd gives files in /var/tmp."""
    old, new = (parts.make(_fresh(tmp_path / "run"), machine("node")).place for _ in range(2))
    for path in (*old.rglob("*"), old):
        os.utime(path, (0, 0))
    parts.make(_fresh(tmp_path / "run"), machine("node"))

    assert (old.exists(), new.exists()) == (False, True)


def _fresh(run: Path) -> Path:
    if run.exists():
        remove(run)
    run.mkdir()
    return run


def test_what_became_of_a_run_directory(tmp_path: Path, on_network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there, another one, removed, or on a file system that is not mounted, which is not the same."""
    run = _fresh(tmp_path / "run")
    place = parts.make(run, machine("node")).place
    known = births.Birth(run, place)
    found = [known.fate()]
    remove(run)
    found.append(known.fate())
    with monkeypatch.context() as unmounted:
        unmounted.setattr(births, "_device_of", lambda path: -1)
        found.append(known.fate())
    parts.make(_fresh(run), machine("node"))
    found.append(known.fate())

    assert found == ["", "removed", "", "replaced"]


def test_a_damaged_birth(tmp_path: Path, on_network: Path) -> None:
    """A part that the run directory points to is of this run, whatever a crash left of its birth."""
    before = parts.make(tmp_path, machine("node", "1"))
    (tmp_path / "birth.json").write_bytes(b"")
    parts.make(tmp_path, machine("other", "2"))
    again = parts.make(tmp_path, machine("node", "1"))

    assert again == before
    assert births.Birth(tmp_path, again.place).fate() == ""


def test_no_place_for_locks(tmp_path: Path, on_network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no directory of the machine is good for journals, its part is in the run directory, under its name."""
    for module in (parts, private_directories):
        monkeypatch.setattr(module, "what_fails", lambda path: "locks of directories")
    part = parts.make(tmp_path, machine("node"))

    assert part.place == tmp_path / "local" / "node"
    assert (part.place / "journals").is_dir()


def test_what_holds_here(tmp_path: Path) -> None:
    """On an ordinary disk nothing fails, and nothing is left of the trial."""
    assert file_systems.what_fails(tmp_path) == ""
    assert [*tmp_path.iterdir()] == []


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


def test_disk_usage_while_directories_come_and_go(tmp_path: Path) -> None:
    """A start of the run makes its journal under another name first: that is not an error of whoever adds up."""
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
