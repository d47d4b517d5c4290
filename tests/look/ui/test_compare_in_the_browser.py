"""Search, order and columns of the list, and several runs over each other, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_rl.look.ui.index import key_of
from tests.look.hostile import HOSTILE
from tests.look.recorded import Shape, record
from tests.look.ui.pages import Served, Visit, served, until
from tests.real_parts import needs, needs_program

pytestmark = [pytest.mark.slow, needs("playwright"), needs("axe_playwright_python"), needs_program("chromium")]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Served]:
    """Three runs, of which one has diverged."""
    record(tmp_path / "a", Shape(name="baseline", steps=60))
    record(tmp_path / "b", Shape(name="diverged", steps=40, nan_from=30, project="math"))
    record(tmp_path / "c", Shape(name="longer", steps=90, slower_from=50))
    with served(tmp_path) as one:
        until(lambda: all(line["has_verdict"] for line in one.runs()["runs"]))
        yield one


def names(tab: Any) -> list[str]:
    """Return the names of the runs in the list, from the top."""
    return list(tab.locator("table.runs a.name").all_inner_texts())


def test_runs_are_found_and_sorted(page: Served, visit: Visit) -> None:
    """By text, state, project and value, by a click on a title, with columns of one's choice, all in the address."""
    tab = visit(page)
    until(lambda: len(names(tab)) == 3, tab)
    for text, expected in {
        "project:math": ["diverged"],
        "steps>50 -longer": ["baseline"],
        "DIVERG": ["diverged"],
    }.items():
        tab.locator("#find").fill(text)
        until(lambda: names(tab) == expected, tab)  # noqa: B023
    tab.locator("#find").fill("state:xyz")
    until(lambda: "unknown state" in tab.locator("main .note").first.inner_text(), tab)
    tab.locator("#find").fill("")
    tab.get_by_role("button", name="steps", exact=True).click()
    until(lambda: names(tab) == ["longer", "baseline", "diverged"], tab)
    assert tab.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
    tab.get_by_role("button", name="steps").click()
    until(lambda: names(tab) == ["diverged", "baseline", "longer"], tab)
    tab.get_by_label("Further columns").fill("lr, kl:max")
    tab.get_by_label("Further columns").press("Enter")
    until(
        lambda: (
            "0.000001" in tab.locator("td[data-title=lr]").first.inner_text()
            or "1e-6" in tab.locator("td[data-title=lr]").first.inner_text()
        ),
        tab,
    )
    address = tab.url.partition("#")[2]

    other = visit(page, f"&{address}")
    until(lambda: names(other) == ["diverged", "baseline", "longer"], other)
    assert other.locator("th button").filter(has_text="kl:max").count() == 1


def test_chosen_runs_over_each_other(page: Served, visit: Visit, tmp_path: Path) -> None:
    """Chosen by keyboard, they share a crosshair, and a diverged run leaves the others' shape."""
    tab = visit(page)
    until(lambda: len(names(tab)) == 3, tab)
    for box in tab.locator("table.runs input[type=checkbox]").all():
        box.focus()
        tab.keyboard.press("Space")
    tab.get_by_role("button", name="Compare 3 chosen").press("Enter")
    tab.locator("html[data-ready=compare]").wait_for(timeout=60_000)
    until(lambda: tab.locator("figure canvas").count() >= 6, tab)
    over = tab.locator("figure[data-name=reward] .u-over")
    over.hover(position={"x": 60, "y": 40})
    until(lambda: "step" in tab.locator("figure[data-name=kl] .readout").inner_text(), tab)

    assert all(
        name in tab.locator("figure[data-name=kl] .readout").inner_text() for name in ("baseline", "diverged", "longer")
    )
    assert "10 values are not finite, the first at step 30" in tab.locator("figure[data-name=loss]").inner_text()
    assert tab.locator(".sentences li").count() >= 1
    assert "math" not in tab.locator(".legend").inner_text()
    tab.get_by_label("Names, as a regular expression").fill("^train/extra_[12]$")
    tab.get_by_label("Names, as a regular expression").press("Enter")
    until(lambda: tab.locator("figure").count() == 2, tab)
    tab.get_by_label("x axis").select_option("time")
    until(lambda: "x=time" in tab.url, tab)


@pytest.mark.parametrize("width", [390, 1280, 2560])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_read_it(page: Served, visit: Visit, tmp_path: Path, width: int, theme: str) -> None:
    """Contrast, labels and landmarks are as axe wants them, and nothing is wider than the screen."""
    from axe_playwright_python.sync_playwright import Axe

    record(tmp_path / "d", Shape(name="another", steps=20, nan_from=9))
    until(lambda: len(page.runs()["runs"]) == 4 and all(line["has_verdict"] for line in page.runs()["runs"]))
    tab = visit(page, f"&compare={','.join(key_of(tmp_path / name) for name in 'abcd')}", width=width, theme=theme)
    tab.locator("html[data-ready=compare]").wait_for(timeout=60_000)
    until(lambda: tab.locator("figure canvas").count() >= 6, tab)
    found = Axe().run(tab)

    assert found.violations_count == 0, found.generate_report()
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_texts_that_try_to_act(tmp_path: Path, visit: Visit) -> None:
    """Names of runs, metrics and parameters are texts here too."""
    for number, text in enumerate(HOSTILE[:6]):
        record(tmp_path / str(number), Shape(steps=4, hostile=text))
    with served(tmp_path) as page:
        tab = visit(page, f"&compare={','.join(key_of(tmp_path / str(number)) for number in range(6))}")
        tab.locator("html[data-ready=compare]").wait_for(timeout=60_000)

        assert tab.evaluate("window.pwned") is None
        assert tab.locator("#screen img, #screen iframe, #screen script, #screen form, #screen object").count() == 0
