"""The pages of the metrics endpoint: rendered once for all who ask at the same time."""

from __future__ import annotations

import asyncio
import gzip
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from prometheus_client.exposition import choose_encoder, gzip_accepted
from tornado.web import RequestHandler

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client import Metric
    from prometheus_client.registry import Collector

    from otel_rl.setup import tokens

_SENT_WITHIN_S = 30.0
"""The time that a client has to read a page; Prometheus itself gives up after 10 s by default."""
_PATHS = ("/", "/metrics")


class _Families:
    """The metrics of one collection, which encoders ask for as if they were a registry."""

    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = list(found)
        self._pages: dict[tuple[str, bool], bytes] = {}

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return self._found

    def page(self, accept: str, *, compressed: bool) -> tuple[bytes, str]:
        """Return the page in the format that a client accepts, and its content type; each is made once."""
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is not one
            encode, content_type = choose_encoder("")
        if (content_type, compressed) not in self._pages:
            page = encode(self)
            self._pages[content_type, compressed] = gzip.compress(page, 1) if compressed else page
        return self._pages[content_type, compressed], content_type


class Pages:
    """Pages for concurrent requests: one collection at a time; requests that arrive during one share the next.

    Attributes:
        waiting: The number of requests that wait for a collection.
    """

    def __init__(self, source: Collector) -> None:
        self._source = source
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="otel-rl-page")
        self._running: asyncio.Future[_Families] | None = None
        self._next: asyncio.Task[_Families] | None = None
        self.waiting = 0

    async def page(self, accept: str, *, compressed: bool) -> tuple[bytes, str]:
        """Return a page that was made after this call, and its content type."""
        if self._next is None:
            self._next = asyncio.create_task(self._collect(self._running))
        self.waiting += 1
        try:
            families = await asyncio.shield(self._next)
        finally:
            self.waiting -= 1
        return await asyncio.get_running_loop().run_in_executor(
            self._worker, lambda: families.page(accept, compressed=compressed)
        )

    async def _collect(self, before: asyncio.Future[_Families] | None) -> _Families:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = asyncio.current_task(), None
        return await asyncio.get_running_loop().run_in_executor(self._worker, lambda: _Families(self._source.collect()))

    def close(self) -> None:
        """End the worker."""
        self._worker.shutdown(wait=False, cancel_futures=True)


class Handler(RequestHandler):
    """Answers requests for a page."""

    def initialize(self, pages: Pages, valid: tokens.Tokens) -> None:
        """Store the arguments that Tornado passes to each handler."""
        self._pages, self._valid = pages, valid

    def prepare(self) -> None:
        """Refuse a request by its headers."""
        self.clear_header("Server")
        if not self._valid.accept(self.request.headers.get("Authorization", "")):
            self._refuse(401, {"WWW-Authenticate": "Bearer"})
        elif self.request.path not in _PATHS:
            self._refuse(404)
        elif self.request.method not in ("GET", "HEAD"):
            self._refuse(405, {"Allow": "GET, HEAD"})

    async def get(self) -> None:
        """Respond with the page; close the connection of a client that does not read it."""
        headers = self.request.headers
        compressed = gzip_accepted(headers.get("Accept-Encoding", ""))
        page, content_type = await self._pages.page(headers.get("Accept", ""), compressed=compressed)
        self.set_header("Content-Type", content_type)
        self.set_header("Vary", "Accept, Accept-Encoding")
        if compressed:
            self.set_header("Content-Encoding", "gzip")
        self.set_header("Content-Length", str(len(page)))
        connection: Any = self.request.connection
        loop = asyncio.get_running_loop()
        closing = loop.call_later(_SENT_WITHIN_S, connection.stream.close)
        try:
            await self.finish(page)
        finally:
            closing.cancel()

    head = get
    put = post = delete = patch = options = get  # `prepare` has refused them

    def compute_etag(self) -> str | None:
        """Return nothing: the digest of each page would be computed for nobody."""
        return None

    def _refuse(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        for name, value in (headers or {}).items():
            self.set_header(name, value)
        self.set_header("Connection", "close")
        self.set_status(status)
        self.finish()
