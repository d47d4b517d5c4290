"""`otel-rl tag`: a name that all verbs show and send."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import otel_rl
from otel_rl.cli import main
from otel_rl.cli.late.replay import replay
from otel_rl.export import Item, RunInfo
from otel_rl.look.mcp.tools import Tools
from otel_rl.semconv import RUN_NAME
from tests.look.recorded import Shape, record


class Named:
    """An exporter that writes down how a run is called."""

    def __init__(self, run: RunInfo, *, file: str) -> None:
        Path(file).write_text(f"{run.name} {run.resource[RUN_NAME]}")

    def export(self, items: Sequence[Item]) -> None:
        """Accept everything."""

    def shutdown(self) -> None:
        """Hold nothing."""


def call(*arguments: str) -> Result:
    """Call `otel-rl`."""
    return CliRunner().invoke(main, arguments)


@pytest.fixture(autouse=True)
def run() -> Path:
    """Return a run called `baseline`, next to one that is called `other`."""
    for name in ("other", "baseline"):
        place = record(Path("runs/p", name).absolute(), Shape(project="p", name=name, steps=40))
        manifest = json.loads((place / "run.json").read_text())
        (place / "run.json").write_text(json.dumps(manifest | {"id": f"id-{name}"}))
    return place


def test_marks_are_printed() -> None:
    """For people and for programs."""
    arguments = ("tag", "baseline", "--name", "best", "--add", "good", "--note", "why\nnot", "--baseline")
    (marked,) = json.loads(call(*arguments).stdout)["runs"]

    wanted = {"name": "best", "tags": ["good"], "notes": "why\nnot", "baseline": True, "archived": False}
    assert (marked["id"], marked["name"], marked["marks"]) == ("id-baseline", "best", wanted)
    assert call("tag", "best", "--text").stdout == "p/best  good, baseline\n  why\n  not\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls", "--text"),
        ("ls", "--json"),
        ("top", "best", "--text"),
        ("top", "best", "--json"),
        ("compare", "other", "best", "--text"),
        ("compare", "other", "best", "--json"),
    ],
    ids=" ".join,
)
def test_the_name_on_screens(arguments: tuple[str, ...], run: Path) -> None:
    """It is the run's."""
    otel_rl.mark(run, name="best")
    shown = call(*arguments).stdout

    assert "best" in shown
    assert "p/baseline  " not in shown
    assert '"name":"baseline"' not in shown


def test_the_name_for_readers(run: Path) -> None:
    """It is that of the run, and a column of all tables of several."""
    otel_rl.mark(run, name="best")
    names = otel_rl.open_runs([run]).sql("SELECT DISTINCT run_name FROM rows")["run_name"]

    assert otel_rl.open_run(run).place.name == "best"
    assert names.tolist() == ["best"]


def test_the_name_in_the_report(run: Path) -> None:
    """It is in the title."""
    otel_rl.mark(run, name="best")

    assert "<title>p · best · otel-rl</title>" in otel_rl.report(run).html


def test_the_name_for_coding_agents(run: Path) -> None:
    """They find the run by it."""
    otel_rl.mark(run, name="best")
    tools = Tools(Path("runs"))

    assert [known.name for known in tools.runs("best").runs] == ["best"]
    assert tools.status("best").summary.name == "best"


def test_the_name_in_exporters(run: Path, tmp_path: Path) -> None:
    """Those that are fed later get it."""
    otel_rl.mark(run, name="best")
    replay(run, {"tests.cli.test_tag:Named": {"file": str(tmp_path / "name")}}, print, into=tmp_path / "o")

    assert (tmp_path / "name").read_text() == "best best"


def test_an_archived_run() -> None:
    """It is in no list, except in one of all."""
    call("tag", "baseline", "--archive")

    assert [listed["name"] for listed in json.loads(call("ls").stdout)["runs"]] == ["other"]
    assert len(json.loads(call("ls", "--all").stdout)["runs"]) == 2
    call("tag", "other", "--archive")
    assert "otel-rl ls --all" in call("ls", "--text").stderr
    call("tag", "other", "baseline", "--unarchive")
    assert len(json.loads(call("ls").stdout)["runs"]) == 2


def test_tags_in_the_list() -> None:
    """They are a column."""
    call("tag", "baseline", "--add", "good", "--baseline")

    assert "good, baseline" in call("ls", "--text").stdout


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("other", "baseline", "--name", "x"), "--name is for one run"),
        (("runs",), "is not a run directory"),
        (("same",), "is the name of 2 runs; give one of the directories: "),
        (("baseline", "--add", "two words"), "a tag 64 without spaces"),
    ],
)
def test_what_cannot_be_marked(arguments: tuple[str, ...], error: str) -> None:
    """It is said, and nothing is marked."""
    for name in ("one", "two"):
        record(Path("runs/q", name), Shape(name="same", steps=2))
    done = call("tag", *arguments)

    assert done.exit_code != 0
    assert error in done.stderr
    assert [*Path("runs").rglob("marks.json")] == []
