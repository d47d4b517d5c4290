"""Obstacles of the machine at the start: the training goes on, and a warning names the fallback."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

import otel_rl
from otel_rl.recorder.agent.process import StartError, run_agent
from otel_rl.recorder.directory import directory, parts
from otel_rl.recorder.files import programs
from otel_rl.recorder.journal.claim import claim_journal
from tests.processes import local_of, remove, rows_of, run_python

pytestmark = pytest.mark.usefixtures("temporary")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


def begin(runs: Path, **given: object) -> otel_rl.Run:
    defaults: dict[str, object] = {"project": "p", "id": "run-7", "exporters": [], "quiet": True, "agent": "off"}
    return otel_rl.init(**{**defaults, "dir": runs, **given})  # type: ignore[arg-type]


def spoil_parent(runs: Path) -> None:
    runs.touch()


def spoil_project(runs: Path) -> None:
    runs.mkdir()
    (runs / "p").write_text("a file")


def spoil_local(runs: Path) -> None:
    (runs / "p" / "run-7").mkdir(parents=True)
    (runs / "p" / "run-7" / "local").symlink_to("/proc/none/of/this")


def spoil_attempts(runs: Path) -> None:
    (runs / "p" / "run-7").mkdir(parents=True)
    (runs / "p" / "run-7" / "attempts").symlink_to("attempts")


def spoil_manifest(runs: Path) -> None:
    (runs / "p" / "run-7" / "run.json").mkdir(parents=True)


def test_a_working_directory_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A relative `dir` is nowhere then: the run is recorded into the temporary directory."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    run = otel_rl.init(exporters=[], quiet=True, agent="off")
    monkeypatch.chdir(tmp_path)

    assert run.dir.is_dir()
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("kind", [os.fsencode, os.fsdecode], ids=["bytes", "text"])
def test_a_directory_that_is_not_utf8(tmp_path: Path, kind: Callable[[str], str | bytes]) -> None:
    """Linux allows any bytes as a name, so the run is recorded and delivered there."""
    place = os.fsdecode(os.fsencode(tmp_path) + b"/r\xff\xe9sultats")
    run = begin(kind(place), local_dir=f"{place}.local", exporters=["jsonl"], agent="auto")  # type: ignore[arg-type]
    run.log({"loss": 1.0}, step=0)

    assert run.finish(60)
    assert [row["step"] for row in rows_of(run.dir)] == [0]
    assert str(run.dir).startswith(f"{place}/")


def test_a_wrong_option_raises(tmp_path: Path) -> None:
    """A wrong argument is an error without `strict` too, also where the agent finds it."""
    with pytest.raises(otel_rl.SettingsError, match="port"):
        begin(tmp_path, agent="auto", hardware=False, exporters=[{"prometheus": {"port": 70_000}}])


@pytest.mark.parametrize("spoil", [spoil_parent, spoil_project, spoil_local, spoil_attempts, spoil_manifest])
def test_a_directory_that_cannot_be_written(
    tmp_path: Path, temporary: Path, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The run is recorded into the user's temporary directory; one warning names the fault and the place."""
    spoil(tmp_path / "runs")
    run = begin(tmp_path / "runs")
    run.log({"loss": 1.0}, step=0)

    assert temporary in run.dir.parents
    assert run.refused == {}
    (warning,) = caplog.messages
    assert f"dir='{tmp_path}/runs': " in warning
    assert f"recorded into {run.dir} instead" in warning


def test_a_strict_run(tmp_path: Path) -> None:
    """With `strict` the same is an error."""
    spoil_parent(tmp_path / "runs")
    with pytest.raises(otel_rl.SettingsError, match="cannot be written"):
        begin(tmp_path / "runs", strict=True)


def test_ranks_meet_in_the_temporary_directory(tmp_path: Path) -> None:
    """All ranks of a machine that cannot write the directory record into the same other one."""
    spoil_parent(tmp_path / "runs")
    places = set()
    for rank in range(2):
        run = begin(tmp_path / "runs", rank=rank, world_size=2)
        places.add(run.dir)
        run.finish(0)

    assert len(places) == 1


def test_a_link_to_a_directory_that_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The directory is made again."""
    (tmp_path / "runs" / "p" / "run-7").mkdir(parents=True)
    (tmp_path / "runs" / "p" / "run-7" / "local").symlink_to(tmp_path / "cleaned" / "local")
    run = begin(tmp_path / "runs")

    assert run.dir == tmp_path / "runs" / "p" / "run-7"
    assert [*(tmp_path / "cleaned" / "local").glob("*/journals")]
    assert caplog.messages == []


def test_a_run_that_another_process_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The second process records a run with another id, also in its next attempt."""
    first = directory.make(tmp_path / "p" / "run-7")
    claim = claim_journal(first.journals, "rank0", first.attempts)
    for expected in ("run-7-2", "run-7-3"):
        run = begin(tmp_path)
        run.finish(0)
        assert (run.id, run.attempt, run.dir.name) == (expected, 0, expected)
    claim.release()

    assert "is being recorded by another process: give each process its own rank=" in caplog.messages[0]
    assert "run run-7-2 is recorded" in caplog.messages[0]


_NOWHERE = """
import os, otel_rl
def full(*_, **__):
    raise OSError(28, "No space left on device")
os.mkdir = full
run = otel_rl.init(dir="runs", exporters=[], quiet=True, agent="off", project="p", id="i", config={"a": 1})
for step in range(20):
    with run.step(step), run.phase("rollout"):
        run.log({"loss": 1.0})
assert run is otel_rl.current() and run.environment() and run.prometheus is None
print(bool(run.finish()), run.refused["record"] >= 40, otel_rl.current())
"""


def test_no_directory_can_be_written(tmp_path: Path) -> None:
    """The run works, counts everything, and `finish` is false."""
    assert run_python(_NOWHERE, tmp_path) == "False True None\n"


def test_a_port_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """An address that cannot be listened on: metrics are at another one, and the warning names both."""
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_HOST", "192.0.2.1")
    monkeypatch.setenv("OTEL_RL_TOKEN", "a-secret-of-the-tests")
    monkeypatch.setenv("OTEL_RL_INSECURE", "true")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "prometheus")
    run = begin(tmp_path, agent="auto", hardware=False)
    run.log({"loss": 1.0}, step=0)

    assert run.prometheus
    assert json.loads((local_of(run.dir) / "agent.json").read_text())["warnings"] == caplog.messages
    assert "192.0.2.1" in caplog.messages[0]
    assert caplog.messages[0].endswith(f"metrics are at {run.prometheus} instead")
    assert run.finish(30)


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_head_that_cannot_listen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, world_size: int
) -> None:
    """Two jobs on one head node: the second one records its own machine; `finish` is false if there are others."""
    monkeypatch.setenv("OTEL_RL_LOCAL_WORLD_SIZE", "1")
    ranks = {"rank": 0, "world_size": world_size, "rows": {"deadline": 0.1}}
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        head = f"127.0.0.1:{taken.getsockname()[1]}"
        run = begin(tmp_path, agent="auto", hardware=False, head=head, exporters=["jsonl"], **ranks)
        run.log({"loss": 1.0}, step=0)
        assert bool(run.finish(30)) is (world_size == 1)

    assert [row["step"] for row in rows_of(run.dir)] == [0]
    assert f"head='{head}': cannot be listened on" in caplog.messages[0 if world_size == 1 else -1]


def test_a_head_that_is_nobodys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks are here, the address is not: the run is recorded here, and it says so; a strict run raises."""
    nobody = "192.0.2.1:4320"  # RFC 5737
    monkeypatch.setenv("OTEL_RL_TOKEN", "a-secret-of-the-tests")
    monkeypatch.setenv("OTEL_RL_INSECURE", "true")
    with pytest.raises(otel_rl.SettingsError, match="nobody answers there"):
        begin(tmp_path, head=nobody, strict=True)
    run = begin(tmp_path, agent="auto", hardware=False, head=nobody, exporters=["jsonl"])
    run.log({"loss": 1.0}, step=0)

    assert run.finish(30)
    assert [row["step"] for row in rows_of(run.dir)] == [0]
    assert f"head='{nobody}' is not an address of this machine" in caplog.messages[0]


def test_an_agent_that_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The run is recorded in its directory, and delivered when an agent can start."""

    def fail(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")  # too many processes

    with monkeypatch.context() as broken:
        broken.setattr(programs, "start", fail)
        run = begin(tmp_path, agent="auto", hardware=False, exporters=["jsonl"])
        run.log({"loss": 1.0}, step=0)

    said = [record.getMessage() for record in caplog.records if record.name == "otel_rl"]
    assert any("the agent cannot be started" in text for text in said)
    assert run.finish(30)
    assert run.dir == tmp_path / "p" / "run-7"
    assert [row["step"] for row in rows_of(run.dir)] == [0]


def test_a_link_into_a_directory_that_others_can_write(tmp_path: Path, temporary: Path) -> None:
    """Journals behind it, as in an earlier job's temporary directory, would be everybody's: recorded elsewhere."""
    foreign = tmp_path / "earlier" / f"otel-rl-{os.getuid()}"
    (foreign / "abc").mkdir(parents=True)
    foreign.chmod(0o777)
    (tmp_path / "runs" / "p" / "run-7").mkdir(parents=True)
    (tmp_path / "runs" / "p" / "run-7" / "local").symlink_to(foreign / "abc")
    run = begin(tmp_path / "runs")

    assert temporary in run.dir.parents
    assert foreign not in run.dir.parents
    assert [*(foreign / "abc").iterdir()] == []


@pytest.mark.parametrize("link", ["local", "pointer"])
def test_an_agent_follows_no_link_that_others_can_write(tmp_path: Path, temporary: Path, link: str) -> None:
    """`otel-rl agent` writes nothing where another user could read or change it."""
    run = begin(tmp_path / "runs")
    run.finish(0)
    foreign = temporary / "otel-rl-12345"
    part = directory.at(run.dir).local
    if link == "local":
        shutil.copytree(run.dir / "local", foreign)
        remove(run.dir / "local")
        (run.dir / "local").symlink_to(foreign)
    else:
        shutil.copytree(part, foreign)
        remove(part)
        pointer = parts.Pointer(place=str(foreign), machine=parts.this_machine())
        part.write_bytes(msgspec.json.encode(pointer))
    foreign.chmod(0o777)
    before = sorted(foreign.rglob("*"))
    with pytest.raises(StartError, match=f"other users can write {foreign}"):
        run_agent(run.dir, once=True)

    assert sorted(foreign.rglob("*")) == before


_FULL = """
import errno, os, otel_rl
from otel_rl.recorder.files import atomic_files
def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")
{broken} = full
try:
    otel_rl.init(dir="runs", exporters=[], quiet=True, agent="off", project="p", id="i", strict=True)
except otel_rl.SettingsError as error:
    print(error)
"""


@pytest.mark.parametrize("broken", ["os.posix_fallocate", "atomic_files.open_file", "os.mkdir"])
def test_a_full_disk(tmp_path: Path, broken: str) -> None:
    """Wherever a strict run notices it: the error names the path and what to do, and nothing is left of the journal."""
    told = run_python(_FULL.format(broken=broken), tmp_path)

    assert told.startswith("dir='runs': /")
    assert "/runs/p/i" in told
    assert "(No space left on device); free 16 MiB for each rank, or give init(dir=…) or OTEL_RL_DIR" in told
    assert [*tmp_path.glob("runs/p/i/local/*/journals/*")] == []
