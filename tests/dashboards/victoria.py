"""VictoriaMetrics and vmalert instead of Prometheus and its rules: what they answer to the same samples."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.collector import free_port, wait_for
from tests.dashboards import proof, queries
from tests.dashboards.trainers import PLAYS
from tests.prometheus import Prometheus
from tests.real_parts import given
from tests.servers.running import A_WHILE, Webhook

HERE = all(map(shutil.which, ("victoria-metrics", "vmalert")))
"""If true, both programs are on PATH."""
needs_victoria = given("VictoriaMetrics", present=HERE)
_EXACT = 1e-9
_EARLIER_S = 30
_IGNORED = {"__name__", "alertgroup"}  # vmalert adds the latter
_WHY = re.compile(r"\b(rate|increase)(?=\()|\bALERTS\b")
_CLOCK_S = 1e-4
"""VictoriaMetrics keeps 15 digits of a number, so times of day differ by microseconds."""


class Servers(NamedTuple):
    """A VictoriaMetrics, and what receives the alerts of the vmalert on it."""

    server: Prometheus
    webhook: Webhook

    @property
    def write_to(self) -> str:
        """Where Prometheus writes to."""
        return f"{self.server.url}/api/v1/write"

    def fired(self) -> dict[str, set[str]]:
        """Return the runs that each alert was sent for; for alerts without a run, the job."""
        found: dict[str, set[str]] = {}
        for alert in itertools.chain.from_iterable(self.webhook.messages):
            labels = alert["labels"]
            found.setdefault(labels["alertname"], set()).add(labels.get("rl_run_id", labels.get("job", "")))
        return found


class Compared(NamedTuple):
    """The answers of both to one query for one run, at one moment: values by labels, without the metric's name."""

    query: queries.Query
    run: str
    prometheus: dict[frozenset[tuple[str, str]], float]
    victoria: dict[frozenset[tuple[str, str]], float]

    def differ(self) -> bool:
        """Tell whether series differ, or a value that both define alike."""
        if self.prometheus.keys() != self.victoria.keys():
            return True
        inexact = _CLOCK_S if "time()" in self.query.expression else 0.0
        pairs = [(value, self.victoria[labels]) for labels, value in self.prometheus.items()]
        return not is_defined_otherwise(self.query.expression) and not all(
            math.isclose(*pair, rel_tol=_EXACT, abs_tol=inexact) or all(map(math.isnan, pair)) for pair in pairs
        )


def table() -> str:
    """Return the queries whose values may differ, as Markdown."""
    lines = [
        f"| {query.board} | {query.panel} | `{_WHY.search(query.expression)[0]}` |\n"  # type: ignore[index]
        for query in queries.every_query()
        if is_defined_otherwise(query.expression)
    ]
    return "| dashboard | panel | because of |\n|---|---|---|\n" + "".join(dict.fromkeys(lines))


def is_defined_otherwise(expression: str) -> bool:
    """Tell whether a query may have other values: growth in a window, and alerts, which vmalert itself evaluates."""
    return _WHY.search(expression) is not None


@contextlib.contextmanager
def server(directory: Path, *arguments: str) -> Iterator[Prometheus]:
    """Start VictoriaMetrics on a free port; its data are in `directory`."""
    port = free_port()
    place = [f"-httpListenAddr=127.0.0.1:{port}", f"-storageDataPath={directory / 'victoria'}"]
    with _process(directory, "victoria-metrics", *place, "-search.latencyOffset=1s", *arguments):
        started = Prometheus(f"http://127.0.0.1:{port}")
        wait_for(started.ready, "VictoriaMetrics does not answer", A_WHILE)
        yield started


@contextlib.contextmanager
def running(directory: Path) -> Iterator[Servers]:
    """Start both, with the rules of the dashboards."""
    with Webhook() as webhook, server(directory) as started:
        rules = [f"-rule={proof.write_rules(directory)}", "-evaluationInterval=1s", "-remoteWrite.flushInterval=1s"]
        places = [f"-{name}.url={started.url}" for name in ("datasource", "remoteWrite", "remoteRead")]
        places += [f"-notifier.url={webhook.url}", f"-httpListenAddr=127.0.0.1:{free_port()}"]
        with _process(directory, "vmalert", *rules, *places):
            yield Servers(started, webhook)


def compared(prometheus: Prometheus, victoria: Prometheus) -> list[Compared]:
    """Ask every query for each run of both, at a moment of which both have every sample.

    A query that no run has data for, such as that of an open phase, is asked for earlier moments too, and again later:
    on a busy machine, data come late.
    """
    found: dict[queries.Query, list[Compared]] = {}
    unanswered, until = queries.every_query(), time.monotonic() + A_WHILE
    while unanswered and time.monotonic() < until:
        last = int(time.time()) - 3  # whole seconds: VictoriaMetrics cuts off microseconds
        wait_for(lambda last=last: victoria.query(f"min(timestamp(up)) > {last}"), "samples were not written", A_WHILE)  # type: ignore[misc]
        found |= {query: _compared(query, prometheus, victoria, last) for query in unanswered}
        unanswered = [query for query in unanswered if not any(one.prometheus for one in found[query])]
    return list(itertools.chain.from_iterable(found.values()))


def _compared(query: queries.Query, prometheus: Prometheus, victoria: Prometheus, last: int) -> list[Compared]:
    expressions = {run: queries.asked(query.expression, run) for run in PLAYS}
    for at in range(last, last - _EARLIER_S, -2):
        told = {run: _answer(prometheus, expression, at) for run, expression in expressions.items()}
        if any(told.values()):
            break
    return [Compared(query, run, told[run], _answer(victoria, expressions[run], at)) for run in PLAYS]


def _answer(one: Prometheus, expression: str, at: float) -> dict[frozenset[tuple[str, str]], float]:
    found = one.query(expression, at)
    ignored = _IGNORED - {"__name__"} if "(__name__)" in expression else _IGNORED
    return {frozenset((name, labels[name]) for name in labels.keys() - ignored): value for labels, value in found}


@contextlib.contextmanager
def _process(directory: Path, *command: str) -> Iterator[None]:
    with (directory / f"{command[0]}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(A_WHILE)
