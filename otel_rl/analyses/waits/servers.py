"""Servers of this machine that processes send requests to: which one a span waits for, and whether it listens.

The kernel lists the ports on which somebody listens, so a server that works is left alone: connections that it does not
accept would fill its queue. Only an address whose port is not in the list is connected to. If that is refused, there is
no server. Servers of other machines are unknown.
"""

from __future__ import annotations

import os
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from otel_rl import semconv

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.export import AttributeValue

_TIMEOUT_S = 0.2
_URLS = ("url.full", "http.url")
_HOSTS = ((semconv.SERVER_ADDRESS, semconv.SERVER_PORT), ("net.peer.name", "net.peer.port"))
_PORTS = {"http": 80, "https": 443}
_PORT_LIMIT = 1 << 16
_LISTENS = "0A"


def server_in(awaits: Mapping[str, AttributeValue]) -> str:
    """Return the address and port of the server that a span waits for; empty if it names none."""
    for host, port in _HOSTS:
        if awaits.get(host) and awaits.get(port):
            return _address(str(awaits[host]), awaits[port])
    for key in _URLS:
        try:
            parts = urlsplit(str(awaits.get(key, "")))
            if parts.hostname and (known := parts.port or _PORTS.get(parts.scheme)):
                return _address(parts.hostname, known)
        except ValueError:  # not a URL
            continue
    return ""


class Servers:
    """Looks which servers of this machine are gone."""

    def __init__(self) -> None:
        self._redirected: set[str] = set()  # the kernel passes these connections on to somebody else

    def gone(self, asked: Mapping[str, int]) -> list[str]:
        """Return the addresses at which nobody listens; each comes with the process that waits for it."""
        names: list[str] = []
        ports: dict[int, set[int] | None] = {}
        for address, pid in asked.items():
            host, port = _split(address)
            if address in self._redirected or not 0 < port < _PORT_LIMIT or not _is_here(host):
                continue
            if pid not in ports:
                ports[pid] = _listening(pid) if _shares_network(pid) else None
            if (known := ports[pid]) is not None and port not in known:
                if _refuses(host, port):
                    names.append(address)
                # A transparent proxy, or `iptables`, accepts for a port that nobody listens on: it would get a
                # connection at each look (analyses/test_servers.py).
                else:
                    self._redirected.add(address)
        return names


def _address(host: str, port: object) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _split(address: str) -> tuple[str, int]:
    """Return the host as an IP address, as far as that is known without asking anybody, and the port."""
    host, _, port = address.rpartition(":")
    # Names are not resolved: a DNS server that does not answer would hold up the agent (analyses/test_servers.py).
    host = "127.0.0.1" if host in ("localhost", socket.gethostname()) else host.strip("[]")
    return host, int(port) if port.isdecimal() else -1


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET


def _is_here(host: str) -> bool:
    """Return whether an address is one of this machine."""
    try:
        with socket.socket(_family(host), socket.SOCK_DGRAM) as probe:
            # UDP: `bind` succeeds for addresses of this machine, and nothing is sent.
            probe.bind((host, 0))
    except (OSError, ValueError):
        return False
    return True


def _shares_network(pid: int) -> bool:
    """Return whether a process sees the same network: a container of its own does not."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino  # noqa: PTH116
    except OSError:  # of another user, or no Linux
        return False


def _listening(pid: int) -> set[int] | None:
    """Return the ports on which somebody listens in the network of a process; `None` if that is unknown."""
    ports: set[int] | None = None
    for kind in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{kind}").read_text("ascii", "replace").splitlines()[1:]
        except OSError:  # no IPv6, say
            continue
        fields = (line.split(maxsplit=4) for line in lines)
        ports = (ports or set()) | {
            int(one[1].rpartition(":")[2], 16) for one in fields if len(one) > 3 and one[3] == _LISTENS
        }
    return ports


def _refuses(host: str, port: int) -> bool:
    try:
        with socket.socket(_family(host)) as probe:
            probe.settimeout(_TIMEOUT_S)
            probe.connect((host, port))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
