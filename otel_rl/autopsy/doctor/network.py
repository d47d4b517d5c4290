"""Whether addresses answer: requests with a time limit, and sentences about what went wrong."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from otel_rl.recorder.errors.texts import text_of
from otel_rl.recorder.otlp import http_client

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_LIBRARIES = re.compile(r"^(<.*?>|HTTPS?Connection(Pool)?\(.*?\)): ")
PATIENCE_S = 4.0
"""Seconds that one address has to answer."""


class Answered(NamedTuple):
    """The answer of an address: a status and the begin of the body, or what went wrong and how to fix it."""

    status: int = 0
    body: str = ""
    problem: str = ""
    fix: str = ""


def ask(
    url: str,
    *,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    verify: str | bool = "",
    auth: tuple[str, str] | None = None,
    cert: tuple[str, str] | None = None,
) -> Answered:
    """Send one request: GET, or POST if there are data. The usual variables choose a proxy."""
    import requests

    try:
        with http_client.session(url, authorities=verify) as session:
            session.auth, session.cert = auth, cert
            # The beginning is enough: the address can be of anything, such as a page without an end.
            done = http_client.send(session, url, data, within=PATIENCE_S, headers=headers, most=2000)
            return Answered(done.status, done.body.decode("utf-8", "replace"))
    except requests.exceptions.SSLError as error:
        fix = "Check its certificate, and the authority that this machine trusts."
        return Answered(problem=f"{without_secrets(url)}: the certificate is not accepted: {_reason(error)}", fix=fix)
    except requests.exceptions.ProxyError as error:
        return Answered(
            problem=f"{without_secrets(url)}: the proxy does not let it through: {_reason(error)}", fix=_PROXY
        )
    except OSError as error:
        return Answered(problem=f"{without_secrets(url)} does not answer: {_reason(error)}", fix=_CONNECT)


def without_secrets(url: str) -> str:
    """Return a URL without its user, password and query."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


_PROXY = "Check HTTPS_PROXY and NO_PROXY."
_CONNECT = "Check the address, that the server runs, and that no firewall is in between."


def _reason(error: BaseException) -> str:
    """Return the innermost reason of a failed request."""
    while True:
        within = (getattr(error, "reason", None), *error.args[:2])
        inner = next((cause for cause in within if isinstance(cause, BaseException)), None)
        if inner is None or inner is error:
            break
        error = inner
    if isinstance(error, socket.gaierror):
        return f"its name is unknown ({error.strerror})"
    text = getattr(error, "strerror", None) or str(error.args[-1] if error.args else error)
    return text_of(_OF_LIBRARIES.sub("", text))
