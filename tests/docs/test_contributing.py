"""What CONTRIBUTING says: how many files a new exporter, framework, metric or panel takes, and where things are."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.docs.snippets import ROOT

if TYPE_CHECKING:
    from pathlib import Path

_TEXT = (ROOT / "CONTRIBUTING.md").read_text()
_EXAMPLES = {"an exporter": "trackio", "a framework": "skyrl", "a metric": "training", "a panel": "explorer"}


def _files(thing: str) -> list[str]:
    """Return the files by hand that the list of a thing names."""
    section = _TEXT.partition(f"## Add {thing}\n")[2].partition("\n\n## ")[0]
    return re.findall(r"^- (?:`([^`]+)`)?", section, re.MULTILINE)


def _copy(to: Path, *names: str) -> None:
    for name in names:
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))


def _run(directory: Path, *arguments: str, path: Path | None = None) -> str:
    environment = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("thing", _EXAMPLES)
def test_a_thing_takes_three_files_at_most(thing: str) -> None:
    """Each file of the list exists for something that was added that way."""
    files = [re.sub("NAME|AREA", _EXAMPLES[thing], name) for name in _files(thing)]

    assert 1 <= len(files) <= 3
    assert [name for name in files if name and not (ROOT / name).is_file()] == []


def test_an_exporter(tmp_path: Path) -> None:
    """Its module and its entry point are enough for `init`, the environment and delivery."""
    (tmp_path / "last_step.py").write_text(
        "class LastStep:\n"
        "    def __init__(self, run):\n        self.path = f'{run.directory}/last'\n"
        "    def export(self, items):\n        for item in items:\n            if hasattr(item, 'step'):\n"
        "                open(self.path, 'w').write(str(item.step))\n"
        "    def shutdown(self):\n        pass\n"
    )
    metadata = tmp_path / "last_step-1.dist-info"  # what pip makes of pyproject.toml
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: last-step\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[otel_rl_exporter]\nlast_step = last_step:LastStep\n")

    script = """
import os, otel_rl
os.environ["OTEL_RL_IDLE_TIMEOUT"] = "5"
run = otel_rl.init(exporters=["last_step"], hardware=False)
run.log({"loss": 0.5}, step=7)
assert run.finish()
print((run.dir / "last").read_text())
"""
    assert _run(tmp_path, "-c", script, path=tmp_path) == "7\n"


def test_a_metric(tmp_path: Path) -> None:
    """One entry of the registry is enough for the constants and the page of metrics."""
    _copy(tmp_path, "otel_rl", "docs/reference")
    registry = tmp_path / "otel_rl" / "semconv" / "model" / "training.yaml"
    entry = {"id": "metric.rl.train.surprise", "type": "metric", "metric_name": "rl.train.surprise"}
    entry |= {"stability": "development", "instrument": "gauge", "unit": "1", "brief": "Surprise."}
    entry |= {"annotations": {"otel_rl": {"source": "otel-rl"}}}
    registry.write_text(registry.read_text().rstrip() + "\n  - " + json.dumps(entry) + "\n")

    _run(tmp_path, "-m", "otel_rl.semconv.generate")

    assert "`rl.train.surprise`" in (tmp_path / "docs" / "reference" / "metrics.md").read_text()
    assert (
        'METRIC_TRAIN_SURPRISE = "rl.train.surprise"' in (tmp_path / "otel_rl" / "semconv" / "__init__.py").read_text()
    )


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Grafana's builders need Python 3.11")
def test_a_panel(tmp_path: Path) -> None:
    """One entry of a board is enough for Grafana's JSON."""
    _copy(tmp_path, "dashboards", "deploy/kubernetes", "docs/how-to")
    place = tmp_path / "dashboards" / "boards" / "overview.yaml"
    board = yaml.safe_load(place.read_text())
    panels = board["rows"][0]["panels"]
    panels.append(panels[0] | {"title": "Reward again"})
    place.write_text(yaml.safe_dump(board))

    _run(tmp_path, "-m", "dashboards")

    assert '"Reward again"' in (tmp_path / "dashboards" / "grafana" / "overview.json").read_text()


def test_the_tour_leads_somewhere() -> None:
    """Each file of the tour exists and has the name in it."""
    tour = _TEXT.partition("## A tour")[2].partition("\n## ")[0]
    stops = re.findall(r"\[[^\]]+\]\(([^)]+\.(?:py|yaml))\)(?:, `([\w.]+)`)?", tour)

    assert len(stops) == 5
    for place, name in stops:
        text = (ROOT / place).read_text()
        assert all(re.search(rf"\b(class|def) {part}\b", text) for part in name.split(".") if part)
    assert "metric_name: rl.train.kl\n" in (ROOT / "otel_rl/semconv/model/training.yaml").read_text()
