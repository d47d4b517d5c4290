"""A server of HTTP whose answers are bytes, which need not be valid."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time

_LENGTH = re.compile(rb"\r\ncontent-length: ([0-9]+)\r\n", re.IGNORECASE)


class RawServer:
    """Answers each request on a connection of its own, and closes it.

    Attributes:
        answer: The bytes of the answer.
        endless: What follows it, over and over, with `pause` seconds in between; nothing if it is empty.
        requests: The requests.
    """

    def __init__(self, answer: bytes = b"", *, endless: bytes = b"", pause: float = 0.0) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.answer, self.endless, self.pause = answer, endless, pause
        self.requests: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where logs are sent to."""
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1/logs"

    def __enter__(self) -> RawServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(10)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(10)
                    self.requests.append(_request(connection))
                    connection.sendall(self.answer)
                    while self.endless:
                        connection.sendall(self.endless)
                        time.sleep(self.pause)


def _request(connection: socket.socket) -> bytes:
    """Read a whole request: closing a connection with unread bytes would reset it, and lose the answer."""
    read = b""
    while (length := _LENGTH.search(read)) is None or len(read.partition(b"\r\n\r\n")[2]) < int(length[1]):
        if not (part := connection.recv(1 << 16)):
            break
        read += part
    return read
