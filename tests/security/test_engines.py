"""Pages of inference servers, whose labels come from outside: each is read as it is, or the page is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

import otel_rl
from otel_rl import semconv
from otel_rl.analyses import engines as engine_load
from otel_rl.cli.late import plain
from otel_rl.recorder.agent.input import engine_pages
from otel_rl.recorder.agent.input.engine_pages import Load, loads
from tests.collector import wait_for
from tests.recorder.agent.hardware.engine_pages import serving
from tests.security.hostile import CONTROLS, NAMES

RUNNING, PREEMPTIONS = semconv.METRIC_ENGINE_REQUESTS_RUNNING, semconv.METRIC_ENGINE_PREEMPTIONS
FORGED = [f"x{end}vllm:num_requests_running 99{end}" for end in ("\n", "\r\n", "\x0b", "\x85", "\u2028", "\x1c")]
"""Labels that are a sample of their own to a reader that knows other line ends than the format."""


def hostile() -> CollectorRegistry:
    """Return the metrics of a server whose replicas and models have hostile names; each replica has a number."""
    registry = CollectorRegistry()
    running = Gauge("vllm:num_requests_running", "Requests", ["model_name", "engine"], registry=registry)
    for number, name in enumerate([*NAMES, *FORGED]):
        running.labels(name, name).set(number)
    return registry


def test_labels_are_read_back() -> None:
    """Each replica has its own value under its own name, whatever its labels are; no sample is forged."""
    found = loads(generate_latest(hostile()).decode(), "s")

    assert {load.engine: load.value for load in found} == {f"s/{name}": n for n, name in enumerate([*NAMES, *FORGED])}
    assert {load.quantity for load in found} == {RUNNING}


def test_a_page_with_too_many_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before it is parsed."""
    monkeypatch.setattr(engine_pages, "_MOST_LINES", 10)
    page = "".join(f'vllm:num_requests_running{{engine="{n}"}} 1\n' for n in range(11))

    with pytest.raises(ValueError, match="11 samples"):
        loads(page, "s")


def test_engines_with_other_names_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The totals of their counters have a limit, and engines that stay are still counted."""
    monkeypatch.setattr(engine_load, "_MOST", 100)
    load = engine_load.EngineLoad()
    for time in range(1, 200):
        names = ("stays", *(f"{time}-{n}" for n in range(10)))
        load.hear(time, [Load(PREEMPTIONS, "s", f"s/{name}", float(time)) for name in names])

    assert len(load._totals) == 100
    assert load._totals[PREEMPTIONS, "s/stays"] == 199


def test_rows_of_a_run(tmp_path: Path) -> None:
    """A real agent reads such a server: rows have the maximum under plain names, no file or log line has a label."""
    registry, reads = hostile(), list[int]()
    waiting = Gauge("vllm:num_requests_waiting", "Requests", ["engine"], registry=registry)
    waiting.labels(NAMES[0]).set_function(lambda: reads.append(1) or 5)  # type: ignore[func-returns-value]
    with serving(registry) as url:
        hardware = {"enabled": False, "interval": 0.05, "engines": [url]}
        run = otel_rl.init(dir=tmp_path, exporters=["jsonl"], quiet=True, hardware=hardware)
        with run.step(0):
            run.log({"loss": 1.0})
            seen = len(reads)
            wait_for(lambda: len(reads) > seen + 2, "the agent does not read the server", 60)
        assert run.finish(60)
    (row,) = plain.rows(run.dir)

    assert {name: value for name, value in row.values.items() if name.startswith("engine/") and "max" in name} == {
        "engine/requests_running/max": len(NAMES) + len(FORGED) - 1.0,
        "engine/requests_waiting/max": 5,
    }
    assert not CONTROLS & set("".join(str(path) for path in tmp_path.rglob("*")))
    assert not CONTROLS - {"\n"} & set((run.dir / "agent.log").read_text())
