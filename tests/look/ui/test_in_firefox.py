"""The main paths of the page in Firefox: the list, a search, a comparison, a run, and marks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_rl.look.ui.index import key_of
from otel_rl.recorder.archive.marks import marks_of
from tests.look.firefox import FirefoxTab, firefox
from tests.look.hostile import HOSTILE
from tests.look.recorded import Shape, record
from tests.look.ui.pages import Served, served, until
from tests.real_parts import needs_program

pytestmark = [pytest.mark.slow, needs_program("firefox-esr")]
_NAMES = "[...document.querySelectorAll('table.runs a.name')].map((link) => link.textContent)"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FirefoxTab]:
    """One browser for all tests."""
    with firefox(tmp_path_factory.mktemp("firefox") / "profile") as opened:
        yield opened()


@pytest.fixture
def page(tmp_path: Path, tab: FirefoxTab) -> Iterator[Served]:
    """Three runs, of which one has diverged and one has hostile names; no page may write an error to the console."""
    record(tmp_path / "a", Shape(name="baseline", steps=60))
    record(tmp_path / "b", Shape(name="diverged", steps=40, nan_from=30, project="math"))
    record(tmp_path / "c", Shape(name="odd", steps=20, hostile=HOSTILE[0], texts=True))
    tab.problems.clear()
    with served(tmp_path) as one:
        until(lambda: all(line["has_verdict"] for line in one.runs()["runs"]))
        yield one
        tab.go("about:blank")
    assert not [problem for problem in tab.problems if "favicon.ico" not in problem]  # the policy allows no icon


def test_the_list(page: Served, tab: FirefoxTab) -> None:
    """Runs are listed and found, hostile names are texts, and nothing is wider than the screen."""
    tab.size(390, 900)
    tab.go(page.server.link)
    tab.until(f"{_NAMES}.length === 3")
    assert tab.evaluate(_NAMES)[0] == "diverged"
    assert tab.evaluate("window.pwned") is None
    assert page.token not in tab.evaluate("location.href")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    search = "document.getElementById('find')"
    tab.evaluate(f"({search}.value = 'project:math', {search}.dispatchEvent(new Event('input')))")
    tab.until(f"{_NAMES}.join() === 'diverged'")


def test_a_comparison(page: Served, tab: FirefoxTab, tmp_path: Path) -> None:
    """Curves are drawn over each other, with what differs and what is said."""
    tab.size(1280, 900)
    tab.go(f"{page.server.link}&compare={key_of(tmp_path / 'a')},{key_of(tmp_path / 'b')}")
    tab.until("document.documentElement.dataset.ready === 'compare'")
    tab.until("document.querySelectorAll('figure canvas').length >= 6")

    assert "10 values are not finite" in tab.evaluate("document.querySelector('figure[data-name=loss]').textContent")
    assert tab.evaluate("document.querySelectorAll('.sentences li').length") >= 1


def test_a_run(page: Served, tab: FirefoxTab, tmp_path: Path) -> None:
    """Its page has the verdict, curves and the timeline; a link to a step leads there."""
    tab.go(f"{page.server.link}&run={key_of(tmp_path / 'a')}&step=12&rank=1")
    tab.until("document.documentElement.dataset.ready === 'run'")
    tab.until("document.querySelectorAll('#curves canvas').length >= 4")

    assert "step 12" in tab.evaluate("document.querySelector('#where').textContent")
    tab.until("document.querySelectorAll('#timeline canvas').length >= 1")


def test_a_mark(page: Served, tab: FirefoxTab, tmp_path: Path) -> None:
    """A run gets a name from its page."""
    tab.go(f"{page.server.link}&run={key_of(tmp_path / 'a')}")
    marks = "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Marks …' && !one.hidden)"
    tab.until(marks)
    tab.evaluate(f"({marks}.click(), 1)")
    tab.until("document.querySelector('dialog.marks input')")
    tab.evaluate("(document.querySelector('dialog.marks input').value = 'best', 1)")
    tab.evaluate("(document.querySelector('dialog.marks [type=submit]').click(), 1)")
    tab.until("document.querySelector('h1')?.textContent.includes('best')")

    assert marks_of(tmp_path / "a").name == "best"
