"""`otel-rl demo`, as a user runs it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from otel_rl.export import Event, Span
from tests.collector import free_port, wait_for
from tests.processes import items_of, rows_of
from tests.real_parts import needs

pytestmark = [needs("torch"), needs("tensorboard"), needs("wandb"), pytest.mark.timeout(600), pytest.mark.slow]
STEPS = 12
UNTAUGHT = """
from functools import partial
from otel_rl.demo.verbs import demo as verb
verb.Options = partial(verb.Options, warmup_updates=3)
verb.demo()
"""
"""The demo without most of its warm-up, for what does not ask whether it learns."""


class Performed(NamedTuple):
    """A demo run: its rows, what it printed, and the page of metrics while it held."""

    rows: list[Any]
    output: str
    metrics: str


@contextlib.contextmanager
def running_demo(
    directory: Path, *options: str, program: Sequence[str] = ("-m", "otel_rl.cli", "demo"), **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the demo with its output in `demo.txt`, so that Ctrl-C reaches it even if this process ignores SIGINT.

    A shell starts background processes with SIGINT ignored, and child processes inherit that.
    """
    command = [sys.executable, *program, "--dir", str(directory / "runs"), *options]
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
def performed(tmp_path_factory: pytest.TempPathFactory) -> Performed:
    """A short run of one rank, held until Ctrl-C."""
    directory = tmp_path_factory.mktemp("demo")
    port = str(free_port())
    with running_demo(directory, "--steps", str(STEPS), "--hold", OTEL_EXPORTER_PROMETHEUS_PORT=port) as demo:
        printed = directory / "demo.txt"
        wait_for(lambda: "holding" in printed.read_text() or demo.poll() is not None, "the demo does not end", 300)
        assert demo.poll() is None, printed.read_text()
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0, printed.read_text()
    (run_dir,) = (directory / "runs" / "otel-rl-demo").iterdir()
    return Performed(rows_of(run_dir), printed.read_text(), metrics)


def test_the_reward_rises(performed: Performed) -> None:
    """It trains for real: a dozen steps of GRPO show in the reward that was recorded."""
    rewards = [row["values"]["reward"] for row in performed.rows]

    assert len(rewards) == STEPS
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.1


def test_it_says_where_the_time_went_and_where_things_are(performed: Performed) -> None:
    """The phase table, the address and the directories are printed at the end."""
    output = " ".join(performed.output.split())

    for expected in ("update_actor", "generate", "tensorboard --logdir", "wandb sync", "/metrics"):
        assert expected in output


def test_it_holds_the_metrics(performed: Performed) -> None:
    """With `--hold`, the last step is on the page until Ctrl-C."""
    (value,) = (line.split()[-1] for line in performed.metrics.splitlines() if line.startswith("rl_step_current{"))

    assert float(value) == STEPS - 1


def test_two_ranks_are_one_run(tmp_path: Path) -> None:
    """Two processes over gloo: each step is one row and one trace, with phases of both ranks."""
    options = ("--steps", "3", "--ranks", "2", "--to", "jsonl")
    with running_demo(tmp_path, *options, program=("-c", UNTAUGHT)) as demo:
        assert demo.wait(300) == 0, (tmp_path / "demo.txt").read_text()
    (run_dir,) = (tmp_path / "runs" / "otel-rl-demo").iterdir()
    items, rows = items_of(run_dir), rows_of(run_dir)
    spans = [item for item in items if isinstance(item, Span)]
    roots = [span for span in spans if span.name == "rl.loop"]

    assert [row["step"] for row in rows] == [root.attributes["rl.loop.iteration"] for root in roots] == [0, 1, 2]
    for root in roots:
        assert {span.attributes.get("rl.rank") for span in spans if span.parent_id == root.span_id} == {0, 1}
    assert "rl.process.lost" not in {item.name for item in items if isinstance(item, Event)}
