"""The names by which commands find a run."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import otel_rl
from otel_rl.cli import main
from otel_rl.cli.runs import RunArgument
from tests.security.other_users import needs_root


@pytest.fixture(autouse=True)
def runs() -> dict[str, Path]:
    """Two runs of one name, and one of another project, in the order in which they began."""
    places = {}
    for n, (project, name, run_id) in enumerate([("p", "base", "a-1"), ("p", "base", "a-2"), ("q", "other", "b-1")]):
        run = otel_rl.init(agent="off", exporters=[], quiet=True, project=project, name=name, id=run_id)
        run.finish(0)
        os.utime(run.dir / "run.json", (n, n))
        places[run_id] = run.dir
    return places


@pytest.mark.parametrize(
    ("name", "found"), [("a-1", "a-1"), ("b-1", "b-1"), ("base", "a-2"), ("other", "b-1"), ("newest", "b-1")]
)
def test_a_run_is_found(runs: dict[str, Path], name: str, found: str) -> None:
    """By its id, by its name, where the newest one is meant, or as the newest of all."""
    assert RunArgument().convert(name, None, None).absolute() == runs[found]


@needs_root
def test_a_run_of_another_user(runs: dict[str, Path]) -> None:
    """A name, an id and `newest` mean runs of this user, whatever name another one has; one that is named is read."""
    for run_id in ("a-2", "b-1"):
        os.chown(runs[run_id], 12345, 12345)

    assert RunArgument().convert("base", None, None).absolute() == runs["a-1"]
    assert RunArgument().convert("newest", None, None).absolute() == runs["a-1"]
    assert RunArgument().convert("other", None, None).absolute() == runs["b-1"]
    assert RunArgument().convert(str(runs["b-1"]), None, None) == runs["b-1"]


def test_a_directory_is_itself(runs: dict[str, Path]) -> None:
    """Also if a run has its path as its name."""
    Path("base").mkdir()

    assert RunArgument().convert("base", None, None) == Path("base")
    assert RunArgument().convert(str(runs["a-1"]), None, None) == runs["a-1"]


def test_a_directory_of_runs(runs: dict[str, Path]) -> None:
    """Means its newest run, and all of them where a command takes several."""
    assert RunArgument().convert("runs/p", None, None) == runs["a-2"]
    assert RunArgument().convert("runs", None, None) == runs["b-1"]
    assert RunArgument(several=True).convert("runs/p", None, None) == Path("runs/p")
    assert RunArgument(several=True).convert("a-1", None, None) == runs["a-1"]


def test_the_directory_of_all_runs(runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Is that of `OTEL_RL_DIR`."""
    monkeypatch.chdir("/")
    monkeypatch.setenv("OTEL_RL_DIR", str(tmp_path / "runs"))

    assert RunArgument().convert("a-1", None, None) == runs["a-1"]


def test_an_id_in_two_projects() -> None:
    """The error names both directories."""
    for project in ("x", "y"):
        otel_rl.init(agent="off", exporters=[], quiet=True, project=project, id="same").finish(0)

    with pytest.raises(click.BadParameter, match=r"runs/x/\S*same.*runs/y/\S*same"):
        RunArgument().convert("same", None, None)


@pytest.mark.parametrize("name", ["nothing", "a\0b"])
def test_a_name_of_no_run(name: str) -> None:
    """Is an error; a damaged `run.json` of another run plays no part."""
    place = Path("runs/p/damaged")
    place.mkdir(parents=True)
    (place / "run.json").write_text("{")

    with pytest.raises(click.BadParameter):
        RunArgument().convert(name, None, None)


def test_the_number_of_a_step_in_place_of_a_run() -> None:
    """Where a command takes a step too, the error says how to give one; others say nothing of steps."""
    said = CliRunner().invoke(main, ["why", "17"])

    assert "otel-rl ls; for a step of the newest run, give: --steps 17" in " ".join(said.stderr.split())
    with pytest.raises(click.BadParameter, match=r"to see them: otel-rl ls$"):
        RunArgument().convert("17", None, None)
