"""Every query of every dashboard, asked of a real Prometheus that watches runs of many kinds; every alert, fired."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dashboards import rules
from tests.dashboards import proof
from tests.dashboards.trainers import PLAYS
from tests.real_parts import needs_program

pytestmark = [needs_program("prometheus"), needs_program("gcc"), pytest.mark.timeout(280), pytest.mark.slow]
FULL = ("trl", "verl", "roll")
"""Runs that log everything that a framework has."""
ONLY = {
    "gpu": {"gpu"},
    "engine": {"asynchronous"},
    "engines": {"asynchronous"},
    "trajectory_parts": {"asynchronous"},
    "ranks": set(proof.TWO_RANKS),
    "refused": {"telemetry"},
    "nonfinite": {"diverged"},
    "hardware_failures": {"gpu"},
    "incomplete": {"lost", "telemetry"},
}
"""Which runs have what some panels need; no other run may show anything there."""
FIRED_BY = {
    "otel-rl": ["RLAgentDown"],
    "stalled": ["RLStalled", "RLPhaseHung"],
    "lost": ["RLRankLost"],
    "slow": ["RLStraggler"],
    "asynchronous": ["RLStalePolicy"],
    "telemetry": ["RLTelemetryBehind", "RLTelemetryDropping"],
    "diverged": [
        *("RLRewardCollapse", "RLKLExplosion", "RLEntropyCollapse", "RLNonFinite"),
        *("RLGradientExplosion", "RLThroughputDrop", "RLCompletionsCutOff"),
    ],
    "gpu": ["RLOutOfMemory", "RLAllocatorRetries", "RLNearOOM", "RLGPUErrors", "RLGPUThrottled"],
}
"""Which run is made to fire which alerts; of an agent that is down only the job is known."""
_TABLE = Path(proof.__file__).parents[2] / "docs" / "reference" / "queries.md"
_HEAD = """# Which queries have data for which runs

Written by `WRITE_TABLES=1 pytest tests/dashboards/test_live.py`: a real Prometheus watches these runs, and is asked
every query of every panel, variable and annotation for each. `trl`, `verl` and `roll` log every name of their
framework; the others are small, and each has what its name says: two ranks, a slow one, one that is killed; a stalled
run and one that diverges; a GPU (NVML's library and torch's allocator are stand-ins); trajectories, queues and an
inference server's endpoint; an exporter that is unreachable. The agent of `orphan` is stopped (SIGSTOP), so that
Prometheus soon knows nothing of it.

"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> proof.Watched:
    """What Prometheus answered."""
    directory: Path = tmp_path_factory.mktemp("live")
    with proof.watched(directory) as prometheus:
        return proof.answers(prometheus, directory)


def test_every_query_has_data(told: proof.Watched) -> None:
    """For some run."""
    silent = [query for query in proof.every_query() if not any(told.series[query, run] for run in PLAYS)]

    assert silent == []


@pytest.mark.parametrize("run", FULL)
def test_the_same_dashboards_for_every_framework(run: str, told: proof.Watched) -> None:
    """Every panel that needs nothing special shows something."""
    shown: dict[tuple[str, str], int] = {}
    for query in proof.every_query():
        if not query.needs and query.board not in ("annotations", "variables"):
            place = (query.board, query.panel)
            shown[place] = shown.get(place, 0) + told.series[query, run]

    assert [place for place, series in shown.items() if not series] == []


@pytest.mark.parametrize("needs", ONLY)
def test_nothing_where_there_is_nothing(needs: str, told: proof.Watched) -> None:
    """Panels of what a run does not have are empty."""
    shown = {run for (query, run), series in told.series.items() if query.needs == needs and series}

    assert shown == ONLY[needs]


MARKED = {"Hangs": {"stalled"}, "Crashes": {"lost"}, "Starts": set(PLAYS), "Evaluations": set(FULL)}


@pytest.mark.parametrize(("name", "runs"), MARKED.items())
def test_annotations(name: str, runs: set[str], told: proof.Watched) -> None:
    """In the runs that have them."""
    shown = {
        run
        for (query, run), series in told.series.items()
        if query.panel == name and query.board == "annotations" and series
    }

    assert shown == runs


@pytest.mark.parametrize("alert", [alert.name for alert in rules.read().alerts])
def test_alerts(alert: str, told: proof.Watched) -> None:
    """Each fires for the run that is made for it, and for no other one."""
    assert told.fired.get(alert, set()) == {run for run, alerts in FIRED_BY.items() if alert in alerts}


def test_runs_are_found_by_their_files(told: proof.Watched) -> None:
    """One of each run, that Prometheus follows."""
    assert len(told.targets) == len(PLAYS)


def test_the_table(told: proof.Watched) -> None:
    """The checked-in table has every query; other tests are about its marks."""
    text = _HEAD + proof.table(told)
    if os.environ.get("WRITE_TABLES"):
        _TABLE.write_text(text)

    assert _without_marks(_TABLE.read_text()) == _without_marks(text)


def _without_marks(table: str) -> str:
    return table.replace(proof.MARK, "")
