"""The one client by which otel-rl asks over HTTP: collectors, heads, webhooks, inference servers, trackers.

A session sends only what it is given: nothing of `~/.netrc`, and no header, body or token to another host by a
redirect. Proxies and authorities are those of the usual variables. An answer has a limit of size and of time.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    import requests

MOST_BYTES = 4 << 20
"""The largest body of an answer that is read, also after decompression."""
_AT_ONCE = 1 << 16
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


class HttpAnswer(NamedTuple):
    """The answer of a server; a redirect is one."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes  # or its beginning

    @property
    def is_good(self) -> bool:
        """Whether the server has done what it was asked."""
        return 200 <= self.status < 300


def session(url: str, *, authorities: str | bool = "", uses_proxies: bool = True) -> requests.Session:
    """Return a session for requests to a URL.

    Args:
        url: Where to; it chooses the proxy.
        authorities: A file with certificates of authorities, or false to trust every server; by default those of the
            usual variables.
        uses_proxies: If false, neither proxies nor authorities of the environment are used.
    """
    import requests  # most processes ask nothing

    made = requests.Session()
    # A redirect would make a GET without a body of some requests, and an invalid one raises.
    made.get_redirect_target = lambda _: None  # type: ignore[method-assign, assignment]
    made.trust_env = False  # otherwise .netrc would add a password, and REQUESTS_CA_BUNDLE would override `authorities`
    # `requests` offers all encodings that are installed; `_read` decodes only this one.
    made.headers["Accept-Encoding"] = "gzip"
    bundle = next(filter(None, map(os.environ.get, _BUNDLES)), None) if uses_proxies else None
    made.verify = authorities if authorities or authorities is False else bundle or True
    if uses_proxies:
        made.proxies.update(requests.utils.get_environ_proxies(url))
    return made


def send(
    by: requests.Session,
    url: str,
    data: bytes | None = None,
    *,
    within: float | None,
    headers: Mapping[str, str] | None = None,
    most: int = MOST_BYTES,
) -> HttpAnswer:
    """Send a request, a POST if it has data, and return the answer.

    Args:
        by: The session.
        url: The URL.
        data: The body.
        within: Seconds in which the whole answer must have arrived; `None` for any.
        headers: Headers of this request.
        most: The largest body that is read; of a longer one, the beginning.

    Raises:
        TimeoutError: It took too long.
        OSError: There was no answer.
    """
    import urllib3

    until = None if within is None else time.monotonic() + within
    method = "GET" if data is None else "POST"
    try:
        # With `stream`: otherwise the whole body is read first, however large it is (security/test_collector.py).
        with by.request(method, url, data=data, headers=headers, timeout=within, stream=True) as response:
            body = _read(response.raw, until, most)
            return HttpAnswer(response.status_code, response.reason or "", response.headers, body)
    except urllib3.exceptions.HTTPError as error:  # while the body was read
        raise ConnectionError(str(error)) from error


def ask(
    url: str,
    data: bytes | None = None,
    *,
    within: float,
    headers: Mapping[str, str] | None = None,
    uses_proxies: bool = True,
    most: int = MOST_BYTES,
) -> HttpAnswer:
    """Send one request over a connection of its own; as `send`.

    Raises:
        TimeoutError: It took too long.
        OSError: There was no answer; the error is that of the socket, if there was one.
    """
    import requests

    handled = sys.exc_info()[1]
    with session(url, uses_proxies=uses_proxies) as by:
        try:
            return send(by, url, data, within=within, headers=headers, most=most)
        except requests.RequestException as error:
            cause = innermost(error, handled)
            if isinstance(error, requests.Timeout):
                raise TimeoutError(f"no answer within {within:g} s") from error
            raise (cause if isinstance(cause, OSError) else ConnectionError(str(cause))) from error


def innermost(error: BaseException, handled: BaseException | None = None) -> BaseException:
    """Return the root cause: the error of the socket or the library.

    Args:
        error: The error.
        handled: The exception that was being handled before the request, at which the chain of causes ends.
    """
    # A chain of causes can be a circle, which `raise … from …` allows.
    seen = {id(error), id(handled)}
    while True:
        inside = [error.__cause__, error.__context__, getattr(error, "reason", None), *error.args]
        deeper = next((cause for cause in inside if isinstance(cause, BaseException) and id(cause) not in seen), None)
        if deeper is None:
            return error
        seen.add(id(deeper))
        error = deeper


def _read(raw: Any, until: float | None, most: int) -> bytes:
    """Return the body of a response, or its beginning; nothing that a server sends takes more memory or time.

    Raises:
        TimeoutError: It took too long.
    """
    body = bytearray()
    read = getattr(raw, "read1", raw.read)  # urllib3 1.x waits until it has as many bytes as asked for
    while len(body) < most and (chunk := read(_AT_ONCE, decode_content=False)):
        body += chunk
        if until is not None and time.monotonic() > until:
            raise TimeoutError
    if raw.headers.get("Content-Encoding") != "gzip":
        return bytes(body[:most])
    try:
        # With a limit: 1 MiB of gzip can hold 256 MiB (tests/security/test_collector.py).
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(body, most)
    except zlib.error:
        return b""
