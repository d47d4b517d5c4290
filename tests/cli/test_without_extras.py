"""The recorder in a trainer's environment: without DuckDB, NumPy, Textual, rich, and all trackers."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.processes import run_python

ROOT = Path(__file__).parents[2]
LOOK = ("duckdb", "numpy", "rich", "textual")
_ABSENT = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {(*LOOK, "mcp", "torch", "pandas", "pyarrow", "polars")}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from click.testing import CliRunner
import otel_rl
"""
_RECORD = """
run = otel_rl.init(project="p", id="one", exporters=["console", "jsonl"], content=True, quiet=True)
for step in range(3):
    with run.step(step), run.phase("generate", tokens=9):
        run.log({"loss": 1 / (step + 1)})
run.table("samples", {"prompt": ["日本", "b"], "reward": [1.0, 0.5]}, step=2)
run.finish()
"""
_CALL = """
from otel_rl.cli import main
def call(*arguments):
    result = CliRunner().invoke(main, arguments)
    print(result.exit_code, result.output, end="")
"""


def test_the_extra_has_these_packages() -> None:
    """They are those of `look`, and no other dependency."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split("[<>=;[]", text)[0] for text in project["dependencies"]}

    assert {re.split("[<>=;[]", text)[0] for text in project["optional-dependencies"]["look"]} == {*LOOK}
    assert names.isdisjoint(LOOK)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a run, whose output is in `printed`."""
    place = tmp_path_factory.mktemp("recorded")
    (place / "printed").write_text(run_python(_ABSENT + _RECORD, place))
    return place


def test_recording(recorded: Path) -> None:
    """The console prints rows and tables, and the archive and the rows are there."""
    printed = (recorded / "printed").read_text().splitlines()
    (rows,) = recorded.glob("runs/p/one/rows.jsonl")

    assert next(line for line in printed if line.startswith("step ")).startswith("step 0  loss 1")
    assert [line.split() for line in printed if "日本" in line] == [["日本", "1"]]
    assert len(rows.read_text().splitlines()) == 3
    assert [*recorded.glob("runs/p/one/archive/*/rows/*.parquet")]


def test_ls(recorded: Path) -> None:
    """The list is that of an environment with the extra, but for verdicts; the text has how each run ended."""
    script = "call('ls', '--text')\ncall('ls', '--json')"
    without, with_it = (run_python(f"{start}{_CALL}{script}", recorded) for start in (_ABSENT, _START))

    assert re.search(r"p/one  ○ finished      3 .* Finished after .*: 3 steps", without)
    (least,), (most,) = (json.loads(text.splitlines()[-1].partition(" ")[2])["runs"] for text in (without, with_it))
    assert least.pop("verdict") is least.pop("cost") is None
    assert most.pop("cost") is not None
    assert any(sentence.startswith("Finished after ") for sentence in most.pop("verdict"))
    assert least == most


_START = "from click.testing import CliRunner\n"


def test_ls_of_a_run_without_a_summary(recorded: Path, tmp_path: Path) -> None:
    """It does not say that there is no step; it says what reads them."""
    run = tmp_path / "runs" / "p" / "two"
    run.mkdir(parents=True)
    for name in ("run.json", "rows.jsonl"):
        (run / name).write_bytes((recorded / "runs" / "p" / "one" / name).read_bytes())
    answer = json.loads(run_python(f"{_ABSENT}{_CALL}call('ls', '--json')", tmp_path).partition(" ")[2])
    text = run_python(f"{_ABSENT}{_CALL}call('ls', '--text')", tmp_path)

    assert [(one["state"], one["reason"]) for one in answer["runs"]] == [
        ("lost", "to read its records: pip install 'otel-rl[look]'")
    ]
    assert "unknown" in text


@pytest.mark.parametrize("verb", ["autopsy", "doctor"])
def test_verbs_that_need_no_extra(verb: str, recorded: Path) -> None:
    """Verbs that look at a machine run on the nodes of a training."""
    text = run_python(f"{_ABSENT}{_CALL}call({verb!r}, '--text', 'newest')", recorded)

    assert "Error" not in text
    assert len(text.splitlines()) > 3


@pytest.mark.parametrize(
    ("verb", "extra"),
    [
        *((verb, "look") for verb in ("top --once", "report", "samples", "why", "export newest --to csv")),
        *((verb, "look") for verb in ("ls --where loss:best=1", "ls --sort nothing", "ls --columns cost")),
        *(("mcp .", "mcp"), ("demo", "demo")),
    ],
)
def test_verbs_that_need_an_extra(verb: str, extra: str, recorded: Path) -> None:
    """One line says how to get it."""
    text = run_python(f"{_ABSENT}{_CALL}call(*{verb.split()})", recorded)

    assert text.startswith("1 Error: ")
    assert text.count("\n") == 1
    assert f"pip install 'otel-rl[{extra}]', or leave" in text
    assert text.endswith((f"[{extra}]' otel-rl {verb}\n", f"[{extra}] otel-rl {verb}\n"))


def test_compare_cannot_compare(recorded: Path) -> None:
    """Its exit code 1 means a gate; without the extra it is 3."""
    assert run_python(f"{_ABSENT}{_CALL}call('compare', 'newest', 'newest')", recorded).startswith("3 Error: ")


def test_functions_that_read_runs(recorded: Path) -> None:
    """They can be imported, also by `*`; the call says what is absent."""
    script = """
from otel_rl import *
for function in (open_run, open_runs, report, ui):
    try:
        function("runs/p/one")
    except ImportError as error:
        print(error)
"""
    names = ("open_run", "open_runs", "report", "ui")
    assert run_python(_ABSENT + script, recorded).splitlines() == [
        f"otel_rl.{name} needs an extra: pip install 'otel-rl[look]'" for name in names
    ]
