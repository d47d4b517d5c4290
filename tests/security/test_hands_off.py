"""A verb on a run of somebody else, or on a copy with planted links: it writes, starts and asks nothing on its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from otel_rl.autopsy import stacks
from otel_rl.look.reader.runs import open_run
from otel_rl.recorder.archive.now import read_now
from otel_rl.recorder.archive.runs import machines
from otel_rl.recorder.files.outputs import check_target, draft_of, emptied, place_for
from otel_rl.recorder.files.own_files import ForeignError, read_shown
from tests.security.other_users import NOBODY, everything_in, needs_root

_HOME = Path(__file__).parents[2]
_READS = (["ls"], ["top", "--text"], ["why"], ["samples"], ["compare"], ["doctor"])
_WRITES = (
    *(["report"], ["export", "--to", "csv"], ["export", "--to", "parquet"], ["export", "--to", "atif"]),
    *(["export", "--to", "perfetto"], ["export", "--to", "tensorboard"], ["export", "--to", "jsonl"], ["autopsy"]),
)
_DEFAULTS = ("report.html", "csv", "parquet", "atif", "trace.json.gz", "tensorboard", "autopsy")
"""The places below a run directory where verbs write without `-o`."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a directory of this user with a file."""
    (tmp_path / "home" / "inside").mkdir(parents=True)
    (tmp_path / "home" / "file").write_text("precious")
    return tmp_path / "home"


def watched(run: Path, verb: list[str], tmp_path: Path) -> list[list[str]]:
    """Call a verb on a run in an empty directory; return what it asked of the system."""
    (tmp_path / "cwd").mkdir(exist_ok=True)
    place = run.parent if verb[0] == "ls" else run
    command = [sys.executable, "-P", "-m", "tests.security.watched", str(run), verb[0], str(place), *verb[1:]]
    command += [str(run)] if verb[0] == "compare" else []
    environment = {"SEEN": str(tmp_path / "seen"), "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    environment |= {"PYTHONPATH": str(_HOME), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(
        command, cwd=tmp_path / "cwd", env=os.environ | environment, capture_output=True, timeout=120, check=False
    )
    return [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]


def _outside(done: list[list[str]], *allowed: Path) -> list[list[str]]:
    """Return what was written elsewhere than in some places, was started, or was asked over a network."""
    own = (*map(str, allowed), "/dev/null", "/dev/tty", f"/var/tmp/otel-rl-{os.getuid()}")
    return [
        [what, where]
        for what, where in done
        if what != "reads" and not (what.startswith(("writes", "os.", "shutil")) and where.startswith(own))
    ]


@pytest.mark.parametrize("verb", _READS, ids=" ".join)
def test_a_verb_that_shows_a_run(copied: Path, tmp_path: Path, verb: list[str]) -> None:
    """It writes nothing into the run, starts no program, and asks no address."""
    before = {path: path.lstat().st_mtime_ns for path in copied.rglob("*")}

    done = watched(copied, verb, tmp_path)

    if verb[0] != "doctor":  # it examines this machine with programs and addresses of its own
        assert _outside(done, tmp_path / f"otel-rl-{os.getuid()}") == []
    assert {path: path.lstat().st_mtime_ns for path in copied.rglob("*")} == before


@pytest.mark.parametrize("verb", _WRITES, ids=" ".join)
def test_planted_links(copied: Path, home: Path, tmp_path: Path, verb: list[str]) -> None:
    """Links in a copied run, where verbs write by default, lead to files of this user: these stay as they are."""
    for name in _DEFAULTS:
        shutil.rmtree(copied / name, ignore_errors=True)
        (copied / name).symlink_to(home / ("file" if "." in name else "inside"))
    (copied / "rows.jsonl").symlink_to(home / "file")

    watched(copied, verb, tmp_path)

    assert (home / "file").read_text() == "precious"
    assert [*(home / "inside").iterdir()] == []


@needs_root
@pytest.mark.parametrize("verb", _WRITES, ids=" ".join)
def test_a_run_of_another_user(recorded: Path, crowded: Path, verb: list[str]) -> None:
    """Nothing is written into it, whatever this user may do; what has no other place says so."""
    shutil.copytree(recorded, crowded / "runs" / "p" / "r")
    run = crowded / "runs" / "p" / "r"
    for path in everything_in(crowded / "runs"):
        os.chown(path, NOBODY, NOBODY)
    before = {path: path.lstat().st_mtime_ns for path in run.rglob("*")}

    watched(run, verb, crowded)

    assert {path: path.lstat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_place_in_a_run_of_ones_own(copied: Path) -> None:
    """It is in the run directory."""
    assert place_for(copied, "csv") == copied / "csv"


def test_a_place_behind_a_link(copied: Path, home: Path) -> None:
    """It is refused, also if the link leads nowhere yet."""
    (copied / "csv").symlink_to(home / "new")

    with pytest.raises(ForeignError, match="is a link"):
        place_for(copied, "csv")


def test_a_run_that_others_can_write(copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verbs write into the working directory instead."""
    copied.chmod(0o777)
    monkeypatch.chdir(tmp_path)

    assert place_for(copied, "csv") == tmp_path / "csv"


def test_a_link_where_an_exporter_writes(copied: Path, home: Path) -> None:
    """However deep it is, nothing is given to exporters of files."""
    (copied / "tensorboard").mkdir()
    (copied / "tensorboard" / "events").symlink_to(home / "file")

    with pytest.raises(ForeignError, match="is a link"):
        check_target(copied, apart=frozenset())


def test_a_pipe_where_an_exporter_writes(copied: Path) -> None:
    """It is refused: an exporter would wait for whoever reads it, or try again without an end."""
    os.mkfifo(copied / "rows.jsonl")

    with pytest.raises(ForeignError, match="is a pipe or a device"):
        check_target(copied, apart=frozenset())


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_rows_that_are_not_a_file(copied: Path, home: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """The run is shown without them, and one line names them."""
    shutil.rmtree(copied / "archive")
    place = copied / "rows.jsonl"
    place.unlink(missing_ok=True)
    {"link": lambda: place.symlink_to(home / "file"), "pipe": lambda: os.mkfifo(place), "directory": place.mkdir}[
        kind
    ]()

    run = open_run(copied)
    assert run.place.id == "r"
    assert len(run.rows("loss")) == 0
    assert [record.getMessage() for record in caplog.records] == [f"{place} is not a regular file; it is left out"]


def test_links_of_a_tracker(copied: Path) -> None:
    """W&B has one to its latest run, which stays below the run directory."""
    (copied / "wandb" / "run-1").mkdir(parents=True)
    (copied / "wandb" / "latest-run").symlink_to("run-1")

    check_target(copied, apart=frozenset())


def test_a_draft_of_another_program(tmp_path: Path, home: Path) -> None:
    """It is where nobody could put a link before; a link at the place of the file is replaced."""
    (tmp_path / "rows.csv").symlink_to(home / "file")
    with draft_of(tmp_path / "rows.csv") as draft:
        draft.write_text("new")

    assert (tmp_path / "rows.csv").read_text() == "new"
    assert (home / "file").read_text() == "precious"


@pytest.mark.parametrize("part", ["archive", "archive/machine", "archive/machine/rows", "archive/machine/tail"])
def test_a_folder_of_the_archive_that_is_a_link(copied: Path, home: Path, part: str) -> None:
    """A reader does not follow it."""
    machine = next((copied / "archive").iterdir()).name
    place = copied / part.replace("machine", machine)
    if place.exists():
        place.rename(home / "moved")
    place.symlink_to(home / "moved")

    assert machines(copied / "archive") == []


@pytest.mark.parametrize("names", [("run.json",), ("archive", "now.json")], ids="/".join)
def test_a_file_behind_a_link(copied: Path, home: Path, names: tuple[str, ...]) -> None:
    """Neither a link in the place of a file nor one in the place of its folder is followed below a run."""
    (home / names[-1]).write_bytes(b'{"id": "other"}')
    shutil.rmtree(copied / names[0]) if len(names) > 1 else (copied / names[0]).unlink()
    (copied / names[0]).symlink_to(home if len(names) > 1 else home / names[0])

    with pytest.raises(ForeignError, match=r"link|regular"):
        read_shown(copied.joinpath(*names), copied)
    assert read_now(copied) == [] or names == ("run.json",)


def test_a_path_that_leads_up(copied: Path, home: Path) -> None:
    """It leads to a file that is not below the run."""
    with pytest.raises(OSError, match="leads out of"):
        read_shown(copied / ".." / ".." / ".." / home.name / "file", copied)


def test_a_stack_of_somebody_else(home: Path) -> None:
    """Lines of the files that it names are not shown: it could name any file of this user."""
    text = f'Current thread 0x1 (most recent call first):\n  File "{home / "file"}", line 1 in run\n'

    assert stacks.parsed(text, with_source=False)[0].frames[0].source == ""
    assert stacks.parsed(text)[0].frames[0].source == "precious"


def test_a_large_file_of_stacks_behind_a_link(tmp_path: Path, home: Path) -> None:
    """It is not emptied, as a file of this user with two names is not; one with its own name is."""
    (home / "large").write_bytes(bytes(2 << 20))
    (tmp_path / "link").symlink_to(home / "large")
    os.link(home / "large", tmp_path / "second")

    assert emptied(tmp_path / "second", 1 << 20) == 2 << 20
    emptied(tmp_path / "link", 1 << 20)
    assert (home / "large").stat().st_size == 2 << 20
    (tmp_path / "second").unlink()
    assert emptied(home / "large", 1 << 20) == 0


def test_an_autopsy_of_a_run_with_a_planted_folder(copied: Path, home: Path, tmp_path: Path) -> None:
    """It says that nothing is written, and names no file."""
    shutil.rmtree(copied / "autopsy", ignore_errors=True)
    (copied / "autopsy").symlink_to(home / "inside")
    command = [sys.executable, "-P", "-m", "otel_rl.cli", "autopsy", str(copied), "--json"]
    answer = msgspec.json.decode(subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout)

    assert answer["file"] == ""
    assert any("nothing is written" in text for text in answer["missing"])
