"""Each analysis can be deleted: the agent works, and only the facts of this analysis are absent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from otel_rl.analysis import ENTRY_POINT_GROUP
from otel_rl.recorder.agent.steps.analyses import registered
from otel_rl.recorder.delivery.quarantine import Quarantine
from otel_rl.recorder.journal.record_events import Lost, Revived
from otel_rl.recorder.journal.records import AnyRecord
from tests.analyses.stream import facts, last_records, records

ROOT = Path(__file__).parents[2]
_ENTRIES: dict[str, str] = msgspec.toml.decode((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][
    ENTRY_POINT_GROUP
]


@pytest.fixture(scope="module")
def whole() -> Counter[str]:
    return facts(registered(Quarantine()))


@pytest.fixture(scope="module")
def none() -> Counter[str]:
    return facts({})


def test_the_run_has_all_kinds_of_records() -> None:
    """Otherwise an analysis of another kind would be removed without a difference."""
    recorded = {type(record) for batch in [*records(), last_records()] for _, record in batch}

    assert recorded == {*get_args(AnyRecord), Lost, Revived}


@pytest.mark.parametrize("name", _ENTRIES)
def test_without_one(name: str, whole: Counter[str], none: Counter[str]) -> None:
    """The absent facts are those that the analysis makes alone, and that is something; logged values stay."""
    every = registered(Quarantine())
    alone = facts({name: every[name]})
    without = facts({other: factory for other, factory in every.items() if other != name})

    assert alone - none
    assert whole - without == alone - none
    assert without - whole == none - alone
    assert _logged(without) == _logged(whole)


def test_the_recorder_has_the_rows_without_any(whole: Counter[str], none: Counter[str]) -> None:
    """All that was logged is there, and no fact of an analysis."""
    assert _logged(none) == _logged(whole)
    assert len(_logged(none)) > 100


def _logged(found: Counter[str]) -> set[str]:
    return {fact for fact in found if fact.startswith("logged")}


def _without_file(directory: Path, *names: str) -> Counter[str]:
    """Return the facts of the run in a copy of the package, from which the files of these analyses are deleted."""
    shutil.copytree(ROOT / "otel_rl", directory / "otel_rl", ignore=shutil.ignore_patterns("__pycache__"))
    metadata = directory / "otel_rl-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: otel-rl\nVersion: 0\n")
    entries = "".join(f"{name} = {place}\n" for name, place in _ENTRIES.items())
    (metadata / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{entries}")
    for name in names:
        module = directory.joinpath(*_ENTRIES[name].partition(":")[0].split("."))
        shutil.rmtree(module) if module.is_dir() else module.with_suffix(".py").unlink()
    done = subprocess.run(
        [sys.executable, "-m", "tests.analyses.stream"],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": f"{directory}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Counter(json.loads(done.stdout))


@pytest.mark.slow
@pytest.mark.parametrize("name", _ENTRIES)
def test_its_file_is_deleted(name: str, tmp_path: Path) -> None:
    """The others do not import it: they and the recorder make what they make without its entry point."""
    every = registered(Quarantine())

    assert _without_file(tmp_path, name) == facts({other: one for other, one in every.items() if other != name})


def test_all_files_are_deleted(tmp_path: Path, none: Counter[str]) -> None:
    """The recorder needs none of them."""
    assert _without_file(tmp_path, *_ENTRIES) == none
