"""Tables as files."""

from __future__ import annotations

import math
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.export import Params, Row, RunInfo, Table
from otel_rl_exporters.sidecar import SidecarExporter
from tests.exporters import same_run
from tests.exporters.trackers import strict


def load(path):
    return strict(path.read_bytes())


def files(run):
    """Return every file under the run directory, by its path there."""
    root = Path(run.directory)
    return {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}


def table(name="completions", step=0, rows=((1,),), **fields):
    return Table(name, step, 0, ("a",), rows, **fields)


def test_place(run):
    """By default a file is in `tables/`, named after the table and the step; a slash of the name is escaped."""
    SidecarExporter(run).export([*same_run.tables(), table(step=12)])

    assert sorted(files(run)) == [
        "tables/completions%2Fstep table_step_000003.json",
        "tables/completions%2Fstep table_step_000150.json",
        "tables/completions_step_000012.json",
    ]


def test_no_rows(run):
    """A table without rows is a file, too."""
    SidecarExporter(run).export([table(rows=())])

    assert load(files(run)["tables/completions_step_000000.json"]) == {"columns": ["a"], "data": []}


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/x", ".hidden", "..", "", "奖励", "a\x00b", "a\nb", "a:b*?", "a%2Fb", "e\u0301"]
)
def test_names(run, name):
    """A name never leads out of the directory, never hides the file, and can be read back from the file's name."""
    SidecarExporter(run).export([table(name)])
    (path,) = files(run)

    assert path.startswith("tables/")
    assert "/" not in path.removeprefix("tables/")
    assert not path.startswith("tables/.")
    assert unquote(path.removeprefix("tables/").removesuffix("_step_000000.json")) == name


def test_long_names(run):
    """Names that are longer than file systems take are cut, and those that differ stay different."""
    SidecarExporter(run).export([table("奖励" * 100 + end) for end in "ab"])

    assert len(files(run)) == 2
    assert all(len(Path(path).name) < 255 for path in files(run))


@given(
    cells=st.lists(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text())
    )
)
def test_any_cell(tmp_path_factory, cells):
    """Whatever a finite cell holds reads back the same; half a surrogate pair becomes JSON's escape."""
    run = RunInfo("run-7", "p", "n", str(tmp_path_factory.mktemp("run")))
    SidecarExporter(run).export([table(rows=tuple((cell,) for cell in [*cells, "\ud800"]))])
    (path,) = files(run).values()

    assert same_run.exact_rows(load(path)["data"]) == same_run.exact_rows([cell] for cell in [*cells, "\ud800"])


def test_pattern(run, tmp_path_factory):
    """The files can lie elsewhere, under another name."""
    elsewhere = tmp_path_factory.mktemp("output") / "rich_completions"
    SidecarExporter(run, path=f"{elsewhere}/{{name}}_step_{{step:06d}}.json").export([table("rich_completions", 7)])

    assert [path.name for path in elsewhere.iterdir()] == ["rich_completions_step_000007.json"]


def test_pattern_with_folders(run):
    """A table can have a folder of its own, and an attempt its own files."""
    SidecarExporter(run, path="{name}/{step}.{attempt}.json").export([table(step=7, attempt=2)])

    assert list(files(run)) == ["completions/7.2.json"]


@pytest.mark.parametrize("path", ["{table}_{step}", "{name}", "{step}", "{name}_{step", "{name:d}_{step}", "{}{}"])
def test_wrong_pattern(run, path):
    """A pattern that cannot tell tables and steps apart is an error at once."""
    with pytest.raises(ValueError, match="path="):
        SidecarExporter(run, path=path)


def test_resumed(run):
    """A step that is recorded again after a restart replaces its file."""
    SidecarExporter(run).export([table(step=5)])
    exporter = SidecarExporter(run)
    exporter.export([table(step=4, attempt=1), table(step=5, rows=((2,),), attempt=1)])
    (_, path) = sorted(files(run).items())[1]

    assert len(files(run)) == 2
    assert load(path)["data"] == [[2]]


def test_restart_within_one_agent(run):
    """So it does when one agent sees both attempts."""
    exporter = SidecarExporter(run)
    exporter.export([table(ranks=(0, 1)), table(rows=((2,),), ranks=(0,), attempt=1)])
    (path,) = files(run).values()

    assert load(path)["data"] == [[2]]


def test_offered_again(run):
    """A table that is retried is the same file."""
    exporter = SidecarExporter(run)
    exporter.export([table(ranks=(0,))])
    exporter.export([table(ranks=(0,))])

    assert len(files(run)) == 1


def test_late_ranks(run):
    """Rows of ranks that report late do not replace those of the others."""
    exporter = SidecarExporter(run)
    exporter.export([table(ranks=(0, 3)), table(ranks=(1,), rows=((2,),)), table(ranks=(2, 4, 5), rows=((3,),))])

    assert {path: load(file)["data"] for path, file in files(run).items()} == {
        "tables/completions_step_000000.json": [[1]],
        "tables/completions_step_000000.ranks-1.json": [[2]],
        "tables/completions_step_000000.ranks-2-5.json": [[3]],
    }


def test_tables_of_one_name_with_other_columns(run):
    """Three tables of one rank and step are three files, also when they are retried."""
    exporter = SidecarExporter(run)
    for _ in range(2):
        for columns in ("a", "b", "c"):
            exporter.export([Table("t", 0, 0, (columns,), ((columns,),), ranks=(0,))])

    assert sorted(load(file)["data"][0][0] for file in files(run).values()) == ["a", "b", "c"]


def test_unwritable(run):
    """A directory that cannot be made raises: the agent offers the table again."""
    Path(run.directory, "tables").write_text("")

    with pytest.raises(OSError, match="tables"):
        SidecarExporter(run).export([table()])


def test_the_rest(run):
    """Items that are not tables leave no file."""
    SidecarExporter(run).export([Params(0, {"lr": 1}), Row(0, 0, {"loss": math.nan})])

    assert files(run) == {}


def test_a_late_part_after_a_restart(run):
    """The next agent does not know what was written, but which part of the table this is: nothing is replaced."""
    SidecarExporter(run).export([table(ranks=(0, 3)), table(ranks=(1,), rows=((2,),), part=1)])
    exporter = SidecarExporter(run)
    exporter.export([table(ranks=(2,), rows=((3,),), part=2), table(ranks=(2,), rows=((4,),), part=1, attempt=1)])

    assert {path: load(file)["data"] for path, file in files(run).items()} == {
        "tables/completions_step_000000.json": [[1]],
        "tables/completions_step_000000.part-1.json": [[2]],
        "tables/completions_step_000000.part-2.json": [[3]],
        "tables/completions_step_000000.attempt-1.part-1.json": [[4]],
    }
