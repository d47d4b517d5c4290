"""`python -m tests.view.draw`: a screenshot of a report for the docs, with a slow rank and longer completions."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from otel_rl.view.page.report import write_report
from tests.view.recorded import Shape, record

_IMAGE = Path(__file__).parents[2] / "docs" / "images" / "report.png"
_SHAPE = Shape(steps=120, ranks=4, slow_rank=3, slower_from=70, gpus=True, texts=True)
_SIZE = {"width": 1440, "height": 1560}


def draw(image: Path) -> None:
    """Write the screenshot."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        place = Path(name)
        write_report(record(place / "run", _SHAPE), place / "report.html")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=_SIZE)
        page.goto((place / "report.html").as_uri())
        page.locator("html[data-ready=all]").wait_for()
        page.wait_for_timeout(500)
        page.screenshot(path=image)
        browser.close()


if __name__ == "__main__":
    draw(_IMAGE)
