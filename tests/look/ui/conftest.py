"""The cache of the page is the test's own; and pages in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.look.ui.pages import Served, Visit


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set the cache directory to one of the test, and return it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "otel-rl" / "page"


@pytest.fixture
def visit(chromium: Any) -> Iterator[Visit]:
    """Yield a function that opens a server's link. No page may log an error, or request anything of another server."""
    problems: list[str] = []

    def opened(page: Served, address: str = "", *, width: int = 1280, theme: str = "light", fails: bool = False) -> Any:
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        page.tabs.append(context)
        tab = context.new_page()
        if not fails:
            tab.on("console", lambda message: problems.append(message.text))
        tab.on("pageerror", lambda error: problems.append(str(error)))
        own = f"http://127.0.0.1:{page.port}/"
        tab.on("request", lambda request: None if request.url.startswith(own) else problems.append(request.url))
        tab.goto(page.server.link + address)
        tab.locator("html[data-ready]").wait_for(timeout=30_000)
        return tab

    yield opened
    for context in chromium.contexts:
        context.close()
    assert not problems
