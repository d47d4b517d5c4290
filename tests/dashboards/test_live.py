"""Every query of every dashboard, asked of a real Prometheus that watches runs of many kinds; every alert, fired."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from dashboards import rules
from tests.dashboards import proof, victoria
from tests.dashboards.trainers import PLAYS
from tests.real_parts import needs_program

pytestmark = [needs_program("prometheus"), needs_program("gcc"), pytest.mark.timeout(280), pytest.mark.slow]
FULL = ("trl", "verl", "roll")
"""Runs that log everything that a framework has."""
ONLY = {
    "gpu": {"gpu"},
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


class Compared(NamedTuple):
    """The answers of VictoriaMetrics and of Prometheus, and the runs that each alert of vmalert was sent for."""

    answers: list[victoria.Compared]
    fired: dict[str, set[str]]


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
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[proof.Watched, Compared]:
    """What Prometheus answered, and VictoriaMetrics too if it is installed."""
    directory: Path = tmp_path_factory.mktemp("live")
    with contextlib.ExitStack() as stack:
        servers = stack.enter_context(victoria.running(directory)) if victoria.HERE else None
        prometheus = stack.enter_context(proof.watched(directory, write_to=servers.write_to if servers else ""))
        told = proof.answers(prometheus, directory)
        if servers is None:
            return told, Compared([], {})
        return told, Compared(victoria.compared(prometheus, servers.server), servers.fired())


@pytest.fixture(scope="module")
def told(both: tuple[proof.Watched, Compared]) -> proof.Watched:
    """What Prometheus answered."""
    return both[0]


@pytest.fixture(scope="module")
def compared(both: tuple[proof.Watched, Compared]) -> Compared:
    """What VictoriaMetrics answered."""
    return both[1]


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


@victoria.needs_victoria
def test_victoriametrics_answers_the_same(compared: Compared) -> None:
    """Every query that has data has the same series there, with the same values where both define them alike."""
    answered = {one.query for one in compared.answers if one.victoria}

    assert [one for one in compared.answers if one.differ()] == []
    assert answered == set(proof.every_query())


@victoria.needs_victoria
@pytest.mark.parametrize("alert", [alert.name for alert in rules.read().alerts])
def test_alerts_of_vmalert(alert: str, compared: Compared) -> None:
    """With the same rules, each fires for the run that is made for it, and for no other one."""
    assert compared.fired.get(alert, set()) == {run for run, alerts in FIRED_BY.items() if alert in alerts}


def test_the_table(told: proof.Watched) -> None:
    """The checked-in table has every query; other tests are about its marks."""
    text = _HEAD + proof.table(told)
    if os.environ.get("WRITE_TABLES"):
        _TABLE.write_text(text)

    assert _without_marks(_TABLE.read_text()) == _without_marks(text)


def _without_marks(table: str) -> str:
    return table.replace(proof.MARK, "")
