"""Debian's Firefox, driven by WebDriver BiDi, which it speaks itself: Playwright drives only a Firefox of its own."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tornado.websocket import WebSocketClientConnection, websocket_connect

_STARTS_WITHIN_S = 120.0
_ANSWERS_WITHIN_S = 60.0
_PREFERENCES = 'user_pref("remote.active-protocols", 1);\nuser_pref("browser.shell.checkDefaultBrowser", false);\n'


class FirefoxTab:
    """A tab: it goes to addresses and evaluates expressions.

    Attributes:
        problems: Errors of its pages, and what they wrote to the console.
    """

    def __init__(self, port: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._numbers = count(1)
        self.problems: list[str] = []
        address = f"ws://127.0.0.1:{port}/session"
        self._socket: WebSocketClientConnection = self._loop.run_until_complete(self._connected(address))
        self.call("session.new", capabilities={})
        self.call("session.subscribe", events=["log.entryAdded"])
        self._context = self.call("browsingContext.create", type="tab")["context"]

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a command, and return its result."""
        return self._loop.run_until_complete(asyncio.wait_for(self._called(method, parameters), _ANSWERS_WITHIN_S))

    def go(self, address: str) -> None:
        """Go to an address, and wait until its page has drawn something."""
        self.call("browsingContext.navigate", context=self._context, url=address, wait="complete")

    def size(self, width: int, height: int) -> None:
        """Set the size of the page."""
        viewport = {"width": width, "height": height}
        self.call("browsingContext.setViewport", context=self._context, viewport=viewport)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression, which has to be JSON."""
        text = f"Promise.resolve({expression}).then((value) => JSON.stringify(value ?? null))"
        target = {"context": self._context}
        found = self.call("script.evaluate", expression=text, target=target, awaitPromise=True, userActivation=True)
        assert found["type"] == "success", found
        return json.loads(found["result"]["value"])

    def until(self, expression: str) -> None:
        """Wait until an expression holds."""
        end = time.monotonic() + _ANSWERS_WITHIN_S
        while not self.evaluate(f"Boolean({expression})"):
            assert time.monotonic() < end, f"{expression}: {self.evaluate('document.body.innerText')[:500]}"
            time.sleep(0.2)

    def close(self) -> None:
        """End the browser."""
        self.call("browser.close")
        self._loop.close()

    async def _connected(self, address: str) -> WebSocketClientConnection:
        return await websocket_connect(address)

    async def _called(self, method: str, parameters: dict[str, Any]) -> Any:
        number = next(self._numbers)
        await self._socket.write_message(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            text = await self._socket.read_message()
            assert text is not None, "Firefox has ended"
            message = json.loads(text)
            if message.get("method") == "log.entryAdded":
                self.problems.append(str(message["params"]["text"]))
            elif message.get("id") == number:
                assert message["type"] == "success", message
                return message["result"]


@contextmanager
def firefox(profile: Path) -> Iterator[Callable[[], FirefoxTab]]:
    """Start Firefox with a profile of its own, and yield what opens its one session."""
    profile.mkdir(parents=True)
    (profile / "user.js").write_text(_PREFERENCES)
    command = [str(shutil.which("firefox-esr")), "--headless", "--no-remote", "--remote-debugging-port", "0"]
    log = profile / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--profile", str(profile)], stderr=output, stdout=output)
    try:
        yield lambda: FirefoxTab(_port_in(log, process))
    finally:
        process.terminate()
        process.wait(30)


def _port_in(log: Path, process: subprocess.Popen[bytes]) -> int:
    end = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(rb"listening on ws://127\.0\.0\.1:(\d+)", log.read_bytes()):
            return int(found[1])
        time.sleep(0.2)
    raise AssertionError(f"Firefox does not start: {log.read_text(errors='replace')[-500:]}")
