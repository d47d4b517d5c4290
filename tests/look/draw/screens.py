"""Draws a run as its readers see it: in terminals of two sizes, in browsers of two widths and two themes, on paper."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from click.testing import CliRunner

from otel_rl.cli import main
from otel_rl.look.page.report import write_report
from otel_rl.look.terminal.app import Top
from otel_rl.recorder.archive.present import present_of
from tests.look.browser import chromium

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from playwright.sync_api import Browser

    from otel_rl.recorder.archive.runs import Place

TERMINALS = ((80, 24), (160, 50))
"""Columns and lines of terminals."""
_THEMES: tuple[Literal["light", "dark"], ...] = "light", "dark"
PAGES = tuple((width, theme) for width in (390, 1280) for theme in _THEMES)
"""Widths of pages, and their themes."""
_KEYS = {"hung": ("a", "w"), "slow": ("w",)}
"""Keys whose pages are drawn too, by kinds of runs."""
_HEIGHT = 900


def draw(places: Mapping[str, Place], folder: Path) -> None:
    """Draw runs by their names, in all forms, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, place in places.items():
        for file, picture in terminals(name, place).items():
            (folder / f"{file}.svg").write_text(picture)
        (folder / f"{name}.why.txt").write_text(_printed("why", "--text", str(place.path)))
        write_report(place.path, folder / f"{name}.html")
    (folder / "ls.txt").write_text(_printed("ls", "--text", *(str(place.path) for place in places.values())))
    with chromium() as browser:
        for picture_file in sorted(folder.glob("*.svg")):
            page = browser.new_page(viewport={"width": 2000, "height": 1300})
            page.set_content(f"<body style='margin:0'>{picture_file.read_text()}")
            page.locator("svg").first.screenshot(path=picture_file.with_suffix(".png"))
            page.close()
        for name in places:
            _draw_report(browser, name, folder)


def terminals(name: str, place: Place) -> dict[str, str]:
    """Return what `otel-rl top` shows of a run in all sizes, by the names of files, as SVG."""
    keys = ("", *_KEYS.get(name, ()))
    pictures = {size: asyncio.run(_top(place, size, keys)) for size in TERMINALS}
    return {
        f"{name}.top{key and f'_{key}'}.{columns}x{lines}": picture
        for (columns, lines), of_key in pictures.items()
        for key, picture in of_key.items()
    }


async def _top(place: Place, size: tuple[int, int], keys: Iterable[str]) -> dict[str, str]:
    """Return what `otel-rl top` shows of a run once it has read its past, and behind keys, as SVG."""
    app, pictures = Top(place, present_of(place)), {}
    async with app.run_test(size=size) as pilot:
        while app.scene.facts is None or not app.scene.names:
            await pilot.pause(0.1)
        for key in keys:
            if key:
                await pilot.press(key)
            await pilot.pause(2)
            pictures[key] = app.export_screenshot(title=f"otel-rl top {place.name}")
            if key:
                await pilot.press("escape")
    return pictures


def _draw_report(browser: Browser, name: str, folder: Path) -> None:
    """Draw a report: its first screen, all of it, and on paper."""
    address = (folder / f"{name}.html").as_uri()
    for width, theme in PAGES:
        context = browser.new_context(viewport={"width": width, "height": _HEIGHT}, color_scheme=theme)
        page = context.new_page()
        page.goto(address)
        page.locator("html[data-ready=all]").wait_for()
        page.wait_for_timeout(500)
        page.screenshot(path=folder / f"{name}.report.{width}.{theme}.png")
        page.screenshot(path=folder / f"{name}.report.{width}.{theme}.whole.png", full_page=True)
        if (width, theme) == PAGES[-1]:  # paper is light whatever the screen is
            page.pdf(path=folder / f"{name}.report.pdf", format="A4")
            page.emulate_media(media="print")
            page.set_viewport_size({"width": 720, "height": 1000})
            page.wait_for_timeout(500)
            page.screenshot(path=folder / f"{name}.report.printed.png", full_page=True)
        context.close()


def _printed(*command: str) -> str:
    """Return what a command prints."""
    return CliRunner().invoke(main, list(command)).output
