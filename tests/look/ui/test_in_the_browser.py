"""The page over all runs in a real browser."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from otel_rl.look.ui.index import key_of
from otel_rl.recorder.settings.tokens import Tokens
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
        until(lambda: tab.locator("#draw-memory > .draw").count() == 2, tab)
        tab.wait_for_timeout(3000)

        assert "of 12" in tab.locator("p.facts").inner_text()
        assert "steps 0 to 11" in tab.locator("#curves").inner_text()
        assert tab.locator("#draw-memory > .draw").count() == 2
        assert tab.locator("dialog").count() == 1


def test_runs_in_groups(tmp_path: Path, visit: Visit) -> None:
    """The field offers what the runs differ in, and each group has a title with the number of its runs."""
    for name in ("a", "b", "c"):
        record(tmp_path / name, Shape(steps=3, name=name, project="two" if name == "c" else "one"))
    with served(tmp_path) as page:
        tab = visit(page)
        until(lambda: tab.locator("table.runs a.name").count() == 3, tab)
        field = tab.get_by_label("Group by")
        field.focus()
        offered = tab.locator("datalist option").evaluate_all("options => options.map(({value}) => value)")
        field.fill("project")
        field.press("Enter")
        until(lambda: tab.locator("tbody.group:visible").count() == 2, tab)
        titles = sorted(tab.locator("tbody.group:visible .count").all_inner_texts())

        assert offered[:2] == ["project", "state"]
        assert [title.partition(" ")[0] for title in titles] == ["1", "2"]


def test_a_server_that_comes_back(tmp_path: Path, visit: Visit) -> None:
    """With the same token and port, the page goes on by itself, and what was chosen stays chosen."""
    record(tmp_path / "a", Shape(steps=3, name="well"))
    tokens = Tokens("x" * 43)
    with served(tmp_path, tokens=tokens) as page:
        tab = visit(page, fails=True)
        until(lambda: tab.locator("table.runs a.name").count() == 1, tab)
        tab.get_by_label("Choose well").check()
        page.server.close()
        record(tmp_path / "b", Shape(steps=3, name="new"))
        until(lambda: "does not answer" in tab.locator("#watching").inner_text(), tab)
        with served(tmp_path, tokens=tokens, port=page.port):
            until(lambda: tab.locator("table.runs a.name").count() == 2, tab)

            assert "does not answer" not in tab.locator("#watching").inner_text()
            assert tab.get_by_label("Choose well").is_checked()
            page.tabs.pop().close()


def test_eight_tabs(tmp_path: Path, visit: Visit) -> None:
    """Each is drawn and goes on, though a browser has six connections to one server."""
    record(tmp_path / "a", Shape(steps=3, name="well"))
    with served(tmp_path) as page:
        context = visit(page).context
        tabs = [*context.pages, *(context.new_page() for _ in range(7))]
        for tab in tabs[1:]:
            tab.goto(page.server.link)
        record(tmp_path / "b", Shape(steps=3, name="new"))
        for tab in tabs:
            until(lambda: tab.locator("table.runs a.name").count() == 2, tab)  # noqa: B023


def test_a_laptop_that_sleeps(tmp_path: Path, visit: Visit) -> None:
    """After an hour in which nothing ran, the page has what happened, and the times are those of now."""
    record(tmp_path / "a", Shape(steps=3, name="well"))
    with served(tmp_path) as page:
        tab = visit(page)
        until(lambda: tab.locator("table.runs a.name").count() == 1, tab)
        session = tab.context.new_cdp_session(tab)
        session.send("Page.setWebLifecycleState", {"state": "frozen"})
        record(tmp_path / "b", Shape(steps=3, name="new"))
        shutil.rmtree(tmp_path / "a")
        time.sleep(3)
        session.send("Page.setWebLifecycleState", {"state": "active"})
        until(lambda: tab.locator("table.runs a.name").all_inner_texts() == ["new"], tab)


def test_a_clock_that_differs(tmp_path: Path, visit: Visit) -> None:
    """Times are by the clock of the server: a laptop that is 10 minutes behind shows the same."""
    record(tmp_path / "a", Shape(steps=3, name="well"))
    with served(tmp_path) as page:
        shown = []
        for minutes in (0, -10, 10):
            tab = visit(page, "&runs")
            tab.clock.set_system_time(time.time() + 60 * minutes)
            tab.reload()
            until(lambda: tab.locator("table.runs a.name").count() == 1, tab)  # noqa: B023
            seen = tab.locator("td[data-title=seen]")
            until(lambda: seen.inner_text() != "", tab)  # noqa: B023
            shown.append(seen.inner_text())

        assert len(set(shown)) == 1


def test_a_run_that_is_deleted_while_it_is_shown(tmp_path: Path, visit: Visit) -> None:
    """Its page says that it is there no more, and leads back to the list."""
    record(tmp_path / "a", Shape(steps=12, name="well"))
    with served(tmp_path) as page:
        tab = visit(page, f"&run={key_of(tmp_path / 'a')}", fails=True)
        tab.locator("html[data-ready=run]").wait_for(timeout=60_000)
        shutil.rmtree(tmp_path / "a")
        until(lambda: "there no more" in tab.locator("#watching").inner_text(), tab)
        tab.get_by_role("link", name="← all runs").click()
        until(lambda: "No run in" in tab.locator("main .note").first.inner_text(), tab)
