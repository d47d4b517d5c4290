"""The contract of what a listener serves, and the one handler of HTTP requests, which limits what it reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tornado.web import RequestHandler, stream_request_body

from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.errors.texts import shown
from otel_rl.recorder.otlp.answers import FAILED, LATER, MALFORMED, WRONG_METHOD, Refusal, too_large

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.recorder.otlp.answers import RefusalCounter
    from otel_rl.recorder.otlp.gate import Gate
    from otel_rl.recorder.otlp.visitors import Visitor, Visitors

logger = log_of(__name__)
_MOST_DRAINED = 64 << 20
"""How much of a refused body is read, in bytes: a client that is still sending would miss the response."""
_SHARED = 1 << 16
"""The size of responses in bytes above which clients that get the same one share its memory."""
_SENT_WITHIN_S = 30.0
"""The time that a client has to read a response; Prometheus itself gives up after 10 s by default."""


class Request(NamedTuple):
    """The head of a request, which is known before its body is read; the names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    peer: str
    query: str = ""


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class Site(Protocol):
    """A set of pages or services, which one server serves."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of its requests."""

    @property
    def largest(self) -> int:
        """The largest body in bytes; 0 if its requests have none."""

    def check(self, request: Request) -> None:
        """Check the path and the headers.

        Raises:
            Refusal: It is not answered.
        """

    async def answer(self, request: Request, body: bytearray) -> Answer:
        """Return the response to a request.

        Raises:
            Refusal: It is not accepted.
        """

    def refuse(self, request: Request, refusal: Refusal) -> Answer:
        """Return the response to a request that was refused."""


@stream_request_body
class Handler(RequestHandler):
    """Reads one request and answers it."""

    request: Any

    def initialize(self, site: Site, gate: Gate, visitors: Visitors, refusals: RefusalCounter) -> None:
        """Store the arguments that Tornado passes to each handler."""
        self._site, self._gate, self._visitors, self._refusals = site, gate, visitors, refusals
        connection: Any = self.request.connection
        self._visitor: Visitor = visitors[connection.stream]
        headers = {name.lower(): text for name, text in self.request.headers.items()}
        self._asked = Request(self.request.method, self.request.path, headers, self._visitor.peer, self.request.query)
        self._body = bytearray()
        self._seen = 0
        self._refusal: Refusal | None = None

    def prepare(self) -> None:
        """Check the headers before the body is read."""
        headers = self._asked.headers
        length = headers.get("content-length", "0")
        size = int(length) if length.isdecimal() else 0
        has_body = size > 0 or "transfer-encoding" in headers
        try:
            self._gate.check(self._asked.peer, headers.get("host", ""), headers, self._asked.path)
            if self._asked.method not in self._site.methods:
                raise self._wrong_method("not supported")
            self._site.check(self._asked)
            if size > self._site.largest or (has_body and not self._site.largest):
                raise too_large(self._site.largest)
        except Refusal as refusal:
            waits = "expect" in headers  # for an interim response, before it sends the body
            unread = has_body and not self._site.largest
            self._refuse(refusal, at_once=size > _MOST_DRAINED or waits or unread)

    def data_received(self, chunk: bytes) -> None:
        """Store or discard a chunk of the body."""
        self._seen += len(chunk)
        if self._refusal is None:
            if self._seen > self._site.largest:
                self._refuse(too_large(self._site.largest))
            elif not self._visitors.hold(self._visitor, len(chunk)):
                self._refuse(Refusal(LATER, "too many requests are being received"))
            else:
                self._body += chunk
        elif self._seen > _MOST_DRAINED:
            self._refuse(self._refusal, at_once=True)

    async def post(self) -> None:
        """Respond after the whole body was received."""
        if self._refusal is not None:
            self._send_refusal(self._refusal)
            return
        body, self._body = self._body, bytearray()
        size = self._visitors.answer(self._visitor)
        try:
            self._send(await self._site.answer(self._asked, body))
        except Refusal as refusal:
            self._send_refusal(refusal)
        finally:
            self._visitors.handled(self._visitor, size)

    get = head = put = delete = patch = options = post  # `prepare` has refused those that are not supported

    def on_finish(self) -> None:
        """Release the body of a request that was refused."""
        self._visitors.drop(self._visitor)

    def on_connection_close(self) -> None:
        """Release the body after the client has disconnected, or was sent away."""
        super().on_connection_close()
        self._body = bytearray()
        self._visitors.drop(self._visitor)

    def write_error(self, status_code: int, **_: Any) -> None:
        """Respond to requests that Tornado itself refuses, such as an unknown method."""
        if status_code == WRONG_METHOD.http:
            self._send_refusal(self._wrong_method(self._reason))
        else:
            self._send_refusal(Refusal(MALFORMED if status_code < FAILED.http else FAILED, self._reason))

    def compute_etag(self) -> str | None:
        """Return nothing: the digest of each response would be computed for nobody."""
        return None

    def _wrong_method(self, why: str) -> Refusal:
        usable = ", ".join(self._site.methods)
        return Refusal(WRONG_METHOD, f"method {shown(self._asked.method)}: {why}: use {usable}", {"Allow": usable})

    def _refuse(self, refusal: Refusal, *, at_once: bool = False) -> None:
        self._refusal = refusal
        self._body = bytearray()
        self._visitors.drop(self._visitor)
        if at_once:
            self.set_header("Connection", "close")  # the rest of the body is not read
            self._send_refusal(refusal)

    def _send_refusal(self, refusal: Refusal) -> None:
        self._refusals.note(f"HTTP {refusal.kind.http}", f"{shown(self._asked.path)}: {refusal}")
        for name, value in refusal.headers.items():
            self.set_header(name, value)
        self._send(self._site.refuse(self._asked, refusal))

    def _send(self, answer: Answer) -> None:
        """Send a response; close the connection of a client that does not read it."""
        self.set_status(answer.status)
        self.clear_header("Server")
        for name, value in answer.headers.items():
            self.set_header(name, value)
        self.set_header("Content-Length", str(len(answer.body)))
        closing = asyncio.get_running_loop().call_later(_SENT_WITHIN_S, self._visitor.stream.close)
        if len(answer.body) > _SHARED:
            self.flush()  # the headers alone: Tornado would copy the body behind them
        sent = asyncio.ensure_future(self.finish(answer.body or None))  # Tornado refuses even an empty one with a 304
        sent.add_done_callback(lambda _: closing.cancel())
