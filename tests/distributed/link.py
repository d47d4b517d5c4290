"""A network link that can be cut: what is sent then waits in the machines' buffers, and nobody is told."""

from __future__ import annotations

import contextlib
import socket
import threading


class Link:
    """Carries bytes between a port of the loopback and another.

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
            self._whole.wait()
            try:
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                near.close()
                continue
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
