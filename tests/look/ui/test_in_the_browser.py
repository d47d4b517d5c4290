"""The page over all runs in a real browser."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.look.hostile import HOSTILE
from tests.look.recorded import Shape, record
from tests.look.ui.pages import Visit, served, until
from tests.real_parts import needs, needs_program

pytestmark = [pytest.mark.slow, needs("playwright"), needs("axe_playwright_python"), needs_program("chromium")]


def test_runs_come_and_go(tmp_path: Path, visit: Visit) -> None:
    """Runs appear and disappear without a reload, those first that need somebody, and the address has no token."""
    record(tmp_path / "a", Shape(steps=3, name="well"))
    record(tmp_path / "b", Shape(steps=12, name="dead", ends="crashed", error="SIGKILL"))
    with served(tmp_path) as page:
        tab = visit(page)
        until(lambda: tab.locator("table.runs a.name").all_inner_texts() == ["dead", "well"], tab)
        record(tmp_path / "c", Shape(steps=3, name="another"))
        until(lambda: tab.locator("table.runs a.name").count() == 3, tab)
        shutil.rmtree(tmp_path / "b")
        until(lambda: sorted(tab.locator("table.runs a.name").all_inner_texts()) == ["another", "well"], tab)

        assert page.token not in tab.url


def test_a_server_that_ends(tmp_path: Path, visit: Visit) -> None:
    """The page says that nobody answers, and keeps what it shows."""
    record(tmp_path / "a", Shape(steps=3, name="well"))
    with served(tmp_path) as page:
        tab = visit(page, fails=True)
        until(lambda: tab.locator("table.runs a.name").count() == 1, tab)
        page.server.close()
        until(lambda: "The server does not answer." in tab.locator("#watching").inner_text(), tab)

        assert tab.locator("table.runs a.name").all_inner_texts() == ["well"]


def test_a_link_without_its_token(tmp_path: Path, visit: Visit) -> None:
    """The page says that it needs the link that was printed."""
    with served(tmp_path) as page:
        tab = visit(page, fails=True)
        tab.evaluate("sessionStorage.clear()")
        tab.goto(page.server.link.partition("#")[0])
        tab.reload()
        until(lambda: "needs the link that `otel-rl ui` printed" in tab.locator("#watching").inner_text(), tab)


def test_texts_that_try_to_act(tmp_path: Path, visit: Visit) -> None:
    """Names and texts of runs are texts: none becomes an element or runs."""
    for number, text in enumerate(HOSTILE):
        record(tmp_path / str(number), Shape(steps=2, project=f"p{text}", hostile=text))
    with served(tmp_path) as page:
        tab = visit(page)
        until(lambda: tab.locator("table.runs a.name").count() == len(HOSTILE), tab)

        assert tab.evaluate("window.pwned") is None
        assert tab.locator("#screen img, #screen iframe, #screen script, #screen form, #screen object").count() == 0
        names = tab.locator("table.runs a.name").all_inner_texts()
        assert any("<script>" in name for name in names)


@pytest.mark.parametrize("width", [390, 1280, 2560])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_read_it(tmp_path: Path, visit: Visit, width: int, theme: str) -> None:
    """Contrast, labels and landmarks are as axe wants them, and nothing is wider than the screen."""
    from axe_playwright_python.sync_playwright import Axe

    record(tmp_path / "a", Shape(steps=30, name="well", nan_from=20))
    record(tmp_path / "b", Shape(steps=12, name="dead", ends="crashed", error="SIGKILL"))
    with served(tmp_path) as page:
        until(lambda: all(line["has_verdict"] for line in page.runs()["runs"]))
        tab = visit(page, width=width, theme=theme)
        until(lambda: tab.locator("table.runs a.name").count() == 2, tab)
        found = Axe().run(tab)

        assert found.violations_count == 0, found.generate_report()
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_run_in_a_new_tab(tmp_path: Path, visit: Visit) -> None:
    """It gets the token from the tab that is open."""
    record(tmp_path / "a", Shape(steps=3, name="well"))
    with served(tmp_path) as page:
        tab = visit(page)
        tab.locator("table.runs a.name").click(modifiers=["Control"])
        until(lambda: len(tab.context.pages) == 2, tab)
        other = tab.context.pages[1]
        until(lambda: other.locator("h1").all_inner_texts() != [] and "well" in other.locator("h1").inner_text(), other)


def test_keys_of_the_list(tmp_path: Path, visit: Visit) -> None:
    """They are shown by `?` and the button, `/` leads to the search, and `t` changes the theme."""
    record(tmp_path / "a", Shape(steps=3))
    with served(tmp_path) as page:
        tab = visit(page)
        tab.keyboard.press("?")
        assert tab.locator("dialog[open]").count() == 1
        tab.keyboard.press("Escape")
        tab.keyboard.press("t")
        assert tab.evaluate("document.documentElement.dataset.theme") == "light"
        tab.keyboard.press("/")
        assert tab.evaluate("document.activeElement.id") == "find"


def test_the_list_without_its_server(tmp_path: Path, visit: Visit) -> None:
    """The list stays while somebody searches and nobody answers."""
    record(tmp_path / "a", Shape(steps=3, name="well"))
    with served(tmp_path) as page:
        tab = visit(page, fails=True)
        until(lambda: tab.locator("table.runs a.name").count() == 1, tab)
        page.server.close()
        tab.locator("#find").fill("other")
        until(lambda: "The server does not answer." in tab.locator("#watching").inner_text(), tab)

        assert tab.locator("table.runs a.name").all_inner_texts() == ["well"]


def test_runs_that_are_left_at_once(tmp_path: Path, visit: Visit) -> None:
    """A run that was left while it was read draws nothing into the page of the next one."""
    record(tmp_path / "long", Shape(steps=300, name="long", ranks=4))
    record(tmp_path / "short", Shape(steps=12, name="short", ranks=1))
    with served(tmp_path) as page:
        tab = visit(page)
        until(lambda: tab.locator("table.runs a.name").count() == 2, tab)
        keys = {run["name"]: run["key"] for run in page.runs()["runs"]}
        tab.route("**/part/**", lambda route: (tab.wait_for_timeout(300), route.continue_()))
        for pause in (400, 900, 1500):
            tab.evaluate(f"location.hash = '#run={keys['long']}'")
            tab.wait_for_timeout(pause)
            tab.evaluate(f"location.hash = '#run={keys['short']}'")
            tab.wait_for_timeout(pause)
        until(lambda: tab.locator("html[data-ready=run]").count() == 1, tab)
        tab.wait_for_timeout(3000)

        assert "of 12" in tab.locator("p.facts").inner_text()
        assert "steps 0 to 11" in tab.locator("#curves").inner_text()
        assert tab.locator("#draw-memory > .draw").count() == 2
        assert tab.locator("dialog").count() == 1
