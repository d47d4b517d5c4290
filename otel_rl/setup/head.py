"""The address of the head agent, and the variables that protect connections to it."""

from __future__ import annotations

import re
from typing import NamedTuple

TOKEN_VARIABLE = "OTEL_RL_TOKEN"  # settings are written to files, secrets are not
CERTIFICATE_VARIABLE, KEY_VARIABLE = "OTEL_RL_TLS_CERTIFICATE", "OTEL_RL_TLS_KEY"
AUTHORITY_VARIABLE = "OTEL_RL_TLS_CA"
VARIABLES = (TOKEN_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE, AUTHORITY_VARIABLE)
"""Variables of the agents that are not settings."""

_ADDRESS = re.compile(r"(?:(https?)://)?(\[[0-9A-Fa-f:.%\w]+\]|[^\[\]:/@\s]+):(\d{1,5})/?", re.IGNORECASE)


class Head(NamedTuple):
    """The address of the head.

    Attributes:
        secure: If true, connections are encrypted.
        host: Host name or address; IPv6 in brackets.
        port: TCP port.
    """

    secure: bool
    host: str
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
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[3]) >= 1 << 16:
        raise ValueError(f"invalid address {text!r}: use host:port, or [address]:port for IPv6")
    return Head((found[1] or "").lower() == "https", found[2], int(found[3]))
