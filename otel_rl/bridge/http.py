"""OTLP over HTTP: protobuf and JSON.

Source: the OTLP specification 1.x, "OTLP/HTTP": paths, encodings, statuses, partial success.
"""

from __future__ import annotations

import base64
import json
import logging
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Protocol

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from otel_rl.bridge import receive

if TYPE_CHECKING:
    import ssl

logger = logging.getLogger(__name__)
_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
_HEX_FIELDS = ("traceId", "spanId", "parentSpanId")  # OTLP has these in hex, protobuf's own JSON in base64
_RETRY_AFTER_S = "5"
_IDLE_S = 60


class Sink(Protocol):
    """What takes requests."""

    def take_request(self, signal: str, request: Any) -> Any:
        """Take a request in, and return the answer to it.

        Raises:
            OSError: It cannot be taken now; the sender is to send it again.
        """


class _Answer(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class HttpServer(ThreadingHTTPServer):
    """Receives until it is shut down; a thread for each connection.

    Args:
        address: Host and port; port 0 for a free one.
        sink: What takes the requests.
        token: What senders must bring as their bearer token; empty for none.
        tls: How connections are encrypted, if they are.
    """

    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], sink: Sink, token: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(address, _Handler)
        self.sink = sink
        self.token = token
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)


class _Handler(BaseHTTPRequestHandler):
    server: HttpServer
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S

    def do_POST(self) -> None:
        """Take a request in, and answer."""
        kind = self.headers.get_content_type()
        try:
            answer = self._take(kind)
        except _Answer as answered:
            self._say(answered.status, "text/plain", str(answered).encode())
        except OSError as error:
            logger.warning("not now: %s", error)
            self._say(503, "text/plain", str(error).encode())
        except Exception:
            logger.exception("a request could not be taken")
            self._say(500, "text/plain", b"see the bridge's log")
        else:
            body = json_format.MessageToJson(answer).encode() if kind == _JSON else answer.SerializeToString()
            self._say(200, kind, body)

    def _take(self, kind: str) -> Any:
        if not receive.is_allowed(self.headers.get("Authorization", ""), self.server.token):
            raise self._refuse(401, "a bearer token is needed")
        signal = self.path.removeprefix("/v1/")
        if signal not in receive.REQUESTS or not self.path.startswith("/v1/"):
            raise self._refuse(404, "there are /v1/logs, /v1/traces and /v1/metrics")
        if kind not in (_PROTOBUF, _JSON):
            raise self._refuse(415, f"Content-Type {kind}: there are {_PROTOBUF} and {_JSON}")
        return self.server.sink.take_request(signal, self._request(kind, signal))

    def _request(self, kind: str, signal: str) -> Any:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise self._refuse(411, "a Content-Length is needed")
        if int(length) > receive.LARGEST_REQUEST:
            raise self._refuse(413, f"more than {receive.LARGEST_REQUEST} bytes")
        body = self.rfile.read(int(length))
        request = receive.REQUESTS[signal]()
        try:
            content = receive.decompressed(body, self.headers.get("Content-Encoding", ""))
            if kind == _PROTOBUF:
                request.ParseFromString(content)
            else:
                json_format.ParseDict(_with_base64(json.loads(content)), request, ignore_unknown_fields=True)
        except receive.TooLargeError as error:
            raise _Answer(413, str(error)) from error
        except (DecodeError, json_format.ParseError, ValueError, RecursionError) as error:
            raise _Answer(400, f"the body cannot be read: {error}") from error
        return request

    def _refuse(self, status: int, text: str) -> _Answer:
        """Return the answer to a request whose body is not read; nothing else can come over this connection."""
        self.close_connection = True
        return _Answer(status, text)

    def _say(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status == 503:
            self.send_header("Retry-After", _RETRY_AFTER_S)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's own name
        """Log nothing for each request."""


def _with_base64(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _id(item) if key in _HEX_FIELDS else _with_base64(item) for key, item in value.items()}
    return [_with_base64(item) for item in value] if isinstance(value, list) else value


def _id(text: str) -> str:
    return base64.b64encode(bytes.fromhex(text)).decode()
