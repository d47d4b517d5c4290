"""One run, live, in a real browser: what appears, what stays, and what cannot act."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from otel_rl.look.ui.server import PageServer
from otel_rl.recorder.settings.tokens import Tokens
from tests.look.hostile import HOSTILE
from tests.look.recorded import Shape, growing, record
from tests.look.terminal.nows import written
from tests.look.ui.pages import Served, Visit, served, until
from tests.real_parts import needs, needs_program

pytestmark = [pytest.mark.slow, needs("playwright"), needs("axe_playwright_python"), needs_program("chromium")]


def go_on(directory: Path, steps: Iterator[int], count: int) -> None:
    """Write some more steps, and what an agent says of the present."""
    list(islice(steps, count))
    written(directory)


def opened(visit: Visit, page: Served, more: str = "", **options: Any) -> Any:
    """Open the only run, and wait until all of it is drawn."""
    (line,) = page.runs()["runs"]
    tab = visit(page, f"&run={line['key']}{more}", **options)
    tab.locator("html[data-ready=run]").wait_for(timeout=60_000)
    tab.locator("#draw-timeline .timeline-canvas").wait_for(timeout=60_000)
    return tab


def test_steps_appear(tmp_path: Path, visit: Visit) -> None:
    """Newer steps come without a reload, and all steps stay shown; the chosen step, what is open and typed stay."""
    steps = growing(tmp_path / "a", Shape(steps=30, ends=""))
    go_on(tmp_path / "a", steps, 10)
    with served(tmp_path) as page:
        tab = opened(visit, page, "&step=4&rank=1")
        tab.locator("#draw-curves details summary").first.click()
        tab.locator("#search").fill("loss")
        tab.evaluate("window.stays = document.querySelector('#draw-curves figure canvas')")
        heading = tab.locator("#curves .heading")
        assert "steps 0 to 9" in heading.inner_text()
        go_on(tmp_path / "a", steps, 5)
        until(lambda: "steps 0 to 14" in heading.inner_text(), tab)

        assert "step 4 · rank 1" in tab.locator("#where").inner_text()
        assert tab.url.endswith("&step=4&rank=1")
        assert tab.locator("#draw-curves details").first.get_attribute("open") is not None
        assert tab.evaluate("document.activeElement.id + document.activeElement.value") == "searchloss"
        assert tab.evaluate("window.stays.isConnected")
        rows = tab.locator("#draw-curves details").first.locator("tbody tr")
        until(lambda: rows.count() == 15, tab)


def test_values_appear_before_the_page_is_read_again(
    tmp_path: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The curves get the values of new steps from the tail of the archive, as a page has that is read now."""
    monkeypatch.setattr("otel_rl.look.ui.budget.EVERY_S", 600.0)
    steps = growing(tmp_path / "a", Shape(steps=30, nan_from=13, ends=""))
    go_on(tmp_path / "a", steps, 10)

    def drawn(tab: Any) -> list[str]:
        figures = tab.locator("#draw-curves .multiples figure")
        for figure in figures.all():
            figure.scroll_into_view_if_needed()
        texts: list[str] = tab.eval_on_selector_all("#draw-curves figure", "all => all.map(one => one.textContent)")
        return texts

    with served(tmp_path) as page, served(tmp_path) as another:
        tab = opened(visit, page)
        go_on(tmp_path / "a", steps, 5)
        until(lambda: "steps 0 to 14" in tab.locator("#curves .heading").inner_text(), tab)
        fresh = opened(visit, another)
        for opened_tab in (tab, fresh):
            opened_tab.locator("#draw-curves details summary").first.click()
        until(lambda: drawn(tab) == drawn(fresh), tab)

        assert tab.locator("#draw-curves details").first.locator("tbody tr").count() == 15
        assert any("2 values are not finite, the first at step 13" in text for text in drawn(tab))


def test_a_range_that_ends_before_the_last_step_stays(tmp_path: Path, visit: Visit) -> None:
    """One that ends at the last step moves on with it."""
    steps = growing(tmp_path / "a", Shape(steps=30, ends=""))
    go_on(tmp_path / "a", steps, 10)
    with served(tmp_path) as page:
        still, moving = opened(visit, page, "&steps=2-5"), opened(visit, page, "&steps=6-9")
        go_on(tmp_path / "a", steps, 5)
        until(lambda: "steps 11 to 14 of 0 to 14" in moving.locator("#curves .heading").inner_text(), moving)
        until(lambda: "steps 2 to 5 of 0 to 14" in still.locator("#curves .heading").inner_text(), still)


def test_a_link_of_the_page_has_its_run(tmp_path: Path, visit: Visit) -> None:
    """An address that the page makes opens the same in another tab: the run, the step and the rank."""
    record(tmp_path / "a", Shape(steps=20, ranks=4, slow_rank=3))
    with served(tmp_path) as page:
        tab = opened(visit, page)
        links = tab.eval_on_selector_all(
            "#screen a:not(.skip)", "(all) => all.map((link) => link.getAttribute('href'))"
        )
        (line,) = page.runs()["runs"]
        assert {link for link in links if not link.startswith(f"#run={line['key']}&")} == set()
        tab.locator(".finding a[href*=rank]").first.click()
        until(lambda: "rank 3" in tab.locator("#where").inner_text(), tab)
        other = opened(visit, page, "&" + tab.url.partition("&")[2])
        until(lambda: other.locator("#where").inner_text() == tab.locator("#where").inner_text(), other)


def test_a_server_that_comes_back(tmp_path: Path, visit: Visit) -> None:
    """While nobody answers, the page says so and keeps what it shows; then it goes on by itself."""
    steps = growing(tmp_path / "a", Shape(steps=30, ends=""))
    go_on(tmp_path / "a", steps, 10)
    tokens = Tokens("t" * 32)
    server = PageServer([tmp_path], port=0, tokens=tokens)
    page = Served(server)
    tab = opened(visit, page, fails=True)
    server.close()
    until(lambda: "The server does not answer." in tab.locator("#watching").inner_text(), tab)
    assert "steps 0 to 9" in tab.locator("#curves .heading").inner_text()
    go_on(tmp_path / "a", steps, 5)
    server = PageServer([tmp_path], port=page.port, tokens=tokens)
    try:
        until(lambda: "steps 0 to 14" in tab.locator("#curves .heading").inner_text(), tab)
        until(lambda: "does not answer" not in tab.locator("#watching").inner_text(), tab)
    finally:
        server.close()


def test_hostile_texts_do_nothing(tmp_path: Path, visit: Visit) -> None:
    """Names and texts that try to become scripts are shown as texts, also when they are renewed."""
    shape = Shape(steps=6, metrics=0, texts=True, turns=True, gpus=True, workers=1, ends="", names=HOSTILE)
    steps = growing(tmp_path / "a", msgspec.structs.replace(shape, hostile="".join(HOSTILE)))
    go_on(tmp_path / "a", steps, 3)
    with served(tmp_path) as page:
        tab = opened(visit, page)
        go_on(tmp_path / "a", steps, 3)
        until(lambda: "steps 0 to 5" in tab.locator("#curves .heading").inner_text(), tab)

        assert tab.evaluate("window.pwned === undefined")
        assert tab.locator("main img, iframe, object, embed, base, svg:not(.path), video, form, template").count() == 0
        assert tab.locator("script").count() == 1
        for text in HOSTILE[:8]:
            assert tab.locator("#events td").get_by_text(text, exact=True).count() == 1


def test_a_hidden_page_asks_nothing(tmp_path: Path, visit: Visit) -> None:
    """While nobody sees it, no request is made; when it is seen again, it asks at once."""
    record(tmp_path / "a", Shape(steps=6))
    with served(tmp_path) as page:
        tab = opened(visit, page)
        tab.evaluate("Object.defineProperty(document, 'hidden', {configurable: true, get: () => true})")
        tab.wait_for_timeout(1500)
        asked: list[str] = []
        tab.on("request", lambda request: asked.append(request.url))
        tab.wait_for_timeout(3000)
        assert asked == []
        tab.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
        until(lambda: bool(asked), tab)


def test_back_to_all_runs(tmp_path: Path, visit: Visit) -> None:
    """The list comes back, and nothing more is asked of the run that was left."""
    record(tmp_path / "a", Shape(steps=6))
    with served(tmp_path) as page:
        tab = opened(visit, page)
        tab.get_by_text("all runs").click()
        until(lambda: tab.locator("table.runs a.name").count() == 1, tab)
        asked: list[str] = []
        tab.on("request", lambda request: asked.append(request.url))
        until(lambda: len(asked) > 2, tab)

        assert [url for url in asked if "/run/" in url] == []
        tab.locator("table.runs a.name").click()
        tab.locator("#draw-curves canvas").first.wait_for()


def test_a_run_that_is_removed(tmp_path: Path, visit: Visit) -> None:
    """The page says so, and keeps what it had."""
    steps = growing(tmp_path / "a", Shape(steps=12, ends=""))
    go_on(tmp_path / "a", steps, 6)
    with served(tmp_path) as page:
        tab = opened(visit, page, fails=True)
        shutil.rmtree(tmp_path / "a")
        until(lambda: "there no more" in tab.locator("#watching").inner_text(), tab)

        assert "steps 0 to 5" in tab.locator("#curves .heading").inner_text()


@pytest.mark.parametrize("width", [390, 1280, 2560])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_read_it(tmp_path: Path, visit: Visit, width: int, theme: str) -> None:
    """Axe finds nothing in a run that goes on, and nothing is wider than the screen."""
    from axe_playwright_python.sync_playwright import Axe

    go_on(tmp_path / "a", growing(tmp_path / "a", Shape(steps=30, ranks=4, slow_rank=3, ends="", turns=True)), 20)
    with served(tmp_path) as page:
        tab = opened(visit, page, "&step=4&rank=1", width=width, theme=theme)
        found = Axe().run(tab)

        assert found.violations_count == 0, found.generate_report()
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
