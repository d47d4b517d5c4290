"""A network link that can be cut: bytes then wait in the machines' buffers, without an error."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class Link:
    """Carries bytes between a port of the loopback and another, which may begin to listen later.

    A connection is never reset: rotel drops what it is sending when that happens, and retries after a time-out.

    Attributes:
        port: Where it takes connections.
    """

    def __init__(self, to_port: int) -> None:
        self._to = to_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._whole = threading.Event()
        self._whole.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Carry nothing from now on."""
        self._whole.clear()

    def mend(self) -> None:
        """Carry again."""
        self._whole.set()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self._whole.wait()
        while True:
            try:
                far = socket.create_connection(("127.0.0.1", self._to))
                break
            except OSError:
                time.sleep(0.1)
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                self._whole.wait()
                target.sendall(content)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
