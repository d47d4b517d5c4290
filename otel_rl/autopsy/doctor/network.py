"""Whether addresses answer: requests with a time limit, and sentences about what went wrong."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from otel_rl.recorder.errors.texts import text_of

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
    verify: str | bool = True,
    auth: tuple[str, str] | None = None,
    cert: tuple[str, str] | None = None,
) -> Answered:
    """Send one request: GET, or POST if there are data. The usual variables choose a proxy."""
    import requests

    try:
        with requests.Session() as session:
            session.trust_env = auth is None  # otherwise .netrc would replace it
            if auth is not None:
                session.proxies.update(requests.utils.get_environ_proxies(url))
            done = session.request(
                "GET" if data is None else "POST",
                url,
                data=data,
                headers=dict(headers or {}),
                verify=verify,
                auth=auth,
                cert=cert,
                timeout=PATIENCE_S,
                allow_redirects=False,
                stream=True,
            )
            # The beginning is enough: the address can be of anything, such as a page without an end.
            body = done.raw.read(2000, decode_content=True).decode("utf-8", "replace")
            return Answered(done.status_code, body)
    except requests.exceptions.SSLError as error:
        fix = "Check its certificate, and the authority that this machine trusts."
        return Answered(problem=f"{without_secrets(url)}: the certificate is not accepted: {_reason(error)}", fix=fix)
    except requests.exceptions.ProxyError as error:
        return Answered(
            problem=f"{without_secrets(url)}: the proxy does not let it through: {_reason(error)}", fix=_PROXY
        )
    except requests.RequestException as error:
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
