"""The real browser of the tests: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium; whoever needs it says so with `needs` and `needs_program`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        options = ["--no-sandbox", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        try:
            yield browser
        finally:
            browser.close()
