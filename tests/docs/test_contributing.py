"""What CONTRIBUTING says: how many files a new exporter, finding, framework and so on takes, and where things are.

Each addition is done in a copy of the repository, by writing exactly the files of its list.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from otel_rl import Run
from otel_rl.export import ENTRY_POINT_GROUP
from otel_rl.recorder.delivery.plugins import public
from tests.docs.snippets import ROOT
from tests.installed import differing

_TEXT = (ROOT / "CONTRIBUTING.md").read_text()
_PROJECT = msgspec.toml.decode((ROOT / "pyproject.toml").read_text())
_COPIED = ("otel_rl", "exporters", "dashboards", "deploy/kubernetes", "docs/reference", "docs/how-to", "tests")


def _files(thing: str, name: str) -> list[str]:
    """Return the files by hand that the list of a thing names; one without a path is empty."""
    section = _TEXT.partition(f"## Add {thing}\n")[2].partition("\n\n## ")[0]
    section = section.replace("WING", "look")
    return [re.sub("NAME|AREA", name, file) for file in re.findall(r"^- (?:`([^`]+)`)?", section, re.MULTILINE)]


class Checkout:
    """A copy of what this needs of the repository, and the installed package that pip would make of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in _COPIED:
            shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        for name in ("README.md", "pyproject.toml"):
            shutil.copy(ROOT / name, directory)

    def add(self, thing: str, name: str, *texts: str) -> None:
        """Write the files of the list, at most three, in its order; a text may follow the one that is there.

        A text that begins with the name of a file and a line break is for an entry of the list without a path.
        """
        files = _files(thing, name)
        assert len(files) == len(texts) <= 3
        for file, text in zip(files, texts, strict=True):
            place, content = (file, text) if file else text.split("\n", 1)
            path = self.directory / place
            path.write_text((path.read_text().rstrip() + "\n" if path.exists() else "") + content)

    def install(self) -> None:
        """Write the entry points of pyproject.toml where Python looks for them, as pip does."""
        project = msgspec.toml.decode((self.directory / "pyproject.toml").read_text())["project"]
        metadata = self.directory / "otel_rl-0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: otel-rl\nVersion: 0\n")
        groups = project["entry-points"].items()
        lines = [
            f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in all_.items()) for group, all_ in groups
        ]
        (metadata / "entry_points.txt").write_text("\n".join(lines))

    def run(self, *arguments: str) -> str:
        """Run Python in the copy, with the code of the copy; return what it printed. It must succeed."""
        path = os.pathsep.join(str(self.directory / name) for name in ("", "exporters"))
        command = [sys.executable, *arguments]
        environment = os.environ | {"PYTHONPATH": path}
        done = subprocess.run(command, cwd=self.directory, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def read(self, name: str) -> str:
        """Return the text of a file."""
        return (self.directory / name).read_text()


@pytest.mark.parametrize(
    "thing", ["an exporter", "an analysis", "a finding", "a verb", "a framework", "a metric", "a panel"]
)
def test_a_thing_takes_three_files_at_most(thing: str) -> None:
    """The list has one to three files by hand."""
    assert 1 <= len(_files(thing, "x")) <= 3


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "otel-rl")


_EXPORTER = """
from pathlib import Path


class LastStep:
    def __init__(self, run):
        self.path = Path(run.directory, "last")

    def export(self, items):
        for item in items:
            if hasattr(item, "step"):
                self.path.write_text(str(item.step))

    def shutdown(self):
        pass
"""
_TEST_OF_THE_EXPORTER = """
import otel_rl


def test_it(tmp_path):
    run = otel_rl.init(exporters=["last_step"], dir=str(tmp_path), hardware=False, quiet=True)
    run.log({"loss": 0.5}, step=7)
    assert run.finish()
    assert (run.dir / "last").read_text() == "7"
"""


@pytest.mark.slow
def test_an_exporter(checkout: Checkout) -> None:
    """Its module, its entry point and its test are enough for `init`, the environment and delivery."""
    entry = '[project.entry-points.otel_rl_exporter]\nlast_step = "otel_rl_exporters.last_step:LastStep"\n'
    project = checkout.directory / "pyproject.toml"
    head, _, rest = project.read_text().partition("[project.entry-points.otel_rl_exporter]\n")
    project.write_text(head + entry + rest)
    checkout.add("an exporter", "last_step", _EXPORTER, "", _TEST_OF_THE_EXPORTER)
    checkout.install()

    assert "1 passed" in checkout.run("-m", "pytest", "-q", "tests/exporters/test_last_step.py")


def test_what_pyproject_lists_twice() -> None:
    """Each tracker's extra is in `all`."""
    extras = set(_PROJECT["project"]["optional-dependencies"])
    (everything,) = _PROJECT["project"]["optional-dependencies"]["all"]
    assert set(re.findall(r"[\w]+", everything.partition("[")[2])) == extras - {"all", "dev", "docs", "test"}


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/exporters.md"])
def test_the_tables_name_exporters_that_there_are(page: str) -> None:
    """Each row begins with names of entry points, and each exporter that users can name has a row."""
    rows = (ROOT / page).read_text().partition("| name |")[2].partition("\n\n")[0].splitlines()[2:]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    known = {*_PROJECT["project"]["entry-points"]["otel_rl_exporter"], "otlp"}

    assert named - known == set(), f"not an exporter, but in the table of {page}"
    assert {*public(ENTRY_POINT_GROUP)} - named == set(), f"not in the table of {page}"


_VERB = """
import click
from otel_rl.cli.commands import Verb
from otel_rl.cli.runs import RunArgument


@click.command(
    cls=Verb, section="look", short_help="Print the name of a run.", examples={"called newest": "the newest run"}
)
@click.argument("run", type=RunArgument())
def called(run):
    click.echo(run.name)
"""
_TEST_OF_THE_VERB = """
from click.testing import CliRunner
from otel_rl.cli import main
from tests.look.recorded import Shape, record


def test_it(tmp_path):
    run = record(tmp_path / "first", Shape(steps=3))
    assert CliRunner().invoke(main, ["called", str(run)]).output == "first\\n"
    assert "Print the name of a run." in CliRunner().invoke(main, ["--help"]).output
"""


@pytest.mark.slow
def test_a_verb(checkout: Checkout) -> None:
    """Its module and its test are enough for `otel-rl` and its help."""
    checkout.add("a verb", "called", _VERB, _TEST_OF_THE_VERB)

    assert "1 passed" in checkout.run("-m", "pytest", "-q", "-n0", "tests/look/test_called.py")


_FINDING = """
from otel_rl.look.insight.facts import Finding


def seven_steps(recorded):
    number = recorded.steps.number
    return [Finding(kind="learning", severity="note", sentence=f"It has {number} steps.")] if number == 7 else []
"""
_LINE_OF_THE_FINDING = """
from otel_rl.look.insight.findings.seven_steps import seven_steps
_FINDINGS["seven_steps"] = lambda run: seven_steps(run.recorded)
"""
_TEST_OF_THE_FINDING = """

def test_seven_steps(tmp_path):
    assert only(facts_of(play(tmp_path / "run", Played(), 7)), "learning").sentence == "It has 7 steps."
"""


@pytest.mark.slow
def test_a_finding(checkout: Checkout) -> None:
    """Its function, its line and its test are enough if there is a kind for it."""
    checkout.add("a finding", "seven_steps", _FINDING, _LINE_OF_THE_FINDING, _TEST_OF_THE_FINDING)
    tests = "tests/look/insight/test_findings.py"

    assert "2 passed" in checkout.run("-m", "pytest", "-q", "-n0", tests, "-k", "seven_steps or listed")


def test_entry_points_are_installed() -> None:
    """Those of pyproject.toml are those of the installed package; `pip install -e .` copies them."""
    assert differing() == [], "run: pip install -e ."


def test_entry_points_that_are_not_installed(tmp_path: Path) -> None:
    """One that was added or moved since then is named."""
    project = tmp_path / "pyproject.toml"
    text = (ROOT / "pyproject.toml").read_text()
    head = "[project.entry-points.otel_rl_analysis]\n"
    moved = text.replace("otel_rl.analyses.memory:", "otel_rl.analyses.memories:")
    project.write_text(moved.replace(head, f'{head}new = "a:b"\n'))

    assert {*differing(project)} - {*differing()} == {"otel_rl_analysis: memory", "otel_rl_analysis: new"}


_INTEGRATION = """
import otel_rl
from otel_rl.frameworks.patches import harmless
from otel_rl.frameworks.recording import Recording


def patch(module, patches):
    recording = Recording(dialect="toyrl")

    def log(function, instance, args, kwargs):
        with harmless("log"):
            recording.run.log(args[0], step=args[1])
        return function(*args, **kwargs)

    patches.wrap(module, "log", log)
"""
_DIALECT = """
framework:
  title: Toy RL
  modules: [toyrl]
  hooks:
    toyrl: otel_rl.frameworks.toyrl:patch
metrics:
  r/mean: rl.environment.reward.mean
"""
_TEST_OF_THE_FRAMEWORK = """
import sys

from otel_rl.semconv.dialect import dialect
from tests.collector import wait_for
from tests.processes import rows_of, run


def test_it(tmp_path):
    (tmp_path / "toyrl.py").write_text("def log(values, step):\\n    pass\\n")
    (tmp_path / "train.py").write_text("import toyrl\\ntoyrl.log({'r/mean': 0.5}, 3)\\n")
    command = [sys.executable, "-m", "otel_rl.cli", "run", "--instrument", "toyrl", "--", sys.executable, "train.py"]
    run(command, tmp_path, OTEL_RL_HARDWARE="false", OTEL_RL_PROJECT="p", OTEL_RL_RUN_ID="r")
    (place,) = (tmp_path / "runs" / "p").iterdir()
    wait_for(lambda: rows_of(place), "no rows")

    assert [(row["step"], row["values"]) for row in rows_of(place)] == [(3, {"r/mean": 0.5})]
    assert dialect("toyrl").read("r/mean").metric == "rl.environment.reward.mean"
"""


@pytest.mark.slow
def test_a_framework(checkout: Checkout) -> None:
    """Its module, its dialect and its test are enough for `otel-rl run`, `dialect=`, the tables and shared tests."""
    checkout.add("a framework", "toyrl", _INTEGRATION, _DIALECT, _TEST_OF_THE_FRAMEWORK)
    checkout.run("-m", "otel_rl.semconv.generate")

    assert "1 passed" in checkout.run("-m", "pytest", "-q", "tests/frameworks/test_toyrl.py", "--noconftest")
    shared = [f"tests/semconv/test_{name}.py" for name in ("rosetta", "vocabulary", "registry")]
    assert "failed" not in checkout.run("-m", "pytest", "-q", *shared)
    assert "Toy RL" in checkout.read("README.md")
    assert "\n| Toy RL | | yes |" in checkout.read("docs/how-to/frameworks.md")
    script = "import otel_rl; otel_rl.init(dialect='toyrl', agent='off', exporters=[], quiet=True).finish()"
    checkout.run("-c", script)


_SCRAPED = """
import time, urllib.request
import otel_rl
run = otel_rl.init(dialect="verl", exporters=[], hardware=False, quiet=True)
with run.step(0):
    run.log({"actor/surprise": 0.25})
shown, until = "", time.monotonic() + 60
while "rl_train_surprise{" not in shown and time.monotonic() < until:
    shown = urllib.request.urlopen(run.prometheus).read().decode()
    time.sleep(0.2)
run.finish()
print(*(line.split()[-1] for line in shown.splitlines() if line.startswith("rl_train_surprise{")))
"""


@pytest.mark.slow
def test_a_metric(checkout: Checkout) -> None:
    """An entry of the registry and one of a dialect are enough for the page of metrics and a scrape."""
    entry = {"id": "metric.rl.train.surprise", "type": "metric", "metric_name": "rl.train.surprise"}
    entry |= {"stability": "development", "instrument": "gauge", "unit": "1", "brief": "Surprise."}
    entry |= {"annotations": {"otel_rl": {"source": "otel-rl"}}}
    dialect = checkout.directory / "otel_rl/frameworks/dialects/verl.yaml"
    dialect.write_text(dialect.read_text().replace("\nmetrics:\n", "\nmetrics:\n  actor/surprise: rl.train.surprise\n"))
    name = dialect.relative_to(checkout.directory)
    checkout.add("a metric", "training", "  - " + json.dumps(entry) + "\n", f"{name}\n")

    checkout.run("-m", "otel_rl.semconv.generate")

    assert "`rl.train.surprise`" in checkout.read("docs/reference/metrics.md")
    assert checkout.run("-c", _SCRAPED) == "0.25\n"


def test_a_panel(checkout: Checkout) -> None:
    """One entry of a board is enough for Grafana's JSON."""
    place = checkout.directory / "dashboards" / "boards" / "overview.yaml"
    board = yaml.safe_load(place.read_text())
    panels = board["rows"][0]["panels"]
    panels.append(panels[0] | {"title": "Reward again"})
    place.write_text(yaml.safe_dump(board))
    checkout.add("a panel", "overview", "")

    checkout.run("-m", "dashboards")

    assert '"Reward again"' in checkout.read("dashboards/grafana/overview.json")


def test_the_tour_leads_somewhere() -> None:
    """Each file of the tour exists and has the name in it."""
    tour = _TEXT.partition("## A tour")[2].partition("\n## ")[0]
    stops = re.findall(r"\[[^\]]+\]\(([^)]+\.(?:py|yaml))\)(?:, `([\w.]+)`)?", tour)

    assert len(stops) == 8
    for place, name in stops:
        text = (ROOT / place).read_text()
        assert all(re.search(rf"\b(class|def) {part}\b", text) for part in name.split(".") if part)
    assert "metric_name: rl.train.kl\n" in (ROOT / "otel_rl/semconv/model/training.yaml").read_text()


def test_the_reference_has_every_method_of_a_run() -> None:
    """A method that the page does not name is on no page."""
    page = (ROOT / "docs/reference/api.md").read_text()
    named = re.search(r"::: otel_rl\.Run\n.*?members: \[(.*?)\]", page, re.DOTALL)

    assert named is not None
    assert {name for name in dir(Run) if not name.startswith("_")} <= {*named[1].split(", ")}
