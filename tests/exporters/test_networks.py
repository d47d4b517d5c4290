"""Trackers over a network, whose servers refuse or cannot be reached at any moment: each row arrives once."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from subprocess import PIPE, STDOUT, Popen
from typing import TYPE_CHECKING, Any

import pytest

from tests.collector import wait_for
from tests.exporters.every import needs_packages
from tests.exporters.networks import NETWORKS
from tests.faulty_proxy import FAULTS, Fault, FaultyProxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.exporters.networks import Network

PHASES = ("start", "middle", "end")
_WITHIN_S = 120


class Agent:
    """An agent of one exporter, in a process of its own.

    Attributes:
        said: What it has printed.
    """

    def __init__(self, network: Network, place: Path, address: str) -> None:
        command = [sys.executable, "-m", "tests.exporters.network_agent", network.exporter, str(place)]
        path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment = os.environ | network.environment(address) | path
        self.said: list[str] = []
        self.process = Popen(
            [*command, json.dumps(network.options)], env=environment, stdin=PIPE, stdout=PIPE, stderr=STDOUT, text=True
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def tell(self, line: str) -> None:
        """Give it a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def wait_until_it_fails(self, proxy: FaultyProxy) -> None:
        """Wait until it has met the fault, and noticed it if it can; W&B's service hides some."""
        before = len(self._failures)
        wait_for(lambda: proxy.hits > 1 or len(self._failures) > before, "the fault has no effect", _WITHIN_S)

    def end(self) -> None:
        """Wait until it has delivered everything and ended."""
        wait_for(lambda: self.process.poll() is not None, "the agent does not end", _WITHIN_S)
        self._reading.join(10)
        assert self.said[-1] == "ended"

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()

    @property
    def _failures(self) -> list[str]:
        return [line for line in self.said if " failed: " in line]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))


@pytest.fixture(scope="module", params=[pytest.param(name, marks=needs_packages(name)) for name in NETWORKS])
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Network, Any]]:
    """A tracker whose server runs, and a proxy in front of it."""
    one = NETWORKS[request.param]()
    with one.serving(tmp_path_factory.mktemp(request.param)) as address, FaultyProxy(address) as proxy:
        yield one, proxy


@contextlib.contextmanager
def agent(network: Network, place: Path, proxy: FaultyProxy) -> Iterator[Agent]:
    """Run an agent, which is killed if the test fails."""
    one = Agent(network, place, proxy.url)
    try:
        yield one
    except BaseException:
        print(*one.said[-30:], sep="\n")  # noqa: T201
        raise
    finally:
        one.kill()


def deliver(network: Network, place: Path, proxy: FaultyProxy, phase: str, fault: Fault, *, killed: bool) -> list[str]:
    """Deliver 300 rows with a fault in one phase, by one agent or by one that is killed there; return what it said."""
    proxy.set(fault if phase == "start" else "")
    with agent(network, place, proxy) as first:
        one = first
        for begin in (0, 100, 200):
            one.tell(f"put {begin} {begin + 100}")
            now = {0: "start", 100: "middle"}.get(begin)
            if now == phase:
                proxy.set(fault)
                one.wait_until_it_fails(proxy)
                if killed:
                    break
                proxy.set("")
            wait_for(lambda: len(network.steps(place.name)) >= begin + 100, "rows do not arrive", _WITHIN_S)  # noqa: B023
        if phase == "end":
            proxy.set(fault)
            one.tell("end")
            one.wait_until_it_fails(proxy)
        if not killed:
            proxy.set("")
            if phase != "end":
                one.tell("end")
            one.end()
            return first.said
        first.kill()
    proxy.set("")
    with agent(network, place, proxy) as second:
        for begin in range({"start": 100, "middle": 200, "end": 300}[phase], 300, 100):
            second.tell(f"put {begin} {begin + 100}")
        second.tell("end")
        second.end()
    return first.said


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True], ids=["lives", "killed"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("phase", PHASES)
def test_rows_arrive_once(network: Any, tmp_path: Path, phase: str, fault: Fault, killed: bool) -> None:
    """A server fails at the start, in the middle or at the end; once it is well it gets each row once, and the end."""
    one, proxy = network
    place = tmp_path / f"{phase}-{fault}-{killed}"
    deliver(one, place, proxy, phase, fault, killed=killed)

    assert one.steps(place.name) == dict.fromkeys(range(300), 1)
    assert one.params(place.name) == {"p0", "p100", "p200"}
    assert one.state(place.name) == "finished"
