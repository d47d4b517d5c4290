"""Many requests of the worst kinds at each listener: its memory, and whether an honest client is answered."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

import otel_rl
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from tests.security import floods
from tests.security.strangers import Victim
from tests.serve.bridge.bridges import BODY, Bridge, ask

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
_MOST_MIB = 64


class Flood(NamedTuple):
    """The effect of a flood."""

    grown_mib: float
    slowest_s: float
    answers: int
    failures: int


def of_process(pid: int, what: str) -> float:
    """Return a value of `/proc/PID/status` in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 1024


def flood(kind: str, port: int, pid: int, honest: Callable[[], bool]) -> Flood:
    """Send a flood to a port of a process, and ask as an honest client meanwhile."""
    assert honest()
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is that of the flood alone
    before = of_process(pid, "VmRSS")
    slowest, answers, failures = 0.0, 0, 0
    with subprocess.Popen([sys.executable, "-m", "tests.security.floods", kind, str(port)]) as stranger:
        while stranger.poll() is None:
            began = time.monotonic()
            try:
                is_answered = honest()
            except (OSError, grpc.RpcError):
                is_answered = False
            slowest = max(slowest, time.monotonic() - began)
            answers += is_answered
            failures += not is_answered
            time.sleep(0.2)
    found = Flood(of_process(pid, "VmHWM") - before, slowest, answers, failures)
    sys.stdout.write(f"{kind}: {found}\n")
    return found


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    found = Bridge(tmp_path_factory.mktemp("bridge") / "runs")
    yield found
    found.stop()


def posts(port: int) -> Callable[[], bool]:
    return lambda: ask(port, BODY)[0].status == 200


@pytest.mark.parametrize("kind", [*floods.HTTP, *floods.OTLP])
def test_otlp_over_http(kind: str, bridge: Bridge) -> None:
    """The bridge; the head has the same server."""
    found = flood(kind, bridge.http, bridge.process.pid, posts(bridge.http))

    assert found.grown_mib < _MOST_MIB
    assert found.answers > found.failures


@pytest.mark.parametrize("kind", [*floods.GRPC])
def test_otlp_over_grpc(kind: str, bridge: Bridge) -> None:
    """The bridge's other port."""
    with grpc.insecure_channel(f"127.0.0.1:{bridge.grpc}") as channel:
        call: Any = channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")

        def honest() -> bool:
            try:
                return call(BODY, timeout=30) is not None
            except grpc.RpcError as error:
                status: Any = error
                return status.code() is grpc.StatusCode.UNAVAILABLE  # it is to retry, as OTLP clients do

        found = flood(kind, bridge.grpc, bridge.process.pid, honest)

    assert found.grown_mib < _MOST_MIB
    assert found.answers > found.failures


@pytest.mark.parametrize("kind", [*floods.HTTP, *floods.PAGE])
def test_metrics(kind: str, tmp_path: Path) -> None:
    """The agent of a run, whose rows arrive."""
    victim = Victim(tmp_path)
    pid = agent_start.read_status(directories.at(victim.run.dir)).pid
    address = str(victim.run.prometheus)
    port = int(address.rpartition(":")[2].partition("/")[0])
    found = flood(kind, port, pid, lambda: ask(port, None, "/metrics", "GET")[0].status == 200)

    assert found.grown_mib < _MOST_MIB
    assert found.answers > found.failures
    assert victim.is_unharmed()


def test_a_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head of a run, whose trainer waits no longer for its calls."""
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    victim = Victim(tmp_path)
    pid = agent_start.read_status(directories.at(victim.run.dir)).pid
    found = flood("bodies of 16 MiB that never end", victim.port, pid, posts(victim.port))

    assert found.grown_mib < _MOST_MIB
    assert otel_rl.current() is not None
    assert victim.is_unharmed()
