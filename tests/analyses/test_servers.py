"""Servers that requests wait for: how a span names one, and whether somebody listens there."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from otel_rl.analyses.waits import servers
from otel_rl.analyses.waits.servers import Servers, server_in
from otel_rl.export import AttributeValue
from tests.collector import free_port

HERE = os.getpid()


@pytest.mark.parametrize(
    ("awaits", "address"),
    [
        ({"server.address": "::1", "server.port": 80}, "[::1]:80"),
        ({"url.full": "https://engine/v1?key=x"}, "engine:443"),
        ({"url.full": "http://engine:99999999/"}, ""),
        ({"url.full": "http://[::1/"}, ""),
        ({"url.full": [1, 2], "server.address": "a"}, ""),
        ({"http.url": "unix:///x"}, ""),
        ({}, ""),
    ],
)
def test_the_address_in_a_span(awaits: dict[str, AttributeValue], address: str) -> None:
    """It has a host and a port; what is not a URL names no server."""
    assert server_in(awaits) == address


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_server_that_is_gone(host: str) -> None:
    """Nobody listens on its port. A server that works is not connected to."""
    family = socket.AF_INET6 if host == "[::1]" else socket.AF_INET
    with socket.socket(family) as server:
        server.bind((host.strip("[]"), 0))
        server.listen(1)
        server.setblocking(False)
        address = f"{host}:{server.getsockname()[1]}"

        assert Servers().gone({address: HERE}) == []
        with pytest.raises(BlockingIOError):
            server.accept()
    assert Servers().gone({address: HERE}) == [address]


@pytest.mark.parametrize("address", ["203.0.113.7:80", "engine:80", "127.0.0.1:x", "127.0.0.1:99999", ":", ""])
def test_other_addresses_are_not_connected_to(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other machines are unknown, names are not looked up, and no port means no server."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("a name is looked up"))

    assert Servers().gone({address: HERE}) == []


def test_an_address_that_the_kernel_redirects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens on the port, but a connection is accepted: it is left alone from then on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(servers, "_listening", lambda _: {1})
        looks = Servers()

        assert looks.gone({address: HERE}) == []
    assert looks.gone({address: HERE}) == []
    assert Servers().gone({address: HERE}) == [address]


def test_a_process_that_is_not_seen() -> None:
    """If its network is unknown, so is the server."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass

    assert Servers().gone({f"127.0.0.1:{free_port()}": ended.pid}) == []
