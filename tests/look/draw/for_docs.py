"""Draws the screenshots of single pages: `top` during the demo, the report of a slow rank, the list of all runs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl.look.page.report import write_report
from otel_rl.look.terminal.app import Top
from otel_rl.recorder.archive.present import present_of
from otel_rl.recorder.archive.runs import place_of
from tests.collector import wait_for
from tests.look.browser import chromium
from tests.look.recorded import Shape, record
from tests.look.ui.pages import served

if TYPE_CHECKING:
    from otel_rl.recorder.archive.runs import Place

IMAGES = Path(__file__).parents[3] / "docs" / "images"
_SHAPE = Shape(steps=120, ranks=4, slow_rank=3, slower_from=70, gpus=True, texts=True)
_PICTURES = {"report.png": ("", 1440, 1560), "report_step.png": ("#step=75&rank=3&at=timeline", 1280, 780)}
"""Files, with the address, width and height of the page that they show."""


_RUNS = {
    "baseline": Shape(steps=80, texts=True),
    "lr-1e-5": Shape(steps=80, nan_from=60),
    "node7": Shape(steps=90, ranks=4, slow_rank=3, slower_from=60, gpus=True),
    "asynchronous": Shape(steps=40, workers=3),
    "preempted": Shape(steps=60, resumed_at=35),
    "out-of-memory": Shape(steps=48, ends="crashed", error="SIGKILL"),
}
"""The runs in the list of the page, by their names."""


def draw() -> None:
    """Write the screenshots."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        terminal = _of_demo(place / "demo")
        write_report(record(place / "run", _SHAPE), place / "report.html")
        _draw(terminal, place / "report.html")
        draw_list(place / "runs")


def draw_list(place: Path) -> None:
    """Write the screenshot of the list of runs."""
    for name, shape in _RUNS.items():
        record(place / name, replace(shape, name=name))
    with served(place) as page, chromium() as browser:
        wait_for(lambda: all(run["has_verdict"] for run in page.runs()["runs"]), "no verdicts", 300)
        tab = browser.new_page(viewport={"width": 1280, "height": 720})
        tab.goto(page.server.link)
        tab.get_by_text("asynchronous").wait_for()
        tab.locator("#watching").evaluate("bar => { bar.textContent = '6 runs in runs'; }")
        tab.screenshot(path=IMAGES / "runs.png")


def _draw(terminal: str, report: Path) -> None:
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1240, "height": 810})
        page.set_content(terminal)
        page.screenshot(path=IMAGES / "terminal.png")
        for file, (address, width, height) in _PICTURES.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(report.as_uri() + address)
            page.locator("html[data-ready=all]").wait_for()
            page.wait_for_timeout(1000)
            page.screenshot(path=IMAGES / file)


def _of_demo(place: Path) -> str:
    """Return what `otel-rl top` shows of the demo after three quarters of its steps, as SVG."""
    options = ("--steps", "60", "--ranks", "2", "--dir", str(place))
    with subprocess.Popen((Path(sys.executable).with_name("otel-rl"), "demo", *options), stdout=subprocess.DEVNULL):
        wait_for(lambda: any(present_of(run).progress.steps >= 45 for run in _runs(place)), "no step 45", 600)
        return asyncio.run(_screenshot(*_runs(place)))


def _runs(place: Path) -> list[Place]:
    return [place_of(file.parent) for file in place.glob("*/*/run.json")]


async def _screenshot(run: Place) -> str:
    """Return what `otel-rl top` shows of a run, once it has read its past, as SVG."""
    app = Top(run, present_of(run))
    async with app.run_test(size=(100, 30)) as pilot:
        while app.scene.facts is None or not app.scene.names:
            await pilot.pause(0.1)
        await pilot.pause(1)
        return app.export_screenshot(title="otel-rl top")
