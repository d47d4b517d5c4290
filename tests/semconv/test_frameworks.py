"""Tests of the packages that register frameworks: otel-rl's own, none, and somebody else's."""

from __future__ import annotations

import re
from pathlib import Path

from otel_rl.semconv.dialect import dialect_file
from otel_rl.semconv.frameworks import frameworks, hooked
from tests.processes import run_python

_WITHOUT_FRAMEWORKS = """
import sys
sys.modules["otel_rl.frameworks"] = None  # as if somebody had deleted the folder
import otel_rl
from otel_rl.semconv.dialect import dialect_file
from otel_rl.semconv.frameworks import dialects, imported
from otel_rl.semconv.vocabulary import Vocabulary
assert dialects() == () and imported({"trl"}) is None
assert dialect_file("nemo_rl").hardware == "hardware"
for name in ("auto", "trl"):
    vocabulary = Vocabulary(name)
    assert not vocabulary.learn(["loss", "time/rollout"]) and vocabulary.chosen is None
    assert vocabulary.read("time/rollout").metric == "rl.phase.time" and vocabulary.read("loss") is None
otel_rl.init(agent="off", exporters=[], quiet=True).finish()
"""
_WITH_ANOTHER_PACKAGE = """
import otel_rl
from otel_rl.semconv.dialect import dialect, dialect_file
from otel_rl.semconv.frameworks import imported
assert imported({"toyrl"}) == "toyrl" and imported({"trl"}) == "trl"
assert dialect("toyrl").read("r/mean").metric == "rl.environment.reward.mean"
assert dialect_file("toyrl").hardware == "machine"
otel_rl.init(agent="off", exporters=[], quiet=True, dialect="toyrl").finish()
"""


def test_without_the_frameworks(tmp_path: Path) -> None:
    """Without otel-rl's own package of dialects, names mean what they mean in an unknown framework."""
    run_python(_WITHOUT_FRAMEWORKS, tmp_path)


def test_another_package(tmp_path: Path) -> None:
    """A package adds a framework and its dialect by an entry point."""
    package, metadata = tmp_path / "toy_dialects", tmp_path / "toy_dialects-1.0.dist-info"
    for folder in (package, metadata):
        folder.mkdir()
    (package / "__init__.py").write_text(
        "from otel_rl.semconv.frameworks import Framework\nFRAMEWORKS = {'toyrl': Framework(modules=('toyrl',))}\n"
    )
    (package / "toyrl.yaml").write_text("hardware: machine\nmetrics: {r/mean: rl.environment.reward.mean}\n")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-dialects\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[otel_rl_dialects]\ntoy = toy_dialects\n")

    run_python(_WITH_ANOTHER_PACKAGE, tmp_path)


def test_the_docs_say_where_names_come_from() -> None:
    """A row for each framework: its project and name, its configuration, its tags."""
    guide = (Path(__file__).parents[2] / "docs/how-to/frameworks.md").read_text()
    (table,) = re.findall(r"## Where names and configuration come from\n(.*?)\n## ", guide, re.DOTALL)
    entries = [dialect_file(name).framework for name in frameworks() if name not in hooked("tracker")]

    assert {entry["title"] for entry in entries if "title" in entry} <= {*re.findall(r"^\| (.+?) \|", table, re.M)}
