"""A collector with prescribed answers to requests with log events, over HTTP and gRPC; it counts what it accepted."""

from __future__ import annotations

import contextlib
import email.utils
import gzip
import http.server
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse

_CODES = {400: "INVALID_ARGUMENT", 404: "UNIMPLEMENTED", 413: "RESOURCE_EXHAUSTED", 429: "RESOURCE_EXHAUSTED"}
_CODES |= {500: "INTERNAL", 502: "UNAVAILABLE", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}


class Say(NamedTuple):
    """An answer, in the words of HTTP."""

    status: int = 200  # its status; over gRPC the code that means the same
    message: str = ""  # what a `google.rpc.Status` or the partial success holds
    wait: float | None = None  # seconds that it asks to wait: `Retry-After`, or `RetryInfo` over gRPC
    as_date: bool = False  # if true, `Retry-After` is a date
    rejected: int = 0  # how many records it says that it did not take
    slow: float = 0  # seconds until it answers
    cut: bool = False  # if true, it reads the request and closes the connection
    keeps: bool = False  # if true, what it reads before it closes the connection counts as taken
    location: str = ""  # where it redirects to
    json: bool = False  # if true, the answer is in JSON
    page: bool = False  # if true, the answer is a web page


class Request(NamedTuple):
    """A request for log events."""

    at: float  # when it came, monotonic seconds
    steps: list[int]  # the steps of the rows in it
    headers: dict[str, str]  # its headers, names in lower case


class Misbehaving:
    """The common part of the servers of both protocols.

    Args:
        answers: What it says to the first requests; the others it takes.
        most: How many records a request may have; more is 413.

    Attributes:
        requests: Those for log events.
        taken: The steps of the rows that it took.
        endpoint: Its URL.
        others: The headers of the last request for each other signal.
        slow: Seconds until it answers those.
    """

    def __init__(self, answers: list[Say], most: int = 1 << 30) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.taken: list[int] = []
        self.endpoint = ""
        self.others: dict[str, dict[str, str]] = {}
        self.slow = 0.0
        self._most = most
        self._lock = threading.Lock()

    def hear(self, signal: str, headers: dict[str, str]) -> None:
        """Take a request for another signal than log events."""
        self.others[signal] = headers
        time.sleep(self.slow)

    def answer(self, request: ExportLogsServiceRequest, headers: dict[str, str]) -> Say:
        """Return what to say to a request."""
        records = [r for one in request.resource_logs for scope in one.scope_logs for r in scope.log_records]
        numbers = [
            attribute.value.int_value
            for record in records
            for attribute in record.attributes
            if attribute.key == "rl.loop.iteration"
        ]
        with self._lock:
            self.requests.append(Request(time.monotonic(), numbers, headers))
            say = self.answers.pop(0) if self.answers else Say()
            if len(records) > self._most:
                say = Say(413, "received message larger than max")
            if say.status == 200 and (say.keeps or not say.cut):
                self.taken += numbers[say.rejected :]
        time.sleep(say.slow)
        return say


@contextlib.contextmanager
def collector(
    protocol: str, *answers: Say, most: int = 1 << 30, tls: Path | None = None, mutual: bool = False
) -> Iterator[Misbehaving]:
    """Run one; `tls` is where `certificates` made its files."""
    behavior = Misbehaving(list(answers), most)
    serve = _grpc if protocol == "grpc" else _http
    with serve(behavior, tls, mutual=mutual) as port:
        behavior.endpoint = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        yield behavior


@contextlib.contextmanager
def _http(behavior: Misbehaving, tls: Path | None, *, mutual: bool) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path != "/v1/logs":
                signal = self.path.rpartition("/")[2].upper()
                behavior.hear(signal, {name.lower(): value for name, value in self.headers.items()})
                self._send(404 if self.path == "/v1/nowhere" else 200, b"", {})
                return
            request = ExportLogsServiceRequest()
            if self.headers["Content-Type"] == "application/json":
                json_format.Parse(body, request)
            else:
                request.ParseFromString(body)
            say = behavior.answer(request, {name.lower(): value for name, value in self.headers.items()})
            if say.cut:
                self.close_connection = True
                return
            headers = {"Location": say.location} if say.location else {}
            if say.wait is not None:
                when = email.utils.formatdate(time.time() + say.wait, usegmt=True)
                headers["Retry-After"] = when if say.as_date else f"{say.wait:g}"
            message: Any = Status(code=3, message=say.message)
            if say.status == 200:
                message = ExportLogsServiceResponse()
                message.partial_success.rejected_log_records = say.rejected
                message.partial_success.error_message = say.message
            headers["Content-Type"] = "application/json" if say.json else "application/x-protobuf"
            if say.page:
                headers["Content-Type"] = "text/html; charset=utf-8"
            encoded = json_format.MessageToJson(message).encode() if say.json else message.SerializeToString()
            self._send(say.status, encoded, headers)

        def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            with contextlib.suppress(OSError):  # the client may have given up
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Say nothing."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tls / "server.pem", tls / "server.key")
        if mutual:
            context.load_verify_locations(tls / "authority.pem")
            context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def _grpc(behavior: Misbehaving, tls: Path | None, *, mutual: bool) -> Iterator[int]:
    def export(request: ExportLogsServiceRequest, context: Any) -> ExportLogsServiceResponse:
        say = behavior.answer(request, dict(context.invocation_metadata()))
        if say.cut:
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        if say.status != 200:
            if say.wait is not None:
                delay = Duration(seconds=int(say.wait), nanos=int(say.wait % 1 * 1e9))
                status = Status(message=say.message)
                status.details.add().Pack(RetryInfo(retry_delay=delay))
                context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            context.abort(grpc.StatusCode[_CODES[say.status]], say.message)
        response = ExportLogsServiceResponse()
        response.partial_success.rejected_log_records = say.rejected
        response.partial_success.error_message = say.message
        return response

    server = grpc.server(ThreadPoolExecutor(8))
    handler = grpc.unary_unary_rpc_method_handler(
        export, ExportLogsServiceRequest.FromString, ExportLogsServiceResponse.SerializeToString
    )

    def other(signal: str) -> Any:
        def hear(_: bytes, context: Any) -> bytes:
            behavior.hear(signal, dict(context.invocation_metadata()))
            return b""

        return grpc.unary_unary_rpc_method_handler(hear)

    methods = {"logs.v1.Logs": handler, "trace.v1.Trace": other("TRACES"), "metrics.v1.Metrics": other("METRICS")}
    for service, method in methods.items():
        name = f"opentelemetry.proto.collector.{service}Service"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {"Export": method}),))
    if tls is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        pair = ((tls / "server.key").read_bytes(), (tls / "server.pem").read_bytes())
        authority = (tls / "authority.pem").read_bytes() if mutual else None
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair], authority, mutual))
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()


def certificates(directory: Path) -> Path:
    """Make an authority, and a certificate of it for a server and for a client; return where they are."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    for name in ("authority", "stranger"):
        openssl("req", "-x509", *new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name in ("server", "client"):
        openssl("req", *new[:-2], "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signed = ("-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial", "-days", "2")
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-extfile", "names", "-out", f"{name}.pem")
    return directory
