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
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.exporters.networks import Network

_WITHIN_S = 120
_ALL = "ALL_NETWORK_FAULTS"
"""The variable that also runs the kills at the start and at the end; the kills in the middle come every time."""


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


class Delivery:
    """The delivery of a run of 300 rows, by one agent, or by one after the other, each killed while a fault is on."""

    def __init__(self, network: Network, place: Path, proxy: FaultyProxy, *, killed: bool) -> None:
        self._network, self._place, self._proxy, self._killed = network, place, proxy, killed
        self.agents = [Agent(network, place, proxy.url)]

    def tell(self, line: str) -> None:
        """Give the present agent a command."""
        self.agents[-1].tell(line)

    def suffer(self, fault: Fault, command: str = "") -> None:
        """Switch a fault on, give a command, and wait until the agent has met the fault; maybe kill it then."""
        self._proxy.set(fault)
        if command:
            self.tell(command)
        self.agents[-1].wait_until_it_fails(self._proxy)
        if self._killed:
            self.agents[-1].kill()
            self.agents.append(Agent(self._network, self._place, self._proxy.url))

    @property
    def is_killed(self) -> bool:
        """Whether each fault ends with a kill."""
        return self._killed

    def close(self) -> None:
        """Kill the present agent, and print what all have said, for a test that fails."""
        self.agents[-1].kill()
        print(*(line for one in self.agents for line in one.said), sep="\n")  # noqa: T201

    def recover(self, rows: int) -> None:
        """Switch the fault off, and wait until the server has so many rows."""
        self._proxy.set("")
        wait_for(lambda: len(self._network.steps(self._place.name)) >= rows, "rows do not arrive", _WITHIN_S)


def at_the_start(delivery: Delivery) -> None:
    """Meet every fault before the first contact succeeds."""
    for number, fault in enumerate(FAULTS):
        delivery.suffer(fault, "" if number else "put 0 30")
    delivery.recover(30)
    delivery.tell("put 30 300")
    delivery.tell("end")


def in_the_middle(delivery: Delivery) -> None:
    """Meet every fault with rows on their way, and recover after each."""
    delivery.tell("put 0 30")
    delivery.recover(30)
    for number, fault in enumerate(FAULTS, 1):
        delivery.suffer(fault, f"put {30 * number} {30 * number + 30}")
        delivery.recover(30 * number + 30)
    delivery.tell("end")


def at_the_end(delivery: Delivery) -> None:
    """Meet every fault while the run is being finished."""
    delivery.tell("put 0 300")
    delivery.recover(300)
    for number, fault in enumerate(FAULTS):
        delivery.suffer(fault, "" if number and not delivery.is_killed else "end")
    if delivery.is_killed:
        delivery.tell("end")
    delivery.recover(300)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("killed", [False, True], ids=["lives", "killed"])
@pytest.mark.parametrize("phase", [at_the_start, in_the_middle, at_the_end])
def test_rows_arrive_once(network: Any, tmp_path: Path, phase: Callable[[Delivery], None], killed: bool) -> None:
    """401, 403, 404, 409, 429, 500, 503, no connection, lost answers: then each row is there once, and the end."""
    if killed and phase is not in_the_middle and not os.environ.get(_ALL):
        pytest.skip(f"takes minutes; {_ALL}=1 runs it")
    one, proxy = network
    place = tmp_path / f"{phase.__name__}-{killed}"
    proxy.set("")
    with contextlib.ExitStack() as stack:
        delivery = Delivery(one, place, proxy, killed=killed)
        stack.callback(delivery.close)
        phase(delivery)
        delivery.agents[-1].end()

    assert one.steps(place.name) == dict.fromkeys(range(300), 1)
    assert one.params(place.name) >= {"p0"}
    assert one.state(place.name) == "finished"
