"""The HTTP server of bridge and head: what any client of OTLP may send, and what it must not."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import logging
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.rpc.status_pb2 import Status

from otel_rl.recorder.otlp import site
from otel_rl.recorder.otlp.answers import RefusalCounter, response
from otel_rl.recorder.settings.tokens import Tokens
from otel_rl.serve.bridge import bodies
from otel_rl.serve.bridge import http as otlp
from otel_rl.serve.bridge.http import HttpServer
from tests.collector import wait_for
from tests.faults.misbehaving import certificates
from tests.real_parts import needs_program
from tests.serve.bridge.bridges import BODY, ask, raw

pytestmark = pytest.mark.timeout(60)
PROTOBUF = {"Content-Type": "application/x-protobuf"}


class Taken:
    """A sink that keeps requests, and fails on demand.

    Attributes:
        requests: What came.
        error: What it raises.
        gate: It waits for it.
    """

    def __init__(self) -> None:
        self.refusals = RefusalCounter()
        self.requests: list[Any] = []
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def handle(self, signal: str, request: Any, peer: str = "") -> Any:
        self.gate.wait(30)
        if self.error is not None:
            raise self.error
        self.requests.append(request)
        return response(signal, 0, "", self.refusals)


@pytest.fixture
def sink() -> Taken:
    return Taken()


@pytest.fixture
def server(sink: Taken) -> Iterator[HttpServer]:
    server = HttpServer(("127.0.0.1", 0), sink)
    yield server
    sink.gate.set()
    server.close()


def test_chunked(server: HttpServer, sink: Taken) -> None:
    """As JavaScript's exporters send always, and Go's and Java's with gzip."""
    pieces = iter([BODY[:10], BODY[10:]])
    answer, content = ask(server.port, pieces, Transfer_Encoding="chunked")

    assert (answer.status, answer.getheader("Content-Type")) == (200, "application/x-protobuf")
    assert (content, answer.getheader("Content-Length")) == (b"", "0")  # an empty response message
    assert [request.SerializeToString() for request in sink.requests] == [BODY]


def test_a_connection_is_kept(server: HttpServer, sink: Taken) -> None:
    """Over one connection as many requests as there are, refused ones among them."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    statuses = []
    for path in ("/v1/logs", "/v1/unknown", "/v1/logs"):
        connection.request("POST", path, BODY, PROTOBUF)
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
        assert connection.sock is not None
    connection.close()

    assert statuses == [200, 404, 200]
    assert len(sink.requests) == 2


def test_expect_continue(server: HttpServer, sink: Taken) -> None:
    """Curl waits for it before it sends a larger body."""
    head = (
        b"POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\nExpect: 100-continue\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(head + f"Content-Length: {len(BODY)}\r\n\r\n".encode())
        first = connection.recv(100)
        connection.sendall(BODY)
        answer = connection.recv(1000)

    assert first.startswith(b"HTTP/1.1 100")
    assert answer.startswith(b"HTTP/1.1 200")
    assert len(sink.requests) == 1


def test_a_refused_body_is_not_asked_for(server: HttpServer) -> None:
    """A client that expects 100-continue gets the error at once, and the connection is closed."""
    told = b"POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nExpect: 100-continue\r\n"
    answer = raw(server.port, told + b"Content-Length: 1000\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 415")
    assert b"Connection: close" in answer


@pytest.mark.parametrize("path", ["/v1/logs/", "/v1/logs?key=value", "/v1/logs/?a=b#c", "http://localhost/v1/logs?a=b"])
def test_slashes_and_queries(path: str, server: HttpServer) -> None:
    """A path with a slash at its end, or with a query as gateways add them, or the whole URL, is the same path."""
    assert ask(server.port, path=path)[0].status == 200


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND"])
def test_other_methods(method: str, server: HttpServer) -> None:
    """They get 405 and which one there is."""
    answer, body = ask(server.port, b"", method=method)

    assert (answer.status, answer.getheader("Allow")) == (405, "POST")
    assert "use POST" in Status.FromString(body).message


@pytest.mark.parametrize(
    ("address", "client"), [("[::1]", "::1"), ("::1", "::1"), ("[::]", "::1"), ("[::]", "127.0.0.1")]
)
def test_ipv6(address: str, client: str, sink: Taken) -> None:
    """Loopback; and all addresses, which are those of IPv4 too."""
    try:
        server = HttpServer((address, 0), sink)
    except OSError:
        pytest.skip("this machine has no IPv6")
    connection = http.client.HTTPConnection(client, server.port, timeout=10)
    connection.request("POST", "/v1/logs", BODY, PROTOBUF)
    status = connection.getresponse().status
    connection.close()
    server.close()

    assert status == 200


@pytest.mark.parametrize(
    ("kind", "encoding", "body"),
    [
        ("Application/X-Protobuf", "GZIP", gzip.compress(BODY)),
        ("application/x-protobuf; proto=1", "x-gzip", gzip.compress(BODY)),
        ("APPLICATION/X-PROTOBUF", "zlib", zlib.compress(BODY)),
        ("application/x-protobuf", "Identity", BODY),
    ],
)
def test_names_of_types_and_encodings(kind: str, encoding: str, body: bytes, server: HttpServer) -> None:
    """They are known in any case, with parameters, and by their aliases."""
    assert ask(server.port, body, Content_Type=kind, Content_Encoding=encoding)[0].status == 200


def test_json_with_a_charset(server: HttpServer) -> None:
    """It is answered in JSON, as OTLP has it."""
    answer, body = ask(server.port, b"{}", Content_Type="application/json; charset=UTF-8")

    assert (answer.status, answer.getheader("Content-Type"), body) == (200, "application/json", b"{}")


def test_unknown_types_and_encodings(server: HttpServer) -> None:
    """415, with the list of those that are accepted, in the header and in words."""
    by_type, typed = ask(server.port, Content_Type="text/plain")
    by_encoding, encoded = ask(server.port, Content_Encoding="br")

    assert (by_type.status, by_encoding.status) == (415, 415)
    assert by_type.getheader("Accept-Post") == "application/x-protobuf, application/json"
    assert str(by_encoding.getheader("Accept-Encoding")).startswith("gzip, deflate")
    assert "application/x-protobuf or application/json" in json.loads(typed)["message"]
    assert "gzip" in Status.FromString(encoded).message


@pytest.mark.parametrize("kind", ["application/x-protobuf", "application/json"])
def test_errors_are_a_status_in_the_type_of_the_request(kind: str, server: HttpServer) -> None:
    """The client logs what is wrong."""
    answer, body = ask(server.port, b"\xff\xff", Content_Type=kind)
    message = Status.FromString(body).message if kind.endswith("protobuf") else json.loads(body)["message"]

    assert (answer.status, answer.getheader("Content-Type")) == (400, kind)
    assert "not a valid ExportLogsServiceRequest" in message


def test_not_now(server: HttpServer, sink: Taken) -> None:
    """503 with the seconds after which to come again, in the header and in the status."""
    sink.error = OSError("the disk is full")
    answer, body = ask(server.port)
    status = Status.FromString(body)

    assert (answer.status, answer.getheader("Retry-After"), status.code) == (503, "5", 14)
    assert "the disk is full" in status.message
    assert status.details[0].type_url.endswith("google.rpc.RetryInfo")


def test_a_fault_of_the_receiver(server: HttpServer, sink: Taken) -> None:
    """500, without its inner life; and it goes on."""
    sink.error = KeyError("secret")
    answer, body = ask(server.port)
    sink.error = None

    assert (answer.status, Status.FromString(body).code) == (500, 13)
    assert b"secret" not in body
    assert ask(server.port)[0].status == 200


def test_too_much(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a length and chunked, compressed and decompressed: 413, which the client gets to read."""
    monkeypatch.setattr(bodies, "LARGEST", 1 << 20)
    large = b"\0" * (3 << 20)
    pieces = iter([large[: 1 << 20]] * 3)
    answers = [
        ask(server.port, large),
        ask(server.port, pieces, Transfer_Encoding="chunked"),
        ask(server.port, gzip.compress(large), Content_Encoding="gzip"),
    ]

    assert [answer.status for answer, _ in answers] == [413] * 3
    assert all("send less at once" in Status.FromString(body).message for _, body in answers)


def test_a_body_without_the_token_is_not_kept(sink: Taken) -> None:
    """It is answered before it has been received, or read and thrown away."""
    server = HttpServer(("127.0.0.1", 0), sink, Tokens("right" * 4))
    head = f"POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nContent-Type: {PROTOBUF['Content-Type']}\r\n"
    for token in ("", "Authorization: Bearer wrongwrongwrong\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
            connection.sendall(f"{head}{token}Content-Length: 2000000\r\n\r\n".encode() + bytes(1_000_000))
            held = server.held
            connection.sendall(bytes(1_000_000))
            assert connection.recv(100).startswith(b"HTTP/1.1 401")
        assert held == 0
    server.close()


def test_too_much_at_once(server: HttpServer, sink: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the bodies that are received and handled have the largest size, others are asked to retry later."""
    monkeypatch.setattr(server._serving.visitors, "_most_held", len(BODY) * 3 // 2)
    sink.gate.clear()
    first = threading.Thread(target=ask, args=(server.port,))
    first.start()
    wait_for(lambda: server.requests == 1, "the request does not come in")
    answer, body = ask(server.port)
    sink.gate.set()
    first.join()

    assert (answer.status, answer.getheader("Retry-After")) == (503, "5")
    assert "being received" in Status.FromString(body).message
    assert ask(server.port)[0].status == 200


def test_a_body_without_an_end(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is closed when more was sent than is ever read."""
    monkeypatch.setattr(bodies, "LARGEST", 1 << 20)
    monkeypatch.setattr(site, "_MOST_DRAINED", 2 << 20)
    piece = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    sent = 0
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(b"POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n")
        connection.sendall(b"Content-Type: application/x-protobuf\r\n\r\n")
        with contextlib.suppress(OSError):
            while sent < 100:
                connection.sendall(piece)
                sent += 1

    assert sent < 100
    assert server.held == 0


def test_slow_clients_are_let_go(sink: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sends a byte from time to time holds a connection for a limited time; others are served meanwhile."""
    monkeypatch.setattr(otlp, "_IDLE_S", 1.0)
    monkeypatch.setattr(otlp, "_BODY_S", 1.0)
    server = HttpServer(("127.0.0.1", 0), sink)
    beginnings = [b"", b"POST /v1/logs HTTP/1.1\r\n", b"POST /v1/logs HTTP/1.1\r\nContent-Length: 900\r\n\r\n"]
    slow = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(60)]
    for n, connection in enumerate(slow):
        connection.sendall(beginnings[n % 3])
    served = ask(server.port)[0].status
    deadline = time.monotonic() + 10
    while slow and time.monotonic() < deadline:
        time.sleep(0.2)
        for connection in slow.copy():
            try:
                connection.sendall(b"X")
            except OSError:
                slow.remove(connection)
    server.close()

    assert served == 200
    assert slow == []


def test_a_waiting_sink_blocks_nobody(server: HttpServer, sink: Taken) -> None:
    """While the sink waits, invalid requests still get their errors; when it continues, all get responses."""
    sink.gate.clear()
    statuses: list[int] = []
    threads = [threading.Thread(target=lambda: statuses.append(ask(server.port)[0].status)) for _ in range(40)]
    for thread in threads:
        thread.start()
    wait_for(lambda: server.requests == 40, "requests do not come in")
    meanwhile = ask(server.port, path="/")[0].status
    sink.gate.set()
    for thread in threads:
        thread.join()

    assert meanwhile == 404
    assert statuses == [200] * 40


def test_connections_have_a_limit(sink: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    """One address may have a quarter; more are closed at once, because without descriptors nobody could be served."""
    monkeypatch.setattr(otlp, "_MOST_CONNECTIONS", 20)
    server = HttpServer(("127.0.0.1", 0), sink)
    held = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(5)]
    time.sleep(0.2)
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as further:
        closed = further.recv(1) == b""
    for connection in held:
        connection.close()
    wait_for(lambda: _is_served(server), "nobody is served any more")
    server.close()

    assert closed


@needs_program("openssl")
def test_a_handshake_that_never_ends(sink: Taken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that connects to an encrypted port and says nothing, or speaks no TLS, is let go."""
    monkeypatch.setattr(otlp, "_IDLE_S", 1.0)
    made = certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made / "server.pem", made / "server.key")
    server = HttpServer(("127.0.0.1", 0), sink, None, context)
    silent = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    ended = [silent.recv(1), raw(server.port, b"POST /v1/logs HTTP/1.1\r\n\r\n")]
    silent.close()
    server.close()

    assert ended[0] == b""
    assert not ended[1].startswith(b"HTTP")


def test_clients_that_leave_hold_nothing(server: HttpServer, sink: Taken) -> None:
    """A body that ends too early, and one whose sender does not wait for the answer."""
    head = f"POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nContent-Type: {PROTOBUF['Content-Type']}\r\n"
    for length in (len(BODY) + 100, len(BODY)):
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
            connection.sendall(f"{head}Content-Length: {length}\r\n\r\n".encode() + BODY)
    wait_for(lambda: server.held == 0 and server.requests == 0, "something is held")

    assert ask(server.port)[0].status == 200
    assert len(sink.requests) == 2


def test_a_closed_server_answers_what_has_come(sink: Taken) -> None:
    """A request that waits for the sink is answered before the connection is closed."""
    server = HttpServer(("127.0.0.1", 0), sink)
    sink.gate.clear()
    statuses: list[int] = []
    asking = threading.Thread(target=lambda: statuses.append(ask(server.port)[0].status))
    asking.start()
    wait_for(lambda: server.requests == 1, "the request does not come in")
    closing = threading.Thread(target=server.close)
    closing.start()
    time.sleep(0.2)
    sink.gate.set()
    asking.join()
    closing.join()

    assert statuses == [200]
    with pytest.raises(OSError):  # noqa: PT011 - refused
        socket.create_connection(("127.0.0.1", server.port), timeout=1)


def _is_served(server: HttpServer) -> bool:
    try:
        return ask(server.port)[0].status == 200
    except OSError:
        return False


def test_a_client_that_speaks_grpc_is_told_once(sink: Taken, caplog: pytest.LogCaptureFixture) -> None:
    """It tries again and again: the log has the first and the tenth attempt, with the fix."""
    server = HttpServer(("127.0.0.1", 0), sink)
    with caplog.at_level(logging.WARNING):
        for _ in range(12):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                while client.recv(1 << 16):
                    pass
    server.close()

    assert [message.count("http/protobuf") for message in caplog.messages] == [1, 1]
