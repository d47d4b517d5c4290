"""Runs of many kinds under one real Prometheus, and every query of every dashboard asked of it for each of them.

The rules are loaded with all durations a sixtieth of what they are.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from dashboards import rules
from otel_rl.recorder.directory import directory as directories
from tests.collector import wait_for
from tests.dashboards.queries import Query, asked, every_query
from tests.dashboards.trainers import CALM, PLAYS
from tests.processes import start
from tests.prometheus import Prometheus, scraping
from tests.recorder.agent.hardware import standin

FASTER = 60
TWO_RANKS = ("verl", "ranks", "slow", "lost")
_AFTERWARDS = 32.0
_ON_A_BUSY_MACHINE_S = 60.0
"""How long a query without data is asked again: a trainer may be late, or a page not scraped in time."""
_TRAINERS = str(Path(__file__).with_name("trainers.py"))
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


class Watched(NamedTuple):
    """What Prometheus answered."""

    series: dict[tuple[Query, str], int]  # how many series each query has, by query and run
    fired: dict[str, set[str]]  # the runs that each alert fired for; of what has no run, the instance
    targets: list[str]  # the files by which Prometheus found the runs


@contextlib.contextmanager
def watched(
    directory: Path,
    runs: tuple[str, ...] = tuple(PLAYS),
    lasting: float = CALM + _AFTERWARDS,
    write_to: str = "",
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Prometheus]:
    """Play runs under a Prometheus, which is yielded when they have lasted so long.

    It writes all samples to the URL `write_to` too, if it is given. The trainers get the variables of `environment`.
    """
    targets, rule_file = str(directory / "runs" / ".targets" / "*.json"), str(write_rules(directory))
    with engine(directory) as url, scraping(directory, files=targets, rules=rule_file, write_to=write_to) as prometheus:
        given = {"ENGINE": url, **environment}
        trainers = list(itertools.chain.from_iterable(_start(name, directory, given) for name in runs))
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
    """Write the rules, faster, and return the file. Agents are not silent sooner: their heartbeats are not faster."""
    path, read = directory / "rules.yml", rules.read()
    record = {name: expression.replace("@seconds(3m)", "180") for name, expression in read.record.items()}
    path.write_text(rules.prometheus_rules(msgspec.structs.replace(read, record=record), FASTER))
    return path


def hold_still(directory: Path) -> None:
    """Let all trainers wait between two steps, and the engine stop; an agent that was stopped goes on."""
    (directory / "still").touch()
    _signal_agent(directory / "runs" / "proof", "orphan", signal.SIGCONT)


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
    return len(prometheus.query(expression)) or len(prometheus.query(f"last_over_time(({expression})[15s:1s])"))


@contextlib.contextmanager
def engine(directory: Path) -> Iterator[str]:
    """Serve a page with vLLM's names; yield its address. Its counters rise until the file `still` is there."""
    latest = 0

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")  # as vLLM does
            self.end_headers()
            nonlocal latest
            if not (directory / "still").exists():
                latest = int(time.monotonic() * 700)
            self.wfile.write(_ENGINE.format(now=latest, half=latest // 2).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()


def _start(name: str, directory: Path, given: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    environment = dict(given)
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
