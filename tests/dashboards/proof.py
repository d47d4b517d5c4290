"""Runs of many kinds under one real Prometheus, and every query of every dashboard asked of it for each of them.

The rules are loaded with all durations a sixtieth of what they are.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dashboards import boards, rules, variables
from otel_rl.setup import directory as directories
from tests.agent.hardware import standin
from tests.collector import wait_for
from tests.dashboards.trainers import CALM, PLAYS
from tests.processes import start
from tests.prometheus import scraping

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.prometheus import Prometheus

FASTER = 60
MARK = "●"
TWO_RANKS = ("verl", "ranks", "slow", "lost")
_AFTERWARDS = 32.0
_ON_A_BUSY_MACHINE_S = 60.0
"""How long a query without data is asked again: a trainer may be late, or a page not scraped in time."""
_TRAINERS = str(Path(__file__).with_name("trainers.py"))
_GRAFANA = {
    "$__rate_interval": "15s",
    "$__range": "60s",
    "$__interval": "15s",
    "$attempt": ".*",
    "$framework": ".*",
    "$role": ".*",
    "$rank": ".*",
    "$logged": ".*",
    "$series": "rl_step_current",
}
_ENGINE = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running 3
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting 1
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc 0.5
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total {now}
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total {now}
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total {now}
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total {half}
"""


class Query(NamedTuple):
    """A query of a dashboard: of which one, of which panel, and what the panel needs."""

    board: str
    panel: str
    needs: str
    expression: str


class Watched(NamedTuple):
    """What Prometheus answered.

    Attributes:
        series: How many series each query has, by query and run.
        fired: The runs that each alert fired for; of what has no run, the instance.
        targets: The files by which Prometheus found the runs.
    """

    series: dict[tuple[Query, str], int]
    fired: dict[str, set[str]]
    targets: list[str]


def every_query() -> list[Query]:
    """Return the queries of all panels, variables and annotations."""
    found = [
        Query(name, panel.title, panel.needs, expression)
        for name, board in boards.boards().items()
        for row in board.rows
        for panel in row.panels
        for expression in boards.queries(panel)
    ]
    more = boards.boards()["explorer"].variables
    found += [Query("variables", name, "", expression) for name, expression in variables.queries(more).items()]
    return found + [
        Query("annotations", name, "", f"max_over_time(({expression})[90s:1s])")
        for name, expression in variables.annotation_queries().items()
    ]


def asked(expression: str, run: str) -> str:
    """Return a query as Grafana asks it, with its variables replaced."""
    for name, value in {"$run": run, **_GRAFANA}.items():
        expression = re.sub(re.escape(name) + r"\b", lambda _, value=value: value, expression)  # type: ignore[misc]
    return expression


@contextlib.contextmanager
def watched(
    directory: Path, runs: tuple[str, ...] = tuple(PLAYS), lasting: float = CALM + _AFTERWARDS, write_to: str = ""
) -> Iterator[Prometheus]:
    """Play runs under a Prometheus, which is yielded when they have lasted so long.

    It writes all samples to the URL `write_to` too, if it is given.
    """
    targets, rule_file = str(directory / "runs" / ".targets" / "*.json"), str(write_rules(directory))
    with engine() as url, scraping(directory, files=targets, rules=rule_file, write_to=write_to) as prometheus:
        trainers = list(itertools.chain.from_iterable(_start(name, directory, url) for name in runs))
        found = directory / "runs" / ".targets"
        try:
            wait_for(lambda: len(list(found.glob("*.json"))) == len(runs), "not every agent has started", 120)
            began = time.monotonic()
            time.sleep(min(CALM, lasting))
            if "orphan" in runs and lasting > CALM:
                _signal_agent(directory / "runs" / "proof", "orphan", signal.SIGSTOP)  # one that is killed comes back
            time.sleep(max(0.0, began + lasting - time.monotonic()))
            yield prometheus
        finally:
            (directory / "stop").touch()
            if "orphan" in runs and lasting > CALM:
                _signal_agent(directory / "runs" / "proof", "orphan", signal.SIGCONT)
            for trainer in trainers:
                trainer.communicate(timeout=60)


def write_rules(directory: Path) -> Path:
    """Write the rules, faster, and return the file."""
    path = directory / "rules.yml"
    path.write_text(rules.prometheus_rules(rules.read(), FASTER))
    return path


def answers(prometheus: Prometheus, directory: Path) -> Watched:
    """Ask every query for each run, until each has data for one; and which alerts fired at any time."""
    series: dict[tuple[Query, str], int] = {}
    unanswered, until = every_query(), time.monotonic() + _ON_A_BUSY_MACHINE_S
    while unanswered:
        series |= {
            (query, run): _lately(prometheus, asked(query.expression, run)) for query in unanswered for run in PLAYS
        }
        unanswered = [query for query in unanswered if not any(series[query, run] for run in PLAYS)]
        if time.monotonic() > until:
            break
    fired: dict[str, set[str]] = {}
    for labels, _ in prometheus.query('max_over_time(ALERTS{alertstate="firing"}[10m])'):
        fired.setdefault(labels["alertname"], set()).add(labels.get("rl_run_id", labels.get("job", "")))
    return Watched(series, fired, sorted(path.name for path in (directory / "runs" / ".targets").iterdir()))


def _lately(prometheus: Prometheus, expression: str) -> int:
    """Return how many series a query has now, or else had in the last quarter of a minute."""
    return len(prometheus.query(expression)) or len(prometheus.query(f"max_over_time(({expression})[15s:1s])"))


def table(told: Watched) -> str:
    """Return which queries have data for which runs, as Markdown."""
    head = f"| dashboard | panel | query | {' | '.join(PLAYS)} |\n|---|---|---|{'---|' * len(PLAYS)}\n"
    lines = []
    for (board, panel), queries in itertools.groupby(every_query(), key=lambda query: (query.board, query.panel)):
        for letter, query in zip("ABCDEFGH", queries, strict=False):
            cells = [MARK if told.series[query, run] else "" for run in PLAYS]
            lines.append(f"| {board} | {panel} | {letter} | {' | '.join(cells)} |\n")
    return head + "".join(lines)


@contextlib.contextmanager
def engine() -> Iterator[str]:
    """Serve a page with vLLM's names; yield its address."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")  # as vLLM does
            self.end_headers()
            now = int(time.monotonic() * 700)
            self.wfile.write(_ENGINE.format(now=now, half=now // 2).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()


def _start(name: str, directory: Path, engine_url: str) -> Iterator[subprocess.Popen[str]]:
    environment = {"ENGINE": engine_url}
    if name == "gpu":
        environment |= {
            "LD_LIBRARY_PATH": str(standin.build(directory)),
            "NVML_STANDIN": "gpus=2;xid=79;watts=700;lost=1;lost_after=3",
        }
    ranks = 2 if name in TWO_RANKS else 1
    for rank in range(ranks):
        place = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"} if ranks == 2 else {}
        yield start([sys.executable, _TRAINERS, name], directory, **environment, **place)


def _signal_agent(runs: Path, name: str, number: signal.Signals) -> None:
    (run,) = runs.glob(f"*{name}")
    status = msgspec.json.decode(directories.at(run).status.read_bytes())
    os.kill(status["pid"], number)
