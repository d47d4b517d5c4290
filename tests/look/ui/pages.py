"""Servers of the page over runs that tests have recorded, and what they answer."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from otel_rl.look.ui.server import PageServer
from otel_rl.recorder.settings.tokens import Tokens

Visit = Callable[..., Any]


class Reply(NamedTuple):
    """The answer of a server."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        """The value that it has as JSON."""
        return json.loads(self.body)


class Served:
    """A server of the page, and requests to it."""

    def __init__(self, server: PageServer) -> None:
        self.server = server
        self.tabs: list[Any] = []  # the browser's contexts that look at it
        address, _, self.token = server.link.partition("#token=")
        self.port = int(address.rpartition(":")[2].rstrip("/"))

    def get(
        self, path: str, token: str | None = None, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> Reply:
        """Ask for a path, with the token of the link unless another one is given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = {"Authorization": f"Bearer {self.token if token is None else token}", **headers}
        connection.request(method, path, body, headers=sent)
        answer = connection.getresponse()
        reply = Reply(answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read())
        connection.close()
        return reply

    def runs(self, cursor: str = "") -> Any:
        """Return the list since a cursor."""
        return self.get(f"/runs?cursor={cursor}").value


@contextmanager
def served(*directories: Path, port: int = 0, tokens: Tokens | None = None) -> Iterator[Served]:
    """Serve the runs below directories."""
    server = PageServer(directories, port=port, tokens=tokens)
    page = Served(server)
    try:
        yield page
    finally:
        for context in page.tabs:  # they would say that nobody answers
            context.close()
        server.close()


def until(holds: Callable[[], bool], page: Any = None) -> None:
    """Wait until something holds; pages of Playwright move on only while somebody waits by them."""
    import time

    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it does not come"
        page.wait_for_timeout(100) if page is not None else time.sleep(0.1)
