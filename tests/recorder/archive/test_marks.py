"""The marks of a run: what people say of it, in one file that only its owner writes."""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.archive.marking import mark
from otel_rl.recorder.archive.marks import Marks, marks_of
from otel_rl.recorder.archive.runs import directory_of, place_of
from otel_rl.recorder.files.own_files import ForeignError
from tests.look.recorded import Shape, record
from tests.processes import run_python
from tests.security.other_users import NOBODY, needs_root


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run directory."""
    return record(tmp_path / "runs" / "p" / "r", Shape(steps=3))


def test_a_run_without_marks(run: Path) -> None:
    """It has none, and looking makes no file."""
    assert place_of(run).marks == Marks()
    assert not (run / "marks.json").exists()


def test_each_act_changes_only_what_it_names(run: Path) -> None:
    """The others stay."""
    otel_rl.mark(run, name="best", add=["good", "seed0"], notes="holds\nat 3e-6")
    otel_rl.mark(run, add=["paper"], remove=["seed0"], baseline=True)

    wanted = Marks(name="best", tags=("good", "paper"), notes="holds\nat 3e-6", baseline=True)
    assert otel_rl.mark(run, archived=False) == place_of(run).marks == wanted


def test_the_name_is_that_of_the_run(run: Path) -> None:
    """The run is still found by the name that it began with."""
    otel_rl.mark(run, name="best so far")

    assert place_of(run).name == "best so far"
    assert directory_of("best so far", run.parent) == directory_of("baseline", run.parent) == run


def test_a_given_name_comes_first(run: Path) -> None:
    """A run that began with a name does not hide the one that has it now."""
    other = record(run.with_name("other"), Shape(steps=3, name="first"))
    otel_rl.mark(other, name="baseline")

    assert directory_of("baseline", run.parent, exact=True) != directory_of("first", run.parent, exact=True)


def test_an_empty_name_brings_back_the_first_one(run: Path) -> None:
    """The run is called as it began."""
    otel_rl.mark(run, name="best")
    otel_rl.mark(run, name="")

    assert place_of(run).name == "baseline"


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755])
def test_who_can_read_them(run: Path, mode: int) -> None:
    """Those who can read the run directory."""
    run.chmod(mode)
    otel_rl.mark(run, notes="x")

    assert stat.S_IMODE((run / "marks.json").stat().st_mode) == mode & 0o666


@pytest.mark.parametrize(
    "marks",
    [
        {"name": "a\x1b[2Jb"},
        {"name": "x" * 201},
        {"name": "two\nlines"},
        {"add": ["two words"]},
        {"add": ["a,b"]},
        {"add": [""]},
        {"add": [f"t{number}" for number in range(65)]},
        {"notes": "x" * 10_001},
        {"notes": "\u202ebackwards"},
    ],
)
def test_marks_that_no_screen_could_show(run: Path, marks: dict[str, str]) -> None:
    """They are refused, with what is allowed; nothing is written."""
    with pytest.raises(ValueError, match="a name has at most 200 characters"):
        otel_rl.mark(run, **marks)

    assert not (run / "marks.json").exists()


def test_what_is_not_a_run(tmp_path: Path) -> None:
    """It gets no file."""
    with pytest.raises(FileNotFoundError, match="is not a run directory"):
        otel_rl.mark(tmp_path, name="x")


def test_a_link_to_a_run(run: Path) -> None:
    """The marks are those of the run to which it leads."""
    (latest := run.with_name("latest")).symlink_to(run)
    otel_rl.mark(latest, add=["good"])

    assert place_of(run).marks.tags == ("good",)


def test_many_writers_at_once(run: Path) -> None:
    """Threads and processes lose nothing of each other."""
    script = f"import otel_rl\nfor n in range(20): otel_rl.mark({str(run)!r}, add=['NAME%d' % n])"
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(run_python, script.replace("NAME", name), run) for name in "abc"]
        jobs += [pool.submit(lambda n=n: otel_rl.mark(run, notes=str(n)) and "") for n in range(20)]  # type: ignore[misc]
        for job in jobs:
            job.result()

    assert len(place_of(run).marks.tags) == 60


def test_a_planted_link(run: Path, tmp_path: Path) -> None:
    """It is neither read nor written through, and the run is shown without marks."""
    (tmp_path / "other.json").write_text('{"name": "planted"}')
    (run / "marks.json").symlink_to(tmp_path / "other.json")

    assert place_of(run).name == "baseline"
    with pytest.raises(ForeignError):
        otel_rl.mark(run, name="mine")
    assert (tmp_path / "other.json").read_text() == '{"name": "planted"}'


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"x" * (10 << 20), id="10 MB"),
        pytest.param(b'{"notes": "' + b"x" * (10 << 20) + b'"}', id="10 MB of notes"),
        pytest.param(b'{"name": 3}', id="type"),
        pytest.param(b'{"tags": "good"}', id="text"),
        pytest.param(b"[" * 100_000, id="depth"),
        pytest.param(b'{"name": "a\\u001b[2J"}', id="escape"),
        pytest.param(b'{"name": "\xff"}', id="bytes"),
        pytest.param(b"", id="empty"),
    ],
)
def test_marks_of_somebody_else(run: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Readers warn and leave them out; the owner gets an error before anything is lost."""
    (run / "marks.json").write_bytes(content)

    assert marks_of(run) == Marks()
    assert "marks.json" in caplog.text
    with pytest.raises((OSError, ValueError), match=r"marks\.json|larger than 1 MiB"):
        otel_rl.mark(run, name="x")
    assert (run / "marks.json").read_bytes() == content


def test_marks_of_a_later_version(run: Path) -> None:
    """Fields that this version does not know are ignored."""
    (run / "marks.json").write_text(json.dumps({"name": "n", "color": "red"}))

    assert place_of(run).marks == Marks(name="n")


def test_a_pipe_in_their_place(run: Path) -> None:
    """Nobody waits for its writer."""
    os.mkfifo(run / "marks.json")

    assert place_of(run).marks == Marks()


def test_a_run_that_others_can_write(run: Path) -> None:
    """It is not marked."""
    run.chmod(0o777)

    with pytest.raises(ForeignError, match="other users can write"):
        otel_rl.mark(run, name="x")


@needs_root
def test_a_run_of_another_user(run: Path) -> None:
    """It is not marked, whatever this user may do."""
    os.chown(run, NOBODY, NOBODY)

    with pytest.raises(ForeignError, match="belongs to"):
        otel_rl.mark(run, name="x")
    assert not (run / "marks.json").exists()


def test_a_text_is_one_tag(run: Path) -> None:
    """It is not a tag for each of its letters."""
    assert mark(run, add="good").tags == ("good",)
    assert mark(run, remove="good").tags == ()
