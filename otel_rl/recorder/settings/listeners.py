"""The rule for listeners: loopback is open to this machine; any other address needs a token, and TLS.

It holds for the metrics endpoint, the head agent and the bridge, and for machines that send to a head.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from typing import TYPE_CHECKING

from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.settings.head import CERTIFICATE_VARIABLE, KEY_VARIABLE, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

INSECURE_VARIABLE = "OTEL_RL_INSECURE"


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address: each address of a name is one of loopback."""
    plain = host.strip("[]")
    if plain.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(plain.partition("%")[0]).is_loopback
    except ValueError:
        pass
    if not plain:
        return False
    try:
        addresses = socket.getaddrinfo(plain, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in addresses)


def check(what: str, host: str, *, has_token: bool, is_encrypted: bool, insecure: bool, fix: str) -> None:
    """Raise if other machines reach an address that has no token or no TLS.

    Args:
        what: The listener and its address, for the message.
        host: Name or address.
        has_token: If true, requests need a token.
        is_encrypted: If true, connections use TLS.
        insecure: If true, connections without TLS are allowed. A token is needed all the same.
        fix: How TLS is set up.

    Raises:
        SettingsError: The message has the command that creates a token.
    """
    if (has_token and (is_encrypted or insecure)) or is_loopback(host):
        return
    if not has_token:
        raise SettingsError(
            f"{what}: other machines reach this address, so it needs a token: run `otel-rl token` once; machines "
            "without the same home directory need a copy of the file, or OTEL_RL_TOKEN"
        )
    raise SettingsError(
        f"{what}: other machines reach this address, so it needs TLS: {fix}; in a network that you trust, "
        f"set insecure=True ({INSECURE_VARIABLE}=true, or --insecure) instead"
    )


def check_head(address: str, *, has_token: bool, insecure: bool) -> None:
    """Raise if other machines reach the address of the head, and it has no token or no TLS.

    Raises:
        SettingsError: The message has the fix.
    """
    place = parse(address)
    fix = f"write https://{address}, and set {CERTIFICATE_VARIABLE} and {KEY_VARIABLE} where the head is"
    what, is_encrypted = f"head={address!r}", place.secure
    check(what, place.host, has_token=has_token, is_encrypted=is_encrypted, insecure=insecure, fix=fix)


def check_endpoint(host: str, environ: Mapping[str, str], *, has_token: bool, insecure: bool) -> None:
    """Raise if other machines reach the metrics endpoint or the page, and it has no token or no TLS.

    Raises:
        SettingsError: The message has the fix.
    """
    fix = f"set {CERTIFICATE_VARIABLE} and {KEY_VARIABLE} to PEM files"
    what, is_encrypted = f"listener on {host!r}", bool(environ.get(CERTIFICATE_VARIABLE))
    check(what, host, has_token=has_token, is_encrypted=is_encrypted, insecure=insecure, fix=fix)


def server_tls(environ: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the TLS configuration that the variables describe; `None` without a certificate.

    Raises:
        SettingsError: The files cannot be used.
    """
    certificate = environ.get(CERTIFICATE_VARIABLE)
    return context(certificate, environ.get(KEY_VARIABLE) or None) if certificate else None


def context(certificate: str, key: str | None) -> ssl.SSLContext:
    """Return the TLS configuration of a server.

    Raises:
        SettingsError: The files cannot be used.
    """
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        tls.load_cert_chain(certificate, key)
    except OSError as error:  # ssl.SSLError too
        raise SettingsError(f"TLS certificate {certificate!r} and key {key!r}: {error.strerror or error}") from error
    return tls
