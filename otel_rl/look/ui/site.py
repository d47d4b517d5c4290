"""How the page's requests are answered: by routes, on other threads, with tags that are known before the bodies."""

from __future__ import annotations

import asyncio
import gzip
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs

import msgspec

from otel_rl.recorder.errors.texts import shown
from otel_rl.recorder.otlp.answers import MALFORMED, NOT_FOUND, Refusal
from otel_rl.recorder.otlp.site import Answer

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping, Sequence

    from otel_rl.recorder.otlp.site import Request

_WORKERS = 8
"""Threads that answer: while some read many runs to be compared, the list is still answered."""
_MOST_QUERY = 8192
_WORTH_PACKING = 1024
"""The size in bytes from which an answer is compressed."""
_LEVEL = 1
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
    answer: Callable[..., Content]  # takes the groups and the query; it raises `Refusal` and `LookupError`


def as_json(value: object) -> bytes:
    """Return a value as JSON, in which what is not finite is null."""
    return msgspec.json.encode(value)


class PageSite:
    """The shell and all that it asks for."""

    methods = ("GET",)
    largest = 0

    def __init__(self, shell: bytes, routes: Sequence[Route]) -> None:
        self._shell = shell
        self._routes = routes
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="otel-rl-page")

    def check(self, request: Request) -> None:
        """Check the path.

        Raises:
            Refusal: Nothing is there.
        """
        if request.path != "/" and self._route_of(request.path) is None:
            raise Refusal(NOT_FOUND, f"nothing is at {shown(request.path)}")

    async def answer(self, request: Request, _: bytearray) -> Answer:
        """Return what a path has, or that the browser has it already."""
        if request.path == "/":
            return _answer(request.headers, "", self._shell, "text/html; charset=utf-8")
        return await asyncio.get_running_loop().run_in_executor(self._workers, self._answer, request)

    def refuse(self, _: Request, refusal: Refusal) -> Answer:
        """Return the reason as a text."""
        return Answer(
            refusal.kind.http, {"Content-Type": _TEXT, **refusal.headers, **_GUARDED}, f"{refusal}\n".encode()
        )

    def close(self) -> None:
        """End the threads."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _route_of(self, path: str) -> tuple[Route, tuple[str, ...]] | None:
        for route in self._routes:
            if (match := route.pattern.fullmatch(path)) is not None:
                return route, match.groups()
        return None

    def _answer(self, request: Request) -> Answer:
        known = self._route_of(request.path)
        assert known is not None  # `check` has refused all others
        route, groups = known
        try:
            content = route.answer(*groups, Query(request.query))
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
