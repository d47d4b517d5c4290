"""Names that were public before their modules moved."""

from __future__ import annotations

import importlib
import pickle
import sys
from pathlib import Path
from pkgutil import resolve_name

import pytest

from otel_rl.look.reader.result import Result
from otel_rl.moved import MOVED
from tests.processes import run

DOCUMENTED = (
    "otel_rl.agent",
    "otel_rl.archive",
    "otel_rl.archive.reader:RunReader",
    "otel_rl.archive.reader:RunsReader",
    "otel_rl.archive.result:Result",
    "otel_rl.archive.snapshot:Hole",
    "otel_rl.convert.completions:completions_table",
    "otel_rl.convert.printing:print_samples",
    "otel_rl.errors",
    "otel_rl.insight:facts_of",
    "otel_rl.integrations.instrument:from_environment",
    "otel_rl.integrations.instrument:instrument",
    "otel_rl.integrations.maxent_grpo",
    "otel_rl.integrations.maxent_grpo_slim",
    "otel_rl.integrations.nemo_rl",
    "otel_rl.integrations.ray",
    "otel_rl.integrations.roll",
    "otel_rl.integrations.trinity",
    "otel_rl.semconv.drift",
    "otel_rl.semconv.phase_categories",
    "otel_rl.setup.settings",
    "otel_rl.stats.at_k",
    "otel_rl.stats.efficiency",
    "otel_rl.stats.groups",
    "otel_rl.stats.rollup",
    "otel_rl.trainer.finishing:Delivery",
    "otel_rl.trainer.flops:count_flops",
    "otel_rl.trainer.trajectories:Trajectory",
    "otel_rl.view.page.inline:Report",
)
"""What README and the docs named before the move, but for modules that import a framework."""


@pytest.mark.parametrize("old", MOVED)
def test_its_names_are_those_of_the_new_module(old: str) -> None:
    """A moved module has what the one with the new name has, and is not a second copy of it."""
    new = importlib.import_module(MOVED[old])
    moved = importlib.import_module(old)

    assert moved.__name__ == old
    assert all(getattr(moved, name) is value for name, value in vars(new).items() if not name.startswith("__"))


@pytest.mark.parametrize("name", DOCUMENTED)
def test_what_the_docs_named_imports(name: str) -> None:
    """Modules inside a moved package, and what users import from them, keep their old names."""
    assert resolve_name(name)


def test_a_pickle_of_before() -> None:
    """A class is found by the name of the module that it was in."""
    assert pickle.loads(b"cotel_rl.archive.result\nResult\n.") is Result


def test_a_moved_module_runs(tmp_path: Path) -> None:
    """`python -m` takes an old name."""
    assert "a run directory, a Python file" in run([sys.executable, "-m", "otel_rl.semconv.drift", "-h"], tmp_path)
