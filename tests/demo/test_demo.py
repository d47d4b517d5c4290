"""`otel-rl demo`, as a user runs it, watched by a real Prometheus and a real OTLP collector."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from otel_rl.export import Event, Span
from otel_rl.journal.ids import step_ids
from tests import collector as collectors
from tests import prometheus
from tests.collector import ReceivedSpan, free_port, wait_for
from tests.processes import items_of, rows_of
from tests.real_parts import needs, needs_program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    needs("torch"),
    needs("tensorboard"),
    needs("wandb"),
    needs("rotel"),
    pytest.mark.timeout(600),
    pytest.mark.slow,
]
STEPS = 12
QUERIES = {
    "step": "rl_step_current",
    "reward": "rl_environment_reward_mean",
    "loss": 'rl_train_loss{rl_loss_type="total"}',
    "kl": 'rl_train_kl{rl_kl_from="reference"}',
    "generate": 'rl_phase_duration_seconds_sum{rl_phase="generate"}',
    "update_actor": "rl_train_duration_seconds_sum",
    "steps": "rl_train_steps_total",
    "heartbeat": "time() - rl_step_last_completed_timestamp_seconds",
}


class Watched(NamedTuple):
    """The observations of a demo run from outside."""

    run_dir: Path
    output: str
    queried: dict[str, float | None]
    spans: list[ReceivedSpan]
    steps: list[tuple[int, dict[str, float]]]
    metrics: set[str]

    @property
    def values(self) -> list[dict[str, float]]:
        """The values of each row."""
        rows: list[Any] = rows_of(self.run_dir)
        return [row["values"] for row in rows]


@contextlib.contextmanager
def running_demo(directory: Path, *options: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the demo with its output in `demo.txt`, so that Ctrl-C reaches it even if this process ignores SIGINT.

    A shell starts background processes with SIGINT ignored, and child processes inherit that.
    """
    command = [sys.executable, "-m", "otel_rl.cli", "demo", "--dir", str(directory / "runs"), *options]
    variables = os.environ | {"OTEL_RL_ROWS_DEADLINE": "1", **environment}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with (directory / "demo.txt").open("wb") as output:
            demo = subprocess.Popen(command, env=variables, stdout=output, stderr=output)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        yield demo
    finally:
        demo.kill()  # where a test failed: with --hold it would never end
        demo.wait()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """A short run of one rank, held until Prometheus has seen its last step, and sent over HTTP."""
    directory = tmp_path_factory.mktemp("demo")
    port = free_port()
    with (
        collectors.running(directory) as collector,
        prometheus.scraping(directory, f"127.0.0.1:{port}") as server,
        running_demo(
            directory,
            *("--steps", str(STEPS), "--hold"),
            **collector.environment("http/protobuf"),
            OTEL_EXPORTER_PROMETHEUS_PORT=str(port),
        ) as demo,
    ):
        printed = directory / "demo.txt"
        wait_for(lambda: "holding" in printed.read_text() or demo.poll() is not None, "the demo does not end", 300)
        assert demo.poll() is None, printed.read_text()
        wait_for(lambda: server.value("rl_step_current") == STEPS - 1, "the last step was not scraped")
        queried = {name: server.value(query) for name, query in QUERIES.items()}
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0, printed.read_text()
        wait_for(lambda: "rl.loop.duration" in collector.metric_names(), "no metrics arrived")
        run_dir = next((directory / "runs" / "otel-rl-demo").iterdir())
        return Watched(
            run_dir, printed.read_text(), queried, collector.spans(), collector.steps(), collector.metric_names()
        )


def test_the_reward_rises(watched: Watched) -> None:
    """It trains for real: a dozen steps of GRPO show in the reward that was recorded."""
    rewards = [values["reward"] for values in watched.values]

    assert len(rewards) == STEPS
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.1


def test_it_says_where_the_time_went_and_where_things_are(watched: Watched) -> None:
    """The phase table, the address and the directories are printed at the end."""
    output = " ".join(watched.output.split())

    for expected in ("update_actor", "generate", "tensorboard --logdir", "wandb sync", "/metrics"):
        assert expected in output


@needs_program("prometheus")
def test_prometheus_holds_what_the_rows_hold(watched: Watched) -> None:
    """Step, reward, loss, a metric without a dialect, phase durations and heartbeat, by query."""
    last = watched.values[-1]

    assert watched.queried["step"] == STEPS - 1
    assert watched.queried["steps"] == STEPS
    for name in ("reward", "loss", "kl"):
        assert watched.queried[name] == last[name]
    for phase in ("generate", "update_actor"):
        total = sum(values[f"time/{phase}"] for values in watched.values)
        assert watched.queried[phase] == pytest.approx(total, rel=1e-9)
    assert 0 <= (watched.queried["heartbeat"] or -1) < 120


def test_the_collector_has_every_step_as_one_trace_and_one_event(watched: Watched) -> None:
    """Metrics, spans and step events of the same run; children point at the root of their step."""
    assert_received(watched.run_dir, watched.spans, watched.steps, watched.metrics)


def test_two_ranks_are_one_run_over_grpc(tmp_path: Path) -> None:
    """Two processes over gloo: each step is one row and one trace, with phases of both ranks."""
    options = ("--steps", "3", "--ranks", "2", "--exporter", "jsonl")
    with (
        collectors.running(tmp_path) as collector,
        running_demo(tmp_path, *options, **collector.environment("grpc")) as demo,
    ):
        assert demo.wait(300) == 0, (tmp_path / "demo.txt").read_text()
        wait_for(lambda: "rl.loop.duration" in collector.metric_names(), "no metrics arrived")
        run_dir = next((tmp_path / "runs" / "otel-rl-demo").iterdir())
        assert_received(run_dir, collector.spans(), collector.steps(), collector.metric_names())
    items = items_of(run_dir)
    spans = [item for item in items if isinstance(item, Span)]

    for root in (span for span in spans if span.name == "rl.loop"):
        assert {span.attributes.get("rl.rank") for span in spans if span.parent_id == root.span_id} == {0, 1}
    assert "rl.process.lost" not in {item.name for item in items if isinstance(item, Event)}


def assert_received(
    run_dir: Path, spans: list[ReceivedSpan], steps: list[tuple[int, dict[str, float]]], metrics: set[str]
) -> None:
    rows: list[Any] = rows_of(run_dir)
    run_id = json.loads((run_dir / "run.json").read_text())["id"]

    assert steps == [(row["step"], row["values"]) for row in rows]
    assert {"rl.phase.duration", "rl.train.steps", "rl.environment.reward.mean"} <= metrics
    roots = {f"{ids.trace_id:032x}": f"{ids.span_id:016x}" for ids in (step_ids(run_id, 0, n) for n, _ in steps)}
    assert {span.trace_id: span.span_id for span in spans if span.name == "rl.loop"} == roots
    children = [span for span in spans if span.trace_id in roots and span.name != "rl.loop"]
    assert len(children) >= 5 * len(roots)
    assert {(span.trace_id, span.parent_id) for span in children} == set(roots.items())
