"""Trackers over a network, whose servers refuse or cannot be reached at any moment: each row arrives once."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_rl.recorder.delivery.failures import with_fix
from tests import samples
from tests.certificates import Certificates
from tests.collector import wait_for
from tests.exporters.every import needs_packages
from tests.exporters.networks import NETWORKS, Network
from tests.faulty_proxy import ANSWERS, CERTIFICATES, Fault, FaultyProxy
from tests.processes import start
from tests.real_parts import expected

_WITHIN_S = 120
_HAS_NAMES = expected(present=os.geteuid() == 0 and shutil.which("unshare") is not None)
"""Whether the agents can have an `/etc/hosts` of their own: a namespace needs privileges."""
_HOST = "tracker.test" if _HAS_NAMES else "localhost"
_OWN_NAMES = 'mount --bind "$0" /etc/hosts && mount --bind "$1" /etc/nsswitch.conf && shift && exec "$@"'
_FIXES: dict[Fault, str] = {
    "no name": "check the address of the server, and DNS",
    **dict.fromkeys(CERTIFICATES, "check this machine's clock, and the certificates"),
}
_KILLED_OUTSIDE = ("wandb", "mlflow")
"""The trackers whose agent is killed at the start and at the end; with the others, in the middle."""
FAULTS: tuple[Fault, ...] = (*ANSWERS, *CERTIFICATES, *(("no name",) if _HAS_NAMES else ()))


class Agents:
    """A process that has imported a tracker, and forks an agent of its exporter for each connection."""

    def __init__(self, network: Network, place: Path) -> None:
        self._network, self._hosts, self._socket = network, place / "hosts", place / "socket"
        self._names = place / "nsswitch.conf"
        self._names.write_text("hosts: files\n")
        self.resolve(is_known=True)

    @contextlib.contextmanager
    def running(self, environment: dict[str, str]) -> Iterator[None]:
        """Run the process."""
        one = self._network
        command = [sys.executable, "-m", "tests.exporters.network_agent", one.exporter, str(self._socket), *one.modules]
        if _HAS_NAMES:
            command = ["unshare", "--mount", "bash", "-c", _OWN_NAMES, str(self._hosts), str(self._names), *command]
        path = os.pathsep.join(filter(None, sys.path))
        process = start(command, self._hosts.parent, **environment, PYTHONPATH=path)
        try:
            yield
        finally:
            process.kill()
            process.communicate()

    def resolve(self, *, is_known: bool) -> None:
        """Let the name of the server resolve, or not."""
        self._hosts.write_text(f"127.0.0.1 localhost {_HOST if is_known else ''}\n")

    def agent(self, place: Path) -> Agent:
        """Start an agent."""
        connection = socket.socket(socket.AF_UNIX)
        wait_for(lambda: connection.connect_ex(str(self._socket)) == 0, "the tracker is not imported", _WITHIN_S)
        return Agent(connection, place, self._network.options)


class Agent:
    """An agent of one exporter, in a process of its own.

    Attributes:
        said: What it has printed.
    """

    def __init__(self, connection: socket.socket, place: Path, options: object) -> None:
        self.said: list[str] = []
        self._connection = connection
        self._file = connection.makefile()
        self.tell(json.dumps([str(place), options]))
        self._pid = int(self._file.readline())
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def tell(self, line: str) -> None:
        """Give it a command."""
        self._connection.sendall(f"{line}\n".encode())

    def wait_until_it_fails(self, proxy: FaultyProxy) -> None:
        """Wait until it has met the fault, and says how to fix it if it can; W&B's service hides some answers."""
        before, fault = len(self.said), proxy.fault

        def is_met() -> bool:
            fixes = self._fixes(before)
            if fault in _FIXES:
                return _FIXES[fault] in fixes
            enough = 1 if fixes or fault == "hangs" else 2
            return bool(fixes) if fault == "refused" else proxy.hits >= enough

        wait_for(is_met, f"{fault} has no effect", _WITHIN_S)

    def end(self) -> None:
        """Wait until it has delivered everything."""
        wait_for(lambda: "ended" in self.said, "the agent does not end", _WITHIN_S)

    def kill(self) -> None:
        """Kill it, if it runs."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._connection.close()

    def _fixes(self, before: int) -> str:
        """Return the causes of failures and their fixes."""
        failures = [line.partition("; the first failure")[0] for line in self.said[before:] if " failed: " in line]
        return " ".join(map(with_fix, failures))

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            for line in self._file:
                self.said.append(line.rstrip("\n"))


@pytest.fixture(scope="module", params=[pytest.param(name, marks=needs_packages(name)) for name in NETWORKS])
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A tracker whose server runs, a proxy in front of it, and agents that know the proxy."""
    one, place = NETWORKS[request.param](), tmp_path_factory.mktemp(request.param)
    agents, certificates = Agents(one, place), Certificates(place, _HOST)
    with (
        one.serving(place) as address,
        FaultyProxy(address, _HOST, certificates, lambda is_known: agents.resolve(is_known=is_known)) as proxy,
        agents.running(one.environment(proxy.url) | certificates.environment),
    ):
        yield one, proxy, agents


class Delivery:
    """The delivery of a run of 300 rows, by one agent, or by one after the other, each killed while a fault is on.

    Attributes:
        agents: The agents so far.
        params: Names of the parameters so far.
    """

    def __init__(self, network: Any, place: Path, *, killed: bool) -> None:
        self._network, self._proxy, self._agents = network
        self._place, self._killed = place, killed
        self.agents = [self._agents.agent(place)]
        self.params: set[str] = set()

    def tell(self, line: str) -> None:
        """Give the present agent a command; remember the parameters that come with rows."""
        if line.startswith("put"):
            self.params.add(f"p{line.split()[1]}")
        self.agents[-1].tell(line)

    def suffer(self, fault: Fault, command: str = "") -> None:
        """Switch a fault on, give a command, and wait until the agent has met the fault; maybe kill it then."""
        self._proxy.set(fault)
        if command:
            self.tell(command)
        self.agents[-1].wait_until_it_fails(self._proxy)
        if self._killed:
            self.agents[-1].kill()
            self.agents.append(self._agents.agent(self._place))

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
    delivery.tell("put 0 20")
    delivery.recover(20)
    for number, fault in enumerate(FAULTS, 1):
        last = 300 if fault == FAULTS[-1] else 20 * number + 20
        delivery.suffer(fault, f"put {20 * number} {last}")
        delivery.recover(last)
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
    """After errors, lost answers, no name and bad certificates, each row is there once, and the end.

    Each tracker has each moment, and both fates of the agent; `ALL_SAMPLES=1` has all pairs of them.
    """
    one, proxy, _ = network
    is_killed_at = (at_the_start, at_the_end) if one.exporter in _KILLED_OUTSIDE else (in_the_middle,)
    if killed is not (phase in is_killed_at) and not samples.IS_ALL:
        pytest.skip("ALL_SAMPLES")
    place = tmp_path / f"{phase.__name__}-{killed}"
    proxy.set("")
    with contextlib.ExitStack() as stack:
        delivery = Delivery(network, place, killed=killed)
        stack.callback(delivery.close)
        phase(delivery)
        delivery.agents[-1].end()

    assert one.steps(place.name) == dict.fromkeys(range(300), 1)
    assert one.params(place.name) >= delivery.params
    assert one.state(place.name) == "finished"
