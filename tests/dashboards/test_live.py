"""Every query of every dashboard, asked of a real Prometheus that watches runs of many kinds; every alert, fired."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from dashboards import rules
from tests.dashboards import comparison, explained, proof, victoria
from tests.dashboards.comparison import Difference
from tests.dashboards.page import page, without_marks
from tests.dashboards.queries import every_query
from tests.dashboards.trainers import PLAYS
from tests.real_parts import given, needs_program
from tests.servers.running import HAS_PROMETHEUS_3
from tests.servers.ways import ways

pytestmark = [needs_program("prometheus"), needs_program("gcc"), pytest.mark.timeout(600), pytest.mark.slow]
HAS_WAYS = HAS_PROMETHEUS_3 and shutil.which("otelcol") is not None
needs_ways = given("Prometheus 3 and a Collector", present=HAS_WAYS)
_PAGE = Path(proof.__file__).parents[2] / "docs" / "evidence" / "queries.md"
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
    "stalled": ["RLWaitBroken"],
    "lost": ["RLRankLost"],
    "slow": ["RLStraggler"],
    "asynchronous": ["RLStalePolicy"],
    "telemetry": ["RLTelemetryBehind", "RLTelemetryDropping"],
    "diverged": [
        *("RLKLExplosion", "RLTrainingAnomaly", "RLNonFinite", "RLPolicyDiverged"),
        *("RLGradientExplosion", "RLThroughputDrop", "RLCompletionsCutOff"),
    ],
    "gpu": ["RLOutOfMemory", "RLAllocatorRetries", "RLNearOOM", "RLGPUErrors", "RLGPUThrottled"],
}
"""Which run is made to fire which alerts; of an agent that is down only the job is known."""


class Compared(NamedTuple):
    """The answers of VictoriaMetrics and of Prometheus, and the runs that each alert of vmalert was sent for."""

    answers: list[victoria.Compared]
    fired: dict[str, set[str]]


class Seen(NamedTuple):
    """Answers and differences from one play of all runs."""

    answers: proof.Watched  # those of the Prometheus that scrapes the agents
    compared: Compared = Compared([], {})  # those of VictoriaMetrics
    rates: list[Difference] | None = None  # differences between ways while the runs went on
    values: list[Difference] | None = None
    """Differences between ways while the runs stood still; both are `None` where the servers are absent."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Play the runs once, watched by all servers that are installed."""
    directory: Path = tmp_path_factory.mktemp("live")
    with contextlib.ExitStack() as stack:
        servers = stack.enter_context(victoria.running(directory)) if victoria.HERE else None
        others = stack.enter_context(ways(directory, str(proof.write_rules(directory)))) if HAS_WAYS else None
        scraped = stack.enter_context(
            proof.watched(
                directory,
                write_to=servers.write_to if servers else "",
                environment=others.environment if others else {},
            )
        )
        found = Seen(proof.answers(scraped, directory))
        if servers:
            answers = victoria.compared(scraped, servers.server)
            found = found._replace(compared=Compared(answers, servers.fired()))
        if others:
            rates = comparison.of_rates(scraped, others.servers, allowed)
            proof.hold_still(directory)
            found = found._replace(rates=rates, values=comparison.of_values(scraped, others.servers, allowed))
    return found


def allowed(difference: Difference) -> bool:
    """Return whether a difference is explained."""
    return bool(explained.number(difference))


@pytest.fixture(scope="module")
def told(seen: Seen) -> proof.Watched:
    """Return what the Prometheus that scrapes answered."""
    return seen.answers


@pytest.fixture(scope="module")
def compared(seen: Seen) -> Compared:
    """What VictoriaMetrics answered."""
    return seen.compared


def test_every_query_has_data(told: proof.Watched) -> None:
    """For some run."""
    silent = [query for query in every_query() if not any(told.series[query, run] for run in PLAYS)]

    assert silent == []


@pytest.mark.parametrize("run", FULL)
def test_the_same_dashboards_for_every_framework(run: str, told: proof.Watched) -> None:
    """Every panel that needs nothing special shows something."""
    shown: dict[tuple[str, str], int] = {}
    for query in every_query():
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
    assert answered == set(every_query())


@victoria.needs_victoria
@pytest.mark.parametrize("alert", [alert.name for alert in rules.read().alerts])
def test_alerts_of_vmalert(alert: str, compared: Compared) -> None:
    """With the same rules, each fires for the run that is made for it, and for no other one."""
    assert compared.fired.get(alert, set()) == {run for run, alerts in FIRED_BY.items() if alert in alerts}


@needs_ways
def test_the_same_series_of_rates_in_all_ways(seen: Seen) -> None:
    """While the runs go on; differences are explained."""
    assert seen.rates is not None
    assert [one for one in seen.rates if not allowed(one)] == []


@needs_ways
def test_the_same_values_in_all_ways(seen: Seen) -> None:
    """While the runs stand still; differences are explained."""
    assert seen.values is not None
    assert [one for one in seen.values if not allowed(one)] == []


@needs_ways
@pytest.mark.parametrize("reason", explained.EXPLANATIONS, ids=lambda one: one.why[:30])
def test_no_explanation_is_left_over(reason: explained.Explanation, seen: Seen) -> None:
    """Each is needed for each of its panels."""
    differences = [one for one in [*(seen.rates or ()), *(seen.values or ())] if reason.explains(one)]

    assert {f"{one.query.board}/{one.query.panel}" for one in differences} == reason.panels


def test_the_table(seen: Seen) -> None:
    """The checked-in page has every query, and how the ways compare; other tests are about its marks."""
    text = page(seen.answers, seen.values or ())
    if os.environ.get("WRITE_TABLES") and HAS_WAYS:
        _PAGE.write_text(text)

    assert without_marks(_PAGE.read_text(), ways_too=not HAS_WAYS) == without_marks(text, ways_too=not HAS_WAYS)
