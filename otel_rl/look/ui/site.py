"""How the page's requests are answered: by routes, on other threads, with tags that are known before the bodies."""

from __future__ import annotations

import asyncio
import gzip
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs

import msgspec

from otel_rl.recorder.errors.texts import shown
from otel_rl.recorder.otlp.answers import FORBIDDEN, MALFORMED, NOT_FOUND, WRONG_METHOD, Refusal
from otel_rl.recorder.otlp.site import Answer

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping, Sequence

    from otel_rl.recorder.otlp.site import Request
    from otel_rl.recorder.settings.tokens import Tokens

_WORKERS = 8
"""Threads that answer: while some read many runs to be compared, the list is still answered."""
_MOST_QUERY = 8192
_MOST_BODY = 64 << 10
"""The largest change of marks in bytes: notes have 10,000 characters at most."""
_WORTH_PACKING = 1024
"""The size in bytes from which an answer is compressed."""
_LEVEL = 1
_SHELL, _ACCESS = "/", "/access"
_JSON, _TEXT = "application/json; charset=utf-8", "text/plain; charset=utf-8"
_GUARDED = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-cache",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A notebook of this machine may show the page; whoever frames it has no token all the same.
    "Content-Security-Policy": "frame-ancestors 'self' http://localhost:* http://127.0.0.1:*",
}


class Content(NamedTuple):
    """An answer of a route."""

    tag: str  # a text that differs when the content does; empty if that is not known before it is made
    make: Callable[[], bytes]  # makes it, unless the browser has it already
    kind: str = _JSON  # its media type


class PageAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The rights of whoever looks at the page."""

    may_change: bool  # whether marks can be changed and runs deleted
    reading_token: str  # the token that can be shared: it only reads


class Query:
    """The query of a request: names with one or more texts."""

    def __init__(self, text: str) -> None:
        if len(text) > _MOST_QUERY:
            raise Refusal(MALFORMED, f"the query has more than {_MOST_QUERY:,} characters")
        try:
            self._values = parse_qs(text, keep_blank_values=True, max_num_fields=1000, errors="strict")
        except ValueError as error:
            raise Refusal(MALFORMED, f"the query cannot be read: {error}") from None

    def one(self, name: str, default: str = "") -> str:
        """Return the last text of a name."""
        return self._values.get(name, [default])[-1]

    def every(self, name: str) -> list[str]:
        """Return all texts of a name; commas separate texts too."""
        return [text for value in self.whole(name) for text in value.split(",") if text]

    def whole(self, name: str) -> list[str]:
        """Return all texts of a name, which may have commas."""
        return self._values.get(name, [])


class Route(NamedTuple):
    """A path, and what answers it."""

    pattern: re.Pattern[str]  # the whole path; its groups are the first arguments of `answer`
    answer: Callable[..., Content]
    """Takes the groups, and the query or what was posted; it raises `Refusal` and `LookupError`."""
    method: str = "GET"  # `POST` for what changes something, which the token for reading may not


def as_json(value: object) -> bytes:
    """Return a value as JSON, in which what is not finite is null."""
    return msgspec.json.encode(value)


class PageSite:
    """The shell and all that it asks for.

    Args:
        shell: The page itself, which everybody gets.
        routes: What else is there.
        tokens: The tokens that change something; the gate lets in those for reading too.
    """

    methods = ("GET", "POST")
    largest = _MOST_BODY

    def __init__(self, shell: bytes, routes: Sequence[Route], tokens: Tokens) -> None:
        self._shell, self._routes, self._tokens = shell, routes, tokens
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="otel-rl-page")

    def check(self, request: Request) -> None:
        """Check the path and the method.

        Raises:
            Refusal: Nothing is there, or the token is one for reading.
        """
        own = {_SHELL: ("GET",), _ACCESS: ("GET",)}.get(request.path, ())
        methods = own or tuple(route.method for route in self._routes if route.pattern.fullmatch(request.path))
        if not methods:
            raise Refusal(NOT_FOUND, f"nothing is at {shown(request.path)}")
        if request.method not in methods:
            usable = ", ".join(methods)
            raise Refusal(WRONG_METHOD, f"{shown(request.path)} is not changed: use {usable}", {"Allow": usable})
        if request.method != "GET" and not self._may_change(request):
            raise Refusal(FORBIDDEN, "this link is for reading: its token changes no marks and deletes no run")

    async def answer(self, request: Request, body: bytearray) -> Answer:
        """Return what a path has, or that the browser has it already."""
        if request.path == _SHELL:
            return _answer(request.headers, "", self._shell, "text/html; charset=utf-8")
        if request.path == _ACCESS:
            access = PageAccess(may_change=self._may_change(request), reading_token=self._tokens.for_reading().first)
            return _answer(request.headers, "", as_json(access), _JSON)
        return await asyncio.get_running_loop().run_in_executor(self._workers, self._answer, request, bytes(body))

    def refuse(self, _: Request, refusal: Refusal) -> Answer:
        """Return the reason as a text."""
        return Answer(
            refusal.kind.http, {"Content-Type": _TEXT, **refusal.headers, **_GUARDED}, f"{refusal}\n".encode()
        )

    def close(self) -> None:
        """End the threads."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _may_change(self, request: Request) -> bool:
        return self._tokens.accept(request.headers.get("authorization", ""))

    def _answer(self, request: Request, body: bytes) -> Answer:
        matches = ((route, route.pattern.fullmatch(request.path)) for route in self._routes)
        # `check` has refused all others
        route, match = next((route, match) for route, match in matches if match and route.method == request.method)
        try:
            content = route.answer(*match.groups(), body if request.method == "POST" else Query(request.query))
            tag = f'"{content.tag}"' if content.tag else ""
            if tag and request.headers.get("if-none-match") == tag:
                return Answer(304, {"ETag": tag, **_GUARDED})
            return _answer(request.headers, tag, content.make(), content.kind)
        except LookupError as error:
            raise Refusal(NOT_FOUND, str(error.args[0]) if error.args else "it is not there") from error
        except FileNotFoundError:
            raise Refusal(NOT_FOUND, "the run directory is there no more") from None


def _answer(asked: Mapping[str, str], tag: str, body: bytes, kind: str) -> Answer:
    headers = {"Content-Type": kind, "Vary": "Accept-Encoding", **_GUARDED}
    if tag:
        headers["ETag"] = tag
    if len(body) >= _WORTH_PACKING and "gzip" in asked.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        body = gzip.compress(body, _LEVEL, mtime=0)
    return Answer(200, headers, body)
