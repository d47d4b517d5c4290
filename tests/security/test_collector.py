"""A compromised collector: hostile responses to the agent's OTLP requests, over real sockets."""

from __future__ import annotations

import gzip
import json
import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse

from otel_rl.export import NotNow
from otel_rl.recorder.delivery import exporter_thread
from otel_rl.recorder.otlp.connection import Connection
from otel_rl_exporters.otlp_sender import Sender
from otel_rl_exporters.otlp_transport import GrpcTransport, HttpTransport, ServerAnswer
from tests.raw_server import RawServer
from tests.security.hostile import CONTROLS, NAMES

_TOKEN = "Bearer t0ken"
_UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.absolute_max_metadata_size", 1 << 26)]


def http(body: bytes, kind: str = "application/x-protobuf", status: str = "200 OK", **headers: str) -> bytes:
    """Return a response."""
    told = {"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close"}
    told |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode("latin-1") + body


def send(url: str, timeout: float = 5.0) -> ServerAnswer:
    """Send a request with a token, and return the answer."""
    connection = Connection(
        signal="LOGS", endpoint=url, secure=False, headers={"Authorization": _TOKEN}, timeout=timeout
    )
    transport = HttpTransport(connection)
    try:
        return transport.send(ExportLogsServiceRequest())
    finally:
        transport.close()


@contextmanager
def calling(
    answer: Callable[[Any, Any], bytes], compression: grpc.Compression | None = None
) -> Iterator[tuple[GrpcTransport, list[bytes]]]:
    """Yield a transport to a gRPC server that answers with a function, and the requests of that server."""
    requests: list[bytes] = []

    def heard(request: bytes, context: Any) -> bytes:
        requests.append(request)
        return answer(request, context)

    server = grpc.server(ThreadPoolExecutor(1), compression=compression, options=_UNLIMITED)
    method = {"Export": grpc.unary_unary_rpc_method_handler(heard)}
    service = grpc.method_handlers_generic_handler("opentelemetry.proto.collector.logs.v1.LogsService", method)
    server.add_generic_rpc_handlers((service,))
    endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    transport = GrpcTransport(
        Connection(signal="LOGS", endpoint=endpoint, secure=False, headers={}, timeout=20, protocol="grpc")
    )
    try:
        yield transport, requests
    finally:
        transport.close()
        server.stop(0).wait()


def refusing(code: str, text: str, **details: Any) -> Callable[[Any, Any], bytes]:
    """Return an answer with a status, and trailing metadata."""

    def answer(_: Any, context: Any) -> bytes:
        context.set_trailing_metadata(tuple((name.replace("_", "-"), value) for name, value in details.items()))
        context.abort(grpc.StatusCode[code], text)
        raise AssertionError

    return answer


def test_a_redirect_gets_no_token() -> None:
    """The other host gets no request at all, and the answer says where it was."""
    for status in ("301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"):
        with RawServer(http(b"")) as other, RawServer(http(b"", status=status, Location=other.url)) as first:
            answer = send(first.url)

            assert other.requests == []
            assert _TOKEN.encode() in first.requests[0]
            assert answer.verdict == "never"
            assert other.url in answer.message


@pytest.mark.parametrize("kind", ["application/x-protobuf", "application/json", "text/plain"])
@pytest.mark.parametrize("status", ["200 OK", "503 Service Unavailable", "400 Bad Request"])
def test_a_bomb_is_not_inflated(kind: str, status: str) -> None:
    """A response of 256 MiB in 1 MiB of gzip takes a few MiB of memory."""
    _bomb()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with RawServer(http(_bomb(), kind, status, Content_Encoding="gzip")) as server:
        answer = send(server.url, timeout=60)

    assert answer.verdict == {"2": "taken", "5": "later", "4": "never"}[status[0]]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 << 10
    assert len(answer.message) < 1000


def test_an_answer_that_never_ends_is_left() -> None:
    """It is read up to its limit."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n\r\n"
    with RawServer(head, endless=bytes(1 << 16)) as server:
        assert send(server.url).verdict == "taken"


def test_an_answer_that_drips_is_left() -> None:
    """The timeout of a request holds for the whole of it, however often a byte arrives."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 1000000\r\n\r\n"
    with RawServer(head, endless=b"\x00", pause=0.02) as server:
        answer = send(server.url, timeout=0.5)

    assert (answer.verdict, answer.error_type) == ("later", "timeout")


@pytest.mark.parametrize("kind", ["application/x-protobuf", "application/json", "text/plain"])
def test_hostile_texts_are_one_short_line(kind: str) -> None:
    """Neither a partial success, nor a status, nor a plain text can forge a line of the log or steer a terminal."""
    encoders: dict[str, Callable[[str], bytes]] = {
        "application/x-protobuf": lambda text: _partial(text).SerializeToString(),
        "application/json": lambda text: json.dumps(
            {"partialSuccess": {"errorMessage": text}, "message": text}
        ).encode(),
        "text/plain": lambda text: text.encode(),
    }
    for name in NAMES:
        for status in ("200 OK", "400 Bad Request"):
            with RawServer(http(encoders[kind](name), kind, status)) as server:
                answer = send(server.url)
            assert not CONTROLS & set(answer.message)
            assert len(answer.message) < 600


@pytest.mark.parametrize("count", [-1, -(2**63), 2**63 - 1])
def test_a_count_of_refused_records_is_a_count(count: int) -> None:
    """A negative one is none."""
    body = _partial("no", count).SerializeToString()
    with RawServer(http(body)) as server:
        assert send(server.url).rejected == max(0, count)


@pytest.mark.parametrize("body", [b"[" * 1_000_000, b'{"a":' * 1_000_000, b"\xff" * 1000, b"", b"\x08" * 1_000_000])
@pytest.mark.parametrize("kind", ["application/x-protobuf", "application/json"])
@pytest.mark.parametrize("status", ["200 OK", "500 Internal Server Error"])
def test_nonsense_is_an_answer(body: bytes, kind: str, status: str) -> None:
    """A body that is not OTLP raises nothing; its status counts."""
    with RawServer(http(body, kind, status)) as server:
        assert send(server.url).verdict == ("taken" if status.startswith("200") else "never")


def test_headers_that_never_end_are_an_error() -> None:
    """The client reads 100 headers at most."""
    with RawServer(b"HTTP/1.1 200 OK\r\n", endless=b"X: " + b"x" * 1000 + b"\r\n") as server:
        assert send(server.url).verdict == "later"


@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip], ids=["plain", "gzip"])
def test_a_huge_message_over_grpc_is_not_read(compression: grpc.Compression | None) -> None:
    """The records are sent once: after a response of 32 MiB they are not sent again in smaller requests."""
    with calling(lambda *_: bytes(32 << 20), compression) as (transport, requests):
        sender = Sender(transport, lambda records: ExportLogsServiceRequest())
        sender.send([(number, b"") for number in range(8)], 8)
        answer = transport.send(ExportLogsServiceRequest())

    assert (len(requests), answer.verdict, answer.rejected) == (2, "taken", 0)
    assert "too large" in answer.message


def test_nonsense_over_grpc_is_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    """A response that is not OTLP has the status OK, so the records were accepted; gRPC logs no traceback."""
    for body in (b"\xff" * 1000, b"\x08" * 1_000_000, b"[" * 1000):
        with calling(lambda *_, body=body: body) as (transport, _):
            assert transport.send(ExportLogsServiceRequest()).verdict == "taken"
    assert caplog.text == ""


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"])
def test_hostile_texts_over_grpc_are_one_short_line(code: str) -> None:
    """Neither the text of a status nor a partial success can forge a line of the log or steer a terminal."""
    texts = iter(NAMES * 2)

    def refuse(request: Any, context: Any) -> bytes:
        return refusing(code, next(texts))(request, context)

    with calling(refuse) as (refused, _):
        answers = [refused.send(ExportLogsServiceRequest()) for _ in NAMES]
    with calling(lambda *_: _partial(next(texts)).SerializeToString()) as (taken, _):
        answers += [taken.send(ExportLogsServiceRequest()) for _ in NAMES]

    assert [answer.message for answer in answers if CONTROLS & set(answer.message) or len(answer.message) > 600] == []


@pytest.mark.parametrize(
    "answer",
    [
        refusing("UNAVAILABLE", "no", x="y" * (4 << 20)),
        refusing("UNAVAILABLE", "no", **{f"k{n}": "v" for n in range(1000)}),
        refusing("UNAVAILABLE", "n" * (1 << 20)),
        refusing("UNAVAILABLE", "no", grpc_status_details_bin=bytes(4 << 20)),
    ],
    ids=["a value", "names", "text", "details"],
)
def test_huge_metadata_are_an_error(answer: Callable[[Any, Any], bytes]) -> None:
    """They are refused by gRPC at 16 KiB; the message is short."""
    with calling(answer) as (transport, _):
        found = transport.send(ExportLogsServiceRequest())

    assert (found.verdict, found.error_type) == ("never", "RESOURCE_EXHAUSTED")
    assert len(found.message) < 600


@pytest.mark.parametrize("seconds", [315_360_000, 2**63 - 1, -(2**63)], ids=["10 years", "most", "least"])
@pytest.mark.parametrize("code", ["UNAVAILABLE", "RESOURCE_EXHAUSTED"])
def test_a_pause_is_an_hour_at_most(seconds: int, code: str) -> None:
    """`RetryInfo` of 10 years, a hundred times in one status, delays a retry by an hour, with 10 % of jitter."""
    status = Status(message="later")
    for _ in range(100):
        delay = RetryInfo()
        delay.retry_delay.seconds = seconds
        status.details.add().Pack(delay)
    with calling(refusing(code, "later", grpc_status_details_bin=status.SerializeToString())) as (transport, _):
        answer = transport.send(ExportLogsServiceRequest())

    assert answer.verdict == "later"
    assert 0 <= exporter_thread._asked(NotNow("", retry_after=answer.retry_after)) <= 3960


@cache
def _bomb() -> bytes:
    return gzip.compress(bytes(256 << 20), 1)


def _partial(text: str, count: int = 0) -> ExportLogsServiceResponse:
    response = ExportLogsServiceResponse()
    response.partial_success.error_message = text
    response.partial_success.rejected_log_records = count
    return response
