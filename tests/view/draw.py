"""`python -m tests.view.draw`: a screenshot of a report for the docs, with a slow rank and longer completions."""

from __future__ import annotations

import tempfile
from pathlib import Path

from otel_rl.view.page.report import write_report
from tests.view.browser import chromium
from tests.view.recorded import Shape, record

_IMAGES = Path(__file__).parents[2] / "docs" / "images"
_SHAPE = Shape(steps=120, ranks=4, slow_rank=3, slower_from=70, gpus=True, texts=True)
_PICTURES = {"report.png": ("", 1440, 1560), "report_step.png": ("#step=75&rank=3&at=timeline", 1280, 780)}
"""Files, with the address, width and height of the page that they show."""


def draw() -> None:
    """Write the screenshots."""
    with tempfile.TemporaryDirectory() as name, chromium() as browser:
        place = Path(name)
        write_report(record(place / "run", _SHAPE), place / "report.html")
        for file, (address, width, height) in _PICTURES.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto((place / "report.html").as_uri() + address)
            page.locator("html[data-ready=all]").wait_for()
            page.wait_for_timeout(1000)
            page.screenshot(path=_IMAGES / file)


if __name__ == "__main__":
    draw()
