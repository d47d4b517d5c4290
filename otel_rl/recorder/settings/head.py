"""The address of the head agent, whether this machine owns it, and the variables that protect connections to it."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.recorder.settings.launcher import find_place
from otel_rl.recorder.settings.tokens import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

CERTIFICATE_VARIABLE, KEY_VARIABLE = "OTEL_RL_TLS_CERTIFICATE", "OTEL_RL_TLS_KEY"
AUTHORITY_VARIABLE = "OTEL_RL_TLS_CA"
VARIABLES = (TOKEN_VARIABLE, TOKEN_FILE_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE, AUTHORITY_VARIABLE)
"""Variables of the agents that are not settings."""

_ADDRESS = re.compile(r"(?:(https?)://)?(\[[0-9A-Fa-f:.%\w]+\]|[^\[\]:/@\s]+):(\d{1,5})/?", re.IGNORECASE)


class Head(NamedTuple):
    """The address of the head."""

    secure: bool  # whether connections are encrypted
    host: str  # name or address; IPv6 in brackets
    port: int

    @property
    def url(self) -> str:
        """The endpoint for OTLP exporters, without a path."""
        return f"{'https' if self.secure else 'http'}://{self.host}:{self.port}"


def parse(text: str) -> Head:
    """Return the address in `host:port` or `https://host:port`.

    Raises:
        ValueError: The text is not an address.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[3]) >= 1 << 16:
        raise ValueError(f"invalid address {text!r}: use host:port, or [address]:port for IPv6")
    return Head((match[1] or "").lower() == "https", match[2], int(match[3]))


def is_head(host: str, environ: Mapping[str, str]) -> bool:
    """Return whether this machine owns the address of the head.

    The address decides, not a rank: torchrun's c10d rendezvous may give rank 0 to any machine. The launcher's number
    of this machine decides only where the address cannot: its name is unknown, or every machine has one like it.
    """
    owners = set(_owners(host))
    if True in owners and False not in owners:
        return True
    if owners == {False}:
        return False
    if host.lower() != "localhost" and _is_own_name(host):
        return True
    node = find_place(environ).node
    return bool(owners - {False}) if node is None else node == 0


def is_of_this_machine(host: str) -> bool:
    """Return whether an address belongs to this machine, so that it can listen on it."""
    return any(owned is not False for owned in _owners(host))


def _owners(host: str) -> list[bool | None]:
    """Return for each address of a host whether this machine owns it; `None` if all do, such as loopback."""
    import ipaddress

    try:
        addresses = socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    owners: list[bool | None] = []
    for family, kind, protocol, _, address in addresses:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
        except OSError:
            owners.append(False)
            continue
        plain = ipaddress.ip_address(str(address[0]).partition("%")[0])
        everywhere = plain.is_loopback or plain.is_unspecified
        owners.append(None if everywhere else _is_source(family, *address))
    return owners


def _is_source(family: int, address: str | int, *more: str | int | bytes) -> bool:
    """Return whether packets to an address come from it: `net.ipv4.ip_nonlocal_bind` allows binding to any address."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9, *more[1:]))  # UDP: nothing is sent
            source: tuple[str | int, ...] = probe.getsockname()
    except OSError:
        return True  # without a route, binding decides
    return source[0] == address


def _is_own_name(host: str) -> bool:
    return host.partition(".")[0].lower() == socket.gethostname().partition(".")[0].lower()
