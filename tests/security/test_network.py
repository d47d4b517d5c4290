"""A stranger on the network: a process in a network namespace of its own, which reaches this machine over a link."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import otel_rl
from tests.collector import free_port, wait_for
from tests.real_parts import given

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = f"stranger{os.getpid() % 10_000}"
HERE, THERE = "198.51.100.1", "198.51.100.2"  # RFC 5737
_ASK = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=5)
headers = {"Content-Type": "application/json"}
if len(sys.argv) > 4:
    headers["Authorization"] = "Bearer " + sys.argv[4]
try:
    connection.request("POST" if sys.argv[3] == "/v1/logs" else "GET", sys.argv[3], b"{}", headers)
    print(connection.getresponse().status)
except OSError as error:
    print(type(error).__name__)
"""


def _ip(*arguments: str) -> bool:
    with contextlib.suppress(OSError):
        return subprocess.run(["ip", *arguments], capture_output=True, check=False).returncode == 0
    return False


def _may() -> bool:
    made = os.geteuid() == 0 and _ip("netns", "add", f"{NAME}p")
    if made:
        _ip("netns", "del", f"{NAME}p")
    return made


pytestmark = given("root and network namespaces", present=_may())


@pytest.fixture
def link() -> Iterator[None]:
    """Make a namespace, and a link from it to this machine."""
    here, there = f"v{NAME}"[:15], f"w{NAME}"[:15]
    commands = [
        ("netns", "add", NAME),
        ("link", "add", here, "type", "veth", "peer", "name", there, "netns", NAME),
        ("addr", "add", f"{HERE}/30", "dev", here),
        ("link", "set", here, "up"),
        ("-n", NAME, "addr", "add", f"{THERE}/30", "dev", there),
        ("-n", NAME, "link", "set", there, "up"),
    ]
    try:
        assert all(_ip(*command) for command in commands)
        yield
    finally:
        _ip("link", "del", here)
        _ip("netns", "del", NAME)


def asked(port: int, path: str, *token: str) -> str:
    """Return the status that the stranger gets, or its error."""
    command = ["ip", "netns", "exec", NAME, sys.executable, "-c", _ASK, HERE, str(port), path, *token]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()


def test_a_stranger(link: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is out of reach; an open head and an open metrics endpoint refuse everybody without the token."""
    closed, metrics, head = free_port(), free_port(), free_port()
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(closed))
    run = otel_rl.init(dir=tmp_path / "a", quiet=True, hardware=False, strict=True)
    unreachable = asked(closed, "/metrics")
    assert run.finish(30)
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(metrics))
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_HOST", HERE)
    monkeypatch.setenv("OTEL_RL_TOKEN", "right")
    run = otel_rl.init(
        dir=tmp_path / "b", quiet=True, hardware=False, strict=True, insecure=True, head=f"{HERE}:{head}"
    )
    with run.step(0):
        run.log({"loss": 1.0})
    wait_for(lambda: asked(metrics, "/metrics", "right") == "200", "no metrics")
    found = [asked(port, path, *token) for port, path in ((metrics, "/metrics"), (head, "/v1/logs"))
             for token in ((), ("wrong",), ("right",))]  # fmt: skip

    assert unreachable == "ConnectionRefusedError"
    assert found == ["401", "401", "200"] * 2
    assert run.finish(30)
