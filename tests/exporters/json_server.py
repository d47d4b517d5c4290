"""A server of HTTP that answers with JSON, for the protocols of trackers."""

from __future__ import annotations

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class JsonServer(ThreadingHTTPServer):
    """Answers in threads of its own until it is closed.

    Attributes:
        lock: Protects what a subclass keeps.
    """

    daemon_threads = True

    def __init__(self, handler: type[JsonHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join(10)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: clients are killed, and connections are cut."""


class JsonHandler(BaseHTTPRequestHandler):
    """Reads bodies, and answers with JSON."""

    protocol_version = "HTTP/1.1"

    def respond(self) -> None:
        """Answer a request."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        """Respond to any method."""
        if name.startswith("do_"):
            return self.respond
        raise AttributeError(name)

    def body(self) -> bytes:
        """Return the body of the request."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        return gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body

    def answer(self, content: Any, status: int = 200) -> None:
        """Send an answer."""
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""
