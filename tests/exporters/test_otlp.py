"""The signals that a real OTLP collector received of a run."""

from __future__ import annotations

import logging
import math
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.journal.ids import step_ids
from tests import collector as collectors
from tests.collector import Collector
from tests.processes import start
from tests.real_parts import needs

pytestmark = needs("rotel")
STEPS = 20


@pytest.fixture(params=["http/protobuf", "grpc"], scope="module")
def received(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Collector:
    """A collector that was sent a whole run."""
    place = tmp_path_factory.mktemp("otlp")
    with collectors.running(place) as collector, pytest.MonkeyPatch.context() as patch:
        for name, value in collector.environment(request.param).items():
            patch.setenv(name, value)
        run = otel_rl.init(
            dir=place, project="otlp", id="known", exporters=[], config={"lr": 1e-6}, content=True, quiet=True
        )
        for n in range(STEPS):
            with run.step(n):
                with run.phase("generate"):
                    pass
                with run.phase("custom"), run.phase("inner"):
                    pass
                run.log({"loss": 0.5**n, "kl": math.nan if n == 3 else float(n), "tokens": n * 2**40})
        run.table("completions", {"prompt": ["1 + 1"]}, step=STEPS - 1)
        run.event("checkpoint.written", path="x")
        assert run.finish(20)
        collectors.wait_for(lambda: "rl.loop.duration" in collector.metric_names(), "no metrics arrived")
    return collector


def test_every_step_is_one_event_with_its_exact_values(received: Collector) -> None:
    """Each step arrives once, in order, bit for bit, NaN included."""
    steps = received.steps()

    assert [step for step, _ in steps] == list(range(STEPS))
    for n, values in steps:
        assert values["loss"] == 0.5**n
        assert values["tokens"] == n * 2**40
        assert math.isnan(values["kl"]) if n == 3 else values["kl"] == n


def test_every_step_is_one_trace_whose_children_point_at_its_root(received: Collector) -> None:
    """Each trace has one root, with the ids that any rank can compute, and no orphan."""
    spans = received.spans()

    assert {span.trace_id for span in spans} == {f"{step_ids('known', 0, n).trace_id:032x}" for n in range(STEPS)}
    for n in range(STEPS):
        root = f"{step_ids('known', 0, n).span_id:016x}"
        trace = [span for span in spans if span.trace_id == f"{step_ids('known', 0, n).trace_id:032x}"]
        assert [span.name for span in trace if span.span_id == root] == ["rl.loop"]
        parents = {span.name: span.parent_id for span in trace}
        custom = next(span.span_id for span in trace if span.name == "custom")
        assert parents == {"rl.loop": "", "rl.sample": root, "custom": root, "inner": custom}


def test_metrics_arrive_too(received: Collector) -> None:
    """The instruments are pushed, at the latest when the agent ends."""
    expected = {"rl.phase.duration", "rl.train.steps", "rl.train.loss", "rl.step.last_completed.timestamp"}

    assert expected <= received.metric_names()


def test_all_others_are_events_too(received: Collector) -> None:
    """The table, the parameters and the end of the run arrive once; `run.event` is an event of its own name."""
    names = Counter(re.findall(r"EventName: (\S+)\n", received.text()))

    once = ("rl.table", "rl.run.config", "rl.run.ended", "checkpoint.written")
    assert names == {"rl.step.metrics": STEPS} | dict.fromkeys(once, 1)


def test_steps_faster_than_the_metric_interval_are_all_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 steps inside one export interval are 1,000 events: no gauge is asked for them."""
    with collectors.running(tmp_path) as collector:
        for name, value in collector.environment("http/protobuf").items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "600000")
        run = otel_rl.init(dir=tmp_path, exporters=["jsonl"], quiet=True)
        for n in range(1000):
            run.log({"loss": n / 7}, step=n)
        assert run.finish(30)
        collectors.wait_for(lambda: len(collector.steps()) >= 1000, "not all events arrived")

        assert collector.steps() == [(n, {"loss": n / 7}) for n in range(1000)]
        assert len((run.dir / "rows.jsonl").read_text().splitlines()) == 1000


def test_a_process_that_was_killed_leaves_error_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The phase that was open arrives with error status `rl.process.lost`, and so does its step."""
    script = """
import os, signal, otel_rl
run = otel_rl.init(dir="runs", exporters=[], quiet=True)
with run.step(0):
    with run.phase("generate"):
        os.kill(os.getpid(), signal.SIGKILL)
"""
    with collectors.running(tmp_path) as collector:
        for name, value in collector.environment("http/protobuf").items():
            monkeypatch.setenv(name, value)
        start([sys.executable, "-c", script], tmp_path, OTEL_RL_IDLE_TIMEOUT="0.5").communicate(timeout=60)
        collectors.wait_for(lambda: len(collector.spans()) >= 2, "the spans did not arrive")
        collectors.wait_for(lambda: "EventName: rl.process.lost" in collector.text(), "the event did not arrive")

        statuses = {span.name: (span.status, span.message) for span in collector.spans()}
        assert statuses == {
            "rl.sample": ("STATUS_CODE_ERROR", "rl.process.lost"),
            "rl.loop": ("STATUS_CODE_ERROR", "rl.process.lost"),
        }


def test_naming_otlp_is_asking_for_all_three_signals(tmp_path: Path) -> None:
    """`exporters=["otlp"]` needs no endpoint variable: OTLP has a default one."""
    import json

    run = otel_rl.init(dir=tmp_path, exporters=["otlp"], agent="off", quiet=True)
    manifest = json.loads((run.dir / "run.json").read_text())

    assert [name for name, _ in manifest["exporters"]] == ["archive", "otlp_traces", "otlp_logs"]
    assert [name for name, _ in manifest["readers"]] == ["prometheus", "otlp"]


@pytest.mark.parametrize("sends", [True, False])
def test_printed_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sends: bool) -> None:
    """Messages of logging arrive with severity, logger, exception, step and span, if that is asked for."""
    with collectors.running(tmp_path) as collector:
        for name, value in collector.environment("http/protobuf").items():
            monkeypatch.setenv(name, value)
        run = otel_rl.init(dir=tmp_path, project="otlp", exporters=[], quiet=True, output={"send": sends})
        with run.step(7), run.phase("generate"):
            try:
                raise ValueError("no prompt")
            except ValueError:
                logging.getLogger("trainer").exception("rollout failed")
        assert run.finish(20)
        log = collector.text()
    record = next((part for part in log.split("LogRecord #") if "rollout failed" in part), "")

    assert bool(record) == sends
    if sends:
        expected = (
            *("SeverityText: ERROR", "exception.type: Str(ValueError)", "rl.loop.iteration: Int(7)"),
            *("rl.phase: Str(generate)", f"{step_ids(run.id, 0, 7)[0]:032x}"),
        )
        assert [text for text in expected if text not in record] == []
