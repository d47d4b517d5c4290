"""The pages of the metrics endpoint: rendered once for all who ask at the same time."""

from __future__ import annotations

import asyncio
import gzip
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from prometheus_client.exposition import choose_encoder, gzip_accepted

from otel_rl.recorder.errors import sinks
from otel_rl.recorder.errors.texts import shown
from otel_rl.recorder.otlp.answers import NOT_FOUND, Refusal
from otel_rl.recorder.otlp.site import Answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import Metric
    from prometheus_client.registry import Collector
    from prometheus_client.samples import Sample

    from otel_rl.recorder.otlp.site import Request

_PATHS = ("/", "/metrics")


class _Families:
    """The metrics of one collection, which encoders ask for as if they were a registry."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)
        for family in self._metrics:
            family.samples = [_harmless(sample) for sample in family.samples]
        self._pages: dict[tuple[str, bool], bytes] = {}

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return self._metrics

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


def _harmless(sample: Sample) -> Sample:
    """Return a sample whose labels a terminal shows: the format itself escapes only line ends."""
    if all(map(str.isprintable, sample.labels.values())):
        return sample
    return sample._replace(labels={name: sinks.lines(text) for name, text in sample.labels.items()})


class Pages:
    """The metrics endpoint: one collection at a time; requests that arrive during one share the next.

    Attributes:
        waiting: The number of requests that wait for a collection.
    """

    methods = ("GET", "HEAD")
    largest = 0

    def __init__(self, source: Collector) -> None:
        self._source = source
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="otel-rl-page")
        self._running: asyncio.Future[_Families] | None = None
        self._next: asyncio.Task[_Families] | None = None
        self.waiting = 0

    def check(self, request: Request) -> None:
        """Check the path.

        Raises:
            Refusal: It is unknown.
        """
        if request.path not in _PATHS:
            raise Refusal(NOT_FOUND, f"unknown path {shown(request.path)}: use /metrics")

    async def answer(self, request: Request, _: bytearray) -> Answer:
        """Return a page that was made after this call."""
        if self._next is None:
            self._next = asyncio.create_task(self._collect(self._running))
        self.waiting += 1
        try:
            # A client that disconnects cancels its own wait, not the collection that others wait for.
            families = await asyncio.shield(self._next)
        finally:
            self.waiting -= 1
        compressed = gzip_accepted(request.headers.get("accept-encoding", ""))
        page, content_type = await asyncio.get_running_loop().run_in_executor(
            self._worker, lambda: families.page(request.headers.get("accept", ""), compressed=compressed)
        )
        headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
        return Answer(200, headers | ({"Content-Encoding": "gzip"} if compressed else {}), page)

    def refuse(self, _: Request, refusal: Refusal) -> Answer:
        """Return the reason as a text."""
        return Answer(refusal.kind.http, {"Content-Type": "text/plain; charset=utf-8"}, f"{refusal}\n".encode())

    async def _collect(self, before: asyncio.Future[_Families] | None) -> _Families:
        if before is not None:
            await asyncio.wait([before])
        # Set before the collection begins: a request during it must not get values from before the request.
        self._running, self._next = asyncio.current_task(), None
        return await asyncio.get_running_loop().run_in_executor(self._worker, lambda: _Families(self._source.collect()))

    def close(self) -> None:
        """End the worker."""
        self._worker.shutdown(wait=False, cancel_futures=True)
