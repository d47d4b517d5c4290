"""A real browser that opens pages, and fails the test if a page makes a request or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.look.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module", name="chromium")
def a_browser() -> Iterator[Browser]:
    """Yield a browser."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def look(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Yield a function that opens a file in the browser and waits until it is drawn.

    When the test ends, no page may have logged an error or requested anything but itself.
    """
    problems: list[str] = []
    contexts: list[Any] = []

    def opened(file: Path, address: str = "", *, width: int = 1280, height: int = 900, theme: str = "light") -> Any:
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: problems.append(request.url) if request.url != file.as_uri() else None)
        page.goto(file.as_uri() + address)
        page.locator("html[data-ready=all]").wait_for(timeout=120_000)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not problems
