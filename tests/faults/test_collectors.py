"""Exporters that are dead, that swallow everything, or that are slow."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.agent.process import run_agent
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from tests import collector as collectors
from tests.collector import free_port
from tests.faults.misbehaving import Say, collector
from tests.processes import rows_of, run_python
from tests.real_parts import needs

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)
        yield server.getsockname()[1]


@contextlib.contextmanager
def dead() -> Iterator[int]:
    """A port where nobody listens."""
    yield free_port()


@contextlib.contextmanager
def slow() -> Iterator[int]:
    """A port that answers with an error after two seconds."""
    with collector("http/protobuf", *[Say(503, slow=2)] * 100) as behavior:
        yield int(behavior.endpoint.rpartition(":")[2])


@pytest.mark.parametrize("place", [dead, black_hole, slow])
def test_finish_returns_in_time_and_says_that_not_all_is_delivered(
    place: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`finish(timeout=5)` says False within 6 s; the exporters that work have everything."""
    with place() as port:  # type: ignore[operator]
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("OTEL_RL_IDLE_TIMEOUT", "1")
        run = otel_rl.init(dir=tmp_path, quiet=True)
        for n in range(50):
            with run.step(n), run.phase("generate"):
                run.log({"loss": float(n)})
        started = time.monotonic()
        delivered = run.finish(timeout=5)
        took = time.monotonic() - started

    assert not delivered
    assert took < 6
    assert [row["step"] for row in rows_of(run.dir)] == list(range(50))


@needs("rotel")
def test_the_next_agent_delivers_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead collector gets everything that it missed from the next agent once it lives: all of it, once."""
    receiver = collectors.Collector(tmp_path)
    for name, value in receiver.environment("http/protobuf").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OTEL_RL_IDLE_TIMEOUT", "0.5")
    run = otel_rl.init(dir=tmp_path, quiet=True)
    for n in range(20):
        with run.step(n):
            run.log({"loss": float(n)})
    assert not run.finish(timeout=1)
    collectors.wait_for(lambda: not _alive(run.dir), "the agent does not give up", 30)
    receiver.start()
    try:
        assert run_agent(run.dir, once=True)
        collectors.wait_for(lambda: len(receiver.steps()) >= 20, "the events did not arrive")

        assert [step for step, _ in receiver.steps()] == list(range(20))
        assert len(rows_of(run.dir)) == 20
    finally:
        receiver.stop()


def test_a_slow_collector_gets_few_large_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes half a second for each request keeps up: what waits goes together."""
    with collector("http/protobuf", *[Say(slow=0.5)] * 200) as behavior:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", behavior.endpoint)
        run = otel_rl.init(dir=tmp_path, exporters=[], quiet=True)
        for n in range(200):
            with run.step(n):
                run.log({"loss": float(n)})
            time.sleep(0.01)

        assert run.finish(20)
    assert len(behavior.requests) < 15


def test_an_exporter_that_hangs_delays_no_other(tmp_path: Path) -> None:
    """One exporter that never returns: the others have everything, and the agent still ends."""
    (tmp_path / "stuck.py").write_text(
        "import time\n"
        "class Stuck:\n"
        "    def __init__(self, run): pass\n"
        "    def export(self, items): time.sleep(1000)\n"
        "    def shutdown(self): pass\n"
    )
    script = """
import otel_rl, stuck, time
run = otel_rl.init(dir="runs", project="p", id="i", exporters=[stuck.Stuck, "jsonl"], quiet=True)
for n in range(10):
    run.log({"loss": 1.0}, step=n)
started = time.monotonic()
assert not run.finish(1)
assert time.monotonic() - started < 2
"""
    run_python(script, tmp_path, OTEL_RL_IDLE_TIMEOUT="0.5")
    run_dir = tmp_path / "runs" / "p" / "i"
    collectors.wait_for(lambda: not _alive(run_dir), "the agent does not end", 60)

    assert [row["step"] for row in rows_of(run_dir)] == list(range(10))


def _alive(run_dir: Path) -> bool:
    return agent_start.agent_is_alive(directories.at(run_dir))
