"""One OTLP request and its result: the answer of the server or the socket, and what the sender must do.

OpenTelemetry's own exporters retry within one call, ignore partial success, and return neither a cause nor the delay
that the server asked for. So otel-rl uses their encoders, and the two transports of this module.
"""

from __future__ import annotations

import base64
import email.utils
import gzip
import json
import os
import re
import ssl
import sys
import time
import zlib
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from otel_rl.recorder.errors.sinks import one_line
from otel_rl.recorder.errors.texts import type_of
from otel_rl.recorder.otlp import http_client
from otel_rl.recorder.otlp.signals import SERVICES, with_ids

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.message import Message

    from otel_rl.recorder.otlp.connection import Connection
    from otel_rl.recorder.otlp.signals import Service

_RETRIED_STATUSES = (429, 502, 503, 504)
_TOO_LARGE = 413
_RETRIED_CODES = ("CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS")
_LARGER = re.compile(r"larger than max|too large|message length", re.IGNORECASE)
"""The messages of gRPC servers (C++, Go, Java, Rust) about a request that is too large; there is no code for it."""
_SETTINGS_FRAME = re.compile("\0..\4", re.DOTALL)
"""The first bytes that a gRPC server sends on any connection, also to a client that speaks HTTP/1."""
_NO_SETTINGS_FRAME = re.compile(r"http1\.x server|Expected SETTINGS frame")
"""The messages of gRPC's own client about a server that speaks HTTP/1."""
_LARGE_RESPONSE = ("CLIENT: Received message larger", "Decompressed message larger")
"""The messages of gRPC's own client about a response that is too large. Servers say the second one about a request."""
_LONGEST_TEXT = 300
_USER_AGENT = (
    f"otel-rl/{version('otel-rl')} OTel-OTLP-Exporter-Python/{version('opentelemetry-exporter-otlp-proto-common')}"
)


class ServerAnswer(NamedTuple):
    """The result of a request."""

    verdict: Literal["taken", "later", "too_large", "never"]
    """One of "taken": accepted, maybe in part. "later": the same request can be retried. "too_large": a smaller request
    can be sent. "never": the request is refused.
    """
    message: str = ""  # the address and its message
    error_type: str = ""  # a status, or the type of an exception; `error.type` in metrics
    rejected: int = 0  # how many records of an accepted request were refused
    retry_after: float | None = None  # seconds that the server asked to wait; `None` if it did not


class Transport(Protocol):
    """Sends requests of one signal to one address."""

    def send(self, request: Message) -> ServerAnswer:
        """Send a request once, and return the answer."""

    def close(self) -> None:
        """Close the connection."""


def transport(connection: Connection) -> Transport:
    """Return the transport that a connection asks for."""
    if connection.protocol == "grpc":
        return GrpcTransport(connection)
    if connection.protocol == "stdout":
        return StdoutTransport()
    return HttpTransport(connection)


class HttpTransport:
    """OTLP/HTTP, in protobuf or JSON, over connections that are kept."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._json = connection.protocol == "http/json"
        self._service = SERVICES[connection.signal.lower()]
        self._session = http_client.session(
            connection.endpoint, authorities=connection.certificate, uses_proxies=connection.proxies
        )
        self._session.headers.update({"User-Agent": _USER_AGENT} | connection.headers)
        self._session.headers["Content-Type"] = "application/json" if self._json else "application/x-protobuf"
        self._session.headers["Accept-Encoding"] = "gzip"
        # One that OTEL_EXPORTER_OTLP_HEADERS brought would say what is not true of the body.
        self._session.headers.pop("Content-Encoding", None)
        if connection.compression != "none":
            self._session.headers["Content-Encoding"] = connection.compression
        if connection.client_certificate:
            self._session.cert = (connection.client_certificate, connection.client_key or connection.client_certificate)

    def send(self, request: Message) -> ServerAnswer:
        """Send a request once, and return the answer."""
        limit = self._connection.timeout
        body = _json(request).encode() if self._json else request.SerializeToString()
        try:
            data = _compressed(body, self._connection.compression)
            answered = http_client.send(self._session, self._connection.endpoint, data, within=limit)
            return self._answer(answered.status, answered.reason, answered.headers, answered.body)
        except OSError as error:
            cause = http_client.innermost(error)
            if limit is not None and (isinstance(cause, TimeoutError) or "Timeout" in type_of(cause)):
                return self._later(f"no answer within {limit:g} s (OTEL_EXPORTER_OTLP_TIMEOUT)", "timeout")
            if _SETTINGS_FRAME.match(getattr(cause, "line", "")):
                text = "this is a gRPC port: set OTEL_EXPORTER_OTLP_PROTOCOL=grpc, or use the HTTP port (4318)"
                return self._later(text, "not_http")
            return self._later(_said(cause), type_of(cause))

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _later(self, text: str, error_type: str) -> ServerAnswer:
        return ServerAnswer("later", f"{self._connection.address}: {text}", error_type)

    def _answer(self, status: int, reason: str, headers: Mapping[str, str], body: bytes) -> ServerAnswer:
        kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        address = self._connection.address
        if 200 <= status < 300 and kind == "text/html":  # the records went nowhere
            text = f"{address}: {status} with a web page instead of OTLP: check the endpoint"
            return ServerAnswer("never", text, "not_otlp")
        if 200 <= status < 300:
            return _taken(address, self._parse(kind, body), self._service.rejected)
        reason_given, asked = _status(kind, body)
        if status // 100 == 3:
            reason_given = f"redirected to {clean(headers.get('Location', 'nowhere'))}: set the endpoint to that"
        message = f"{address}: {status} {clean(reason)}" + (f": {reason_given}" if reason_given else "")
        if status == _TOO_LARGE:
            return ServerAnswer("too_large", message, str(status))
        if status not in _RETRIED_STATUSES:
            return ServerAnswer("never", message + _hint(self._connection, refused=status == 404), str(status))
        after = _retry_after(headers.get("Retry-After"), time.time())
        return ServerAnswer("later", message, str(status), retry_after=asked if after is None else after)

    def _parse(self, kind: str, body: bytes) -> Any:
        try:
            if kind == "application/json":
                return json_format.Parse(body, self._service.response(), ignore_unknown_fields=True)
        except (json_format.ParseError, UnicodeDecodeError, RecursionError):
            return self._service.response()
        return _decoded(self._service, body)


class GrpcTransport:
    """OTLP/gRPC over one channel, which reconnects by itself."""

    def __init__(self, connection: Connection) -> None:
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # it would write about every connection into the agent's log
        import grpc

        self._service = SERVICES[connection.signal.lower()]
        self._connection = connection
        self._address = f"grpc://{connection.endpoint}"
        options = [
            ("grpc.primary_user_agent", _USER_AGENT),
            ("grpc.initial_reconnect_backoff_ms", 250),
            ("grpc.min_reconnect_backoff_ms", 250),
            ("grpc.max_reconnect_backoff_ms", 5000),  # of 120 s by default: a server that is back would wait
            ("grpc.enable_http_proxy", int(connection.proxies)),
            ("grpc.enable_retries", 0),
        ]
        compression = grpc.Compression.Gzip if connection.compression == "gzip" else grpc.Compression.NoCompression
        if connection.secure:
            credentials = grpc.ssl_channel_credentials(
                _content(connection.certificate),
                _content(connection.client_key or connection.client_certificate),
                _content(connection.client_certificate),
            )
            self._channel = grpc.secure_channel(connection.endpoint, credentials, options, compression)
        else:
            self._channel = grpc.insecure_channel(connection.endpoint, options, compression)
        self._call = self._channel.unary_unary(
            f"/opentelemetry.proto.collector.{self._service.name}/Export",
            request_serializer=lambda request: request.SerializeToString(),
            # A deserializer that raises makes gRPC log a traceback, and fail a call whose records were accepted
            # (tests/security/test_collector.py).
            response_deserializer=lambda body: _decoded(self._service, body),
        )

    def send(self, request: Message) -> ServerAnswer:
        """Send a request once, and return the answer."""
        import grpc

        metadata = tuple(self._connection.headers.items())
        try:
            response = self._call(request, timeout=self._connection.timeout, metadata=metadata)
        except grpc.RpcError as error:
            return self._failed(error)
        return _taken(self._address, response, self._service.rejected)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def _failed(self, error: Any) -> ServerAnswer:
        code, details = error.code().name, clean(error.details() or "")
        packed = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
        _, asked = _status("application/x-protobuf", packed)
        message = f"{self._address}: {code}" + (f": {details}" if details else "")
        if code == "DEADLINE_EXCEEDED" and self._connection.timeout is not None:
            message += f" (OTEL_EXPORTER_OTLP_TIMEOUT is {self._connection.timeout:g} s)"
        if _NO_SETTINGS_FRAME.search(details):
            text = "this is an HTTP port: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, or use the gRPC port (4317)"
            message = f"{self._address}: {text}"
        if code == "RESOURCE_EXHAUSTED" and self._is_of_response(details):  # the server took the request and answered
            return ServerAnswer("taken", f"{self._address}: its response was too large to be read", "partial_success")
        if code in ("RESOURCE_EXHAUSTED", "OUT_OF_RANGE") and asked is None and _LARGER.search(details):
            return ServerAnswer("too_large", message, code)
        # OTLP: RESOURCE_EXHAUSTED is retried only if the server sends RetryInfo; else it is full for good.
        if code in _RETRIED_CODES or (code == "RESOURCE_EXHAUSTED" and asked is not None):
            return ServerAnswer("later", message, code, retry_after=asked)
        return ServerAnswer("never", message + _hint(self._connection, refused=code == "UNIMPLEMENTED"), code)

    def _is_of_response(self, details: str) -> bool:
        of_client, of_either = _LARGE_RESPONSE
        return of_client in details or (of_either in details and self._connection.compression == "none")


class StdoutTransport:
    """OTLP in JSON, a request per line, on standard output."""

    def send(self, request: Message) -> ServerAnswer:
        """Print a request. After the reader of standard output has closed it, requests are refused."""
        try:
            sys.stdout.write(f"{_json(request)}\n")  # at once: exporters of other signals write too
            sys.stdout.flush()
        except BrokenPipeError:
            return ServerAnswer("never", "standard output is closed", "refused")
        return ServerAnswer("taken")

    def close(self) -> None:
        """Do nothing: others use standard output too."""


def clean(text: str) -> str:
    """Return a foreign message as one short line without control characters."""
    line = one_line(" ".join(text.split()))
    return line if len(line) <= _LONGEST_TEXT else line[:_LONGEST_TEXT] + "…"


def _decoded(service: Service, body: bytes) -> Any:
    """Return the response of a server that accepted a request; an empty one if it is not OTLP."""
    try:
        return service.response.FromString(body)
    except DecodeError:
        return service.response()


def _taken(address: str, response: Any, rejected: str) -> ServerAnswer:
    partial = response.partial_success
    # The field is signed, and a hostile collector sends a negative count (tests/security/test_collector.py).
    count = max(0, getattr(partial, rejected))
    if not count and not partial.error_message:
        return ServerAnswer("taken")
    reason = clean(partial.error_message) or "no reason given"
    return ServerAnswer(
        "taken", f"{address}: " + (f"rejected {count}: {reason}" if count else reason), "partial_success", count
    )


def _status(kind: str, body: bytes) -> tuple[str, float | None]:
    """Return the message of a `google.rpc.Status` and the pause that it asks for; of anything else, its text."""
    status = status_pb2.Status()
    try:
        if kind == "application/json":
            fields = json.loads(body)
            delays = [
                detail["retryDelay"] for detail in fields.get("details", ()) if "RetryInfo" in detail.get("@type", "")
            ]
            seconds = [float(text[:-1]) for text in delays if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?s", text)]
            return clean(str(fields.get("message", ""))), seconds[0] if seconds else None
        if kind in ("application/x-protobuf", "application/protobuf"):
            status.ParseFromString(body)
            return clean(status.message), _retry_info(status)
    except (DecodeError, ValueError, AttributeError, TypeError, KeyError, RecursionError):
        pass
    return ("" if "html" in kind else clean(body[:4096].decode("utf-8", "replace"))), None


def _retry_info(status: status_pb2.Status) -> float | None:
    for detail in status.details:
        info = error_details_pb2.RetryInfo()
        if detail.Is(info.DESCRIPTOR) and detail.Unpack(info):
            return max(0.0, float(info.retry_delay.seconds + info.retry_delay.nanos / 1e9))
    return None


def _retry_after(text: str | None, now: float) -> float | None:
    """Return the seconds in a `Retry-After`, which holds seconds or a date; `None` if it holds neither."""
    if not text:
        return None
    if re.fullmatch(r"\s*[0-9]{1,9}\s*", text):
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (TypeError, ValueError, OverflowError):
        return None


def _hint(connection: Connection, *, refused: bool) -> str:
    return f" (if it takes no {connection.signal.lower()}: OTEL_{connection.signal}_EXPORTER=none)" if refused else ""


def _compressed(body: bytes, compression: str) -> bytes:
    if compression == "gzip":
        return gzip.compress(body, 6)
    return zlib.compress(body) if compression == "deflate" else body


def _said(error: BaseException) -> str:
    verify = getattr(error, "verify_message", "")
    if verify:
        return f"the certificate of the server is not trusted: {clean(verify)} (OTEL_EXPORTER_OTLP_CERTIFICATE)"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {clean(str(error))} (OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE, if the server asks for one)"
    if isinstance(error, OSError) and error.strerror:
        return clean(error.strerror)
    return clean(str(error)) or type(error).__name__


def _content(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None


def _json(request: Message) -> str:
    fields = json_format.MessageToDict(request, use_integers_for_enums=True)
    return json.dumps(with_ids(fields, lambda id_: base64.b64decode(id_).hex()), separators=(",", ":"))
