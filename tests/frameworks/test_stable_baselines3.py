"""Stable-Baselines3's PPO, for real."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from otel_rl.export import Params, Span
from tests.processes import items_of, rows_of, run

pytestmark = pytest.mark.timeout(500)
_SCRIPT = str(Path(__file__).with_name("examples") / "stable_baselines3_ppo.py")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where PPO wrote its own CSV file, and the run is."""
    place: Path = tmp_path_factory.mktemp("sb3")
    run([sys.executable, _SCRIPT], place)
    return place


def test_rows_are_what_it_dumped(directory: Path) -> None:
    """At the timesteps of its own file, number by number."""
    with (directory / "own" / "progress.csv").open() as file:
        told = [{name: float(text) for name, text in line.items() if text} for line in csv.DictReader(file)]
    rows = {row["step"]: row["values"] for row in rows_of(directory / "runs" / "p" / "ppo")}

    assert [values["time/total_timesteps"] for values in told] == [128, 256, 384, 512, 640]
    for values in told:
        row = rows[int(values["time/total_timesteps"])]
        assert {name: row[name] for name in values} == pytest.approx(values)  # type: ignore[index]


def test_phases(directory: Path) -> None:
    """Each step is a rollout and the training on it, under one root."""
    spans = [item for item in items_of(directory / "runs" / "p" / "ppo") if isinstance(item, Span)]
    roots = {span.span_id: span.attributes["rl.loop.iteration"] for span in spans if span.name == "rl.loop"}
    phases = [(roots[span.parent_id], span.name) for span in spans if span.parent_id]

    assert phases == [(step, name) for step in (128, 256, 384, 512, 640) for name in ("rl.sample", "rl.train")]


def test_parameters(directory: Path) -> None:
    """The algorithm's own."""
    values = {}
    for item in items_of(directory / "runs" / "p" / "ppo"):
        values |= item.values if isinstance(item, Params) else {}

    assert (values["n_steps"], values["gamma"]) == (128, 0.99)
