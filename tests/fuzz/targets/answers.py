"""Answers of a hostile server to an exporter of OTLP."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from google.rpc import error_details_pb2, status_pb2

from otel_rl.recorder.otlp.connection import Connection
from otel_rl_exporters.otlp_transport import HttpTransport
from tests.fuzz import samples
from tests.fuzz.oracle import Broken
from tests.fuzz.targets import Target
from tests.raw_server import RawServer

if TYPE_CHECKING:
    from pathlib import Path

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_VERDICTS = ("taken", "later", "too_large", "never")


class Answers(Target):
    """The response of a server as bytes on the socket: the exporter returns an answer whose fields are sane.

    The first byte chooses between protobuf and JSON.
    """

    is_contained = False  # `requests` imports encodings on demand

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = RawServer()
        where = {"signal": "LOGS", "secure": False, "proxies": False, "timeout": 5.0}
        self._http = [
            HttpTransport(Connection(endpoint=self._server.url, protocol=protocol, **where))  # type: ignore[arg-type]
            for protocol in ("http/protobuf", "http/json")
        ]
        self._request = samples.log_events()

    def seeds(self) -> list[bytes]:
        info = error_details_pb2.RetryInfo()
        info.retry_delay.seconds = 7
        status = status_pb2.Status(code=14, message="full")
        status.details.add().Pack(info)
        packed = status.SerializeToString()
        detail = b'{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7s"}'
        text = b'{"code":14,"message":"full","details":[%s]}' % detail
        partial = b'{"partialSuccess":{"rejectedLogRecords":"1","errorMessage":"no"}}'
        heads = [
            b"HTTP/1.1 %s\r\n" % line
            for line in (b"200 OK", b"503 No", b"413 Large", b"429 Many", b"307 There", b"404 N")
        ]
        tails = [
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text),
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(partial), partial),
            b"Content-Type: application/x-protobuf\r\nRetry-After: 3\r\nContent-Length: %d\r\n\r\n%s"
            % (len(packed), packed),
            b"Retry-After: Wed, 21 Oct 2099 07:28:00 GMT\r\nLocation: http://x/\r\n\r\n",
            b"Content-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            b"Content-Encoding: gzip\r\nContent-Type: application/json\r\n\r\n" + samples.compressed("gzip", text),
        ]
        return [*(bytes([kind]) + head + tail for kind in (0, 1) for head in heads for tail in tails)]

    def check(self, data: bytes) -> None:
        if len(data) < 2:
            return
        self._server.answer = data[1:]
        self._server.requests.clear()
        found = self._http[data[0] & 1].send(self._request)
        if found.verdict not in _VERDICTS or found.rejected < 0 or _CONTROLS.search(found.message):
            raise Broken(f"invalid answer {found}")
        if found.retry_after is not None and not 0 <= found.retry_after < float("inf"):
            raise Broken(f"invalid pause {found.retry_after}")

    def close(self) -> None:
        self._server.close()
        for transport in self._http:
            transport.close()
