"""A proxy in front of a server of HTTP, with TLS of its own, and faults that tests switch on and off."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, get_args

from tests.certificates import BadCertificate, Certificates

Fault = int | Literal["", "refused", "hangs", "lost", "no name"] | BadCertificate
"""A status that each request is answered with; no connection; no answer; an answer that is lost after the server has
stored; a name that does not resolve; a bad certificate; none."""
ANSWERS: tuple[Fault, ...] = (401, 403, 404, 409, 429, 500, 503, "refused", "lost", "hangs")
CERTIFICATES: tuple[Fault, ...] = get_args(BadCertificate)
_PER_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "te", "upgrade", "host"}


class FaultyProxy:
    """Forwards each request to a server, unless there is a fault.

    Attributes:
        fault: The present fault.
        hits: Number of requests that a fault has met.
        replaced: Is set when another fault is switched on.
        log: Method, path and status of each request; status 0 if it got no answer.
    """

    def __init__(
        self,
        server: str,
        host: str = "127.0.0.1",
        certificates: Certificates | None = None,
        resolve: Callable[[bool], None] | None = None,
    ) -> None:
        self.upstream = server.removeprefix("http://").rstrip("/")
        self.fault: Fault = ""
        self.hits = 0
        self.replaced = threading.Event()
        self.log: list[tuple[str, str, int]] = []
        self._host, self._certificates, self._resolve = host, certificates, resolve
        self._reserved = socket.socket()  # keeps the port while nothing listens, and refuses connections
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self._port: int = self._reserved.getsockname()[1]
        self._listener: _Listener | None = None
        self._listen()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http{'s' if self._certificates else ''}://{self._host}:{self._port}"

    @property
    def context(self) -> ssl.SSLContext | None:
        """The TLS of the next connection, if there is TLS."""
        if self._certificates is None:
            return None
        contexts: dict[Any, ssl.SSLContext] = self._certificates.contexts
        return contexts.get(self.fault, contexts[""])

    def set(self, fault: Fault) -> None:
        """Switch to a fault, or to none."""
        if (fault == "refused") != (self.fault == "refused"):
            self._listen() if self.fault == "refused" else self._close()
        if self._resolve is not None:
            self._resolve(fault != "no name")
        self.fault = fault
        self.hits = 0
        self.replaced.set()
        self.replaced = threading.Event()
        if fault in ("no name", *CERTIFICATES) and self._listener is not None:
            self._listener.cut()

    def __enter__(self) -> FaultyProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.replaced.set()
        self._close()
        self._reserved.close()

    def _listen(self) -> None:
        self._listener = _Listener(self, self._port)
        threading.Thread(target=self._listener.serve_forever, args=(0.02,), daemon=True).start()

    def _close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.shutdown()
            listener.server_close()
            listener.cut()


def reset(connection: socket.socket) -> None:
    """Close a connection so that the peer reads an error."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, proxy: FaultyProxy, port: int) -> None:
        self.proxy = proxy
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def cut(self) -> None:
        """Reset all connections."""
        for connection in list(self.connections):
            reset(connection)

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; its thread shakes hands."""
        request, address = super().get_request()
        if (context := self.proxy.context) is not None:
            request = context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        return request, address

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: clients are killed, and connections are cut."""


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        proxy = self.server.proxy
        body = self._body()
        fault, replaced = proxy.fault, proxy.replaced
        if fault == "hangs":
            proxy.hits += 1
            replaced.wait()
            self._give_no_answer()
            return
        if fault and fault != "lost":
            proxy.hits += 1
            self._answer(
                503 if fault == "refused" else int(fault), [("content-type", "application/json")], _error(fault)
            )
            return
        connection = http.client.HTTPConnection(proxy.upstream, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _PER_HOP}
        connection.request(self.command, self.path, body, headers | {"Host": proxy.upstream})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if proxy.fault == "lost":
            proxy.hits += 1
            self._give_no_answer()
            return
        self._answer(answer.status, answer.getheaders(), content)

    def __getattr__(self, name: str) -> Any:
        """Forward any method."""
        if name.startswith("do_"):
            return self._forward
        raise AttributeError(name)

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("transfer-encoding", ""):
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def _give_no_answer(self) -> None:
        self.server.proxy.log.append((self.command, self.path, 0))
        self.close_connection = True
        reset(self.connection)

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.server.proxy.log.append((self.command, self.path, status))
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in _PER_HOP:
                self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


_CODES = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "RESOURCE_DOES_NOT_EXIST", 409: "RESOURCE_CONFLICT"}


def _error(fault: Fault) -> bytes:
    """Return the body of an error, as W&B, MLflow, SwanLab and trackio have it."""
    text = f"the test's fault {fault}"
    code = _CODES.get(int(fault), "INTERNAL_ERROR") if isinstance(fault, int) else "INTERNAL_ERROR"
    return json.dumps({"errors": [{"message": text}], "error_code": code, "message": text, "detail": text}).encode()
