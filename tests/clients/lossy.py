"""A link that carries requests to a receiver and loses some of the answers: the client sends the same again."""

from __future__ import annotations

import contextlib
import socket
import threading

_PREFACE = b"PRI * HTTP/2.0\r\n"
_FRAME_HEADER = 9
_HEADERS = 1  # the type of the HTTP/2 frame with which an answer begins


class Lossy:
    """Carries bytes between a port of the loopback and another; cuts the connection where an answer is lost.

    Args:
        to_port: Where the receiver is.
        every: The first answer is lost, and each further one of this number.

    Attributes:
        port: Where it takes connections.
        lost: How many answers it lost.
    """

    def __init__(self, to_port: int, every: int) -> None:
        self._to = to_port
        self._every = every
        self._answers = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.lost = 0
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._to)) as far:
            first = near.recv(1 << 16)
            far.sendall(first)
            threading.Thread(target=_carry, args=(near, far), daemon=True).start()
            if first.startswith(_PREFACE[: len(first)]):
                self._answer_frames(near, far)
            else:
                self._answer(near, far)
            for end in (near, far):
                end.shutdown(socket.SHUT_RDWR)

    def _is_lost(self) -> bool:
        with self._lock:
            self._answers += 1
            lost = self._answers % self._every == 1
            self.lost += lost
            return lost

    def _answer(self, near: socket.socket, far: socket.socket) -> None:
        while content := far.recv(1 << 16):
            if content.startswith(b"HTTP/1.1 ") and self._is_lost():
                return
            near.sendall(content)

    def _answer_frames(self, near: socket.socket, far: socket.socket) -> None:
        with far.makefile("rb") as frames:
            open_streams: set[bytes] = set()
            while len(header := frames.read(_FRAME_HEADER)) == _FRAME_HEADER:
                payload = frames.read(int.from_bytes(header[:3], "big"))
                stream = header[5:9]
                if header[3] == _HEADERS and stream not in open_streams:  # trailers are such a frame too
                    open_streams.add(stream)
                    if self._is_lost():
                        return
                near.sendall(header + payload)


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := source.recv(1 << 16):
            target.sendall(content)
        target.shutdown(socket.SHUT_WR)
