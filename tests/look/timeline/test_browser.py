"""The timeline in a real browser: zoom, pan, keys, selection, search, links; recorded text is only text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import otel_rl
from otel_rl.look.page.timeline import timeline_of
from tests.look.browser import chromium
from tests.look.timeline import made
from tests.look.timeline.page import Watched, written
from tests.real_parts import needs, needs_program

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.slow, needs("playwright"), needs_program("chromium")]
GUTTER, TOP = 148, 40
"""Pixels left of the lanes and above them, in a wide window."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def slow_rank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("timeline")
    return written(place / "page.html", timeline_of(otel_rl.open_run(made.straggler(place / "run"))))


@pytest.fixture
def page(browser: Browser, slow_rank: Path) -> Iterator[Watched]:
    """The timeline of two ranks and 60 steps, the second of which is slow from step 30 on."""
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        watched = Watched(context.new_page(), slow_rank)
        yield watched
        assert watched.complaints == []
        assert watched.requests == [slow_rank.as_uri()]


def box_of(page: Watched) -> dict[str, float]:
    box = page.page.locator(".timeline-canvas").bounding_box()
    assert box is not None
    return {"x": box["x"], "y": box["y"], "width": box["width"]}


def test_the_wheel_zooms_at_the_pointer(page: Watched) -> None:
    """The moment below the pointer stays where it is."""
    box, before = box_of(page), page.shown()
    share = 0.25
    page.page.mouse.click(box["x"] + 20, box["y"] + TOP + 30)
    page.page.mouse.move(box["x"] + GUTTER + share * (box["width"] - GUTTER), box["y"] + TOP + 30)
    page.page.mouse.wheel(0, -800)

    first, last = page.shown()

    at = before[0] + share * (before[1] - before[0])
    assert last - first < (before[1] - before[0]) / 2
    assert first + share * (last - first) == pytest.approx(at, abs=0.01 * (before[1] - before[0]))


def test_the_wheel_scrolls_the_page_until_the_timeline_is_clicked(page: Watched) -> None:
    """A reader who scrolls through a report is not caught by the timeline."""
    box, before = box_of(page), page.shown()
    page.page.mouse.move(box["x"] + 600, box["y"] + TOP + 30)
    page.page.mouse.wheel(0, -300)

    assert page.shown() == before


def test_dragging_pans(page: Watched) -> None:
    """The part that is shown moves by as much as the pointer, and keeps its length."""
    page.page.locator(".timeline-stage").focus()
    for _ in range(6):
        page.page.keyboard.press("w")
    box, before = box_of(page), page.shown()
    page.page.mouse.move(box["x"] + 900, box["y"] + TOP + 30)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + 700, box["y"] + TOP + 30, steps=4)
    page.page.mouse.up()

    first, last = page.shown()

    moved = 200 / (box["width"] - GUTTER) * (before[1] - before[0])
    assert last - first == pytest.approx(before[1] - before[0])
    assert first - before[0] == pytest.approx(moved, rel=0.02)


def test_keys_zoom_pan_and_return(page: Watched) -> None:
    """W and S zoom, A and D pan, 0 shows the whole run."""
    whole = page.shown()
    page.page.locator(".timeline-stage").focus()
    for _ in range(3):
        page.page.keyboard.press("w")
    near = page.shown()
    page.page.keyboard.press("d")
    right = page.shown()
    page.page.keyboard.press("a")
    left = page.shown()
    page.page.keyboard.press("s")
    wider = page.shown()
    page.page.keyboard.press("0")

    assert near[1] - near[0] < (whole[1] - whole[0]) / 2
    assert right[0] > near[0]
    assert left == pytest.approx(near)
    assert wider[1] - wider[0] > near[1] - near[0]
    assert page.shown() == pytest.approx(whole)


def test_zoom_reaches_a_millisecond(page: Watched) -> None:
    """The part that is shown can be shorter than a millisecond."""
    page.page.locator(".timeline-stage").focus()
    for _ in range(50):
        page.page.keyboard.press("w")

    first, last = page.shown()

    assert last - first < 0.001


def test_a_link_selects_step_rank_and_phase(page: Watched) -> None:
    """`select` shows the step, selects the phase of the rank, and does not report it as the reader's choice."""
    assert page.page.evaluate("timeline.select({step: 40, rank: 1, phase: 'update_actor'})") is True
    first, last = page.shown()

    assert page.words() == "selected: step 40 · rank 1 · update_actor · 6 s"
    assert 15 < last - first < 40
    assert page.selected() is None


def test_select_without_a_phase_selects_the_longest(page: Watched) -> None:
    """The longest phase of the slow rank in a step is its rollout."""
    page.page.evaluate("timeline.select({step: 40, rank: 1})")

    assert page.words().startswith("selected: step 40 · rank 1 · generate · ")


def test_show_shows_a_stretch_of_time(page: Watched) -> None:
    """`show` takes Unix nanoseconds; a little room is left on both sides."""
    start = made.ORIGIN + 100_000_000_000
    page.page.evaluate(f"timeline.show({{first_ns: '{start}', last_ns: '{start + 50_000_000_000}'}})")

    first, last = page.shown()

    assert (first, last) == (pytest.approx(99, abs=0.1), pytest.approx(151, abs=0.1))


def test_a_click_selects_and_arrows_move(page: Watched) -> None:
    """A click selects the span below the pointer; arrows go to the next one, to inner ones, and to other ranks."""
    page.page.evaluate("timeline.select({step: 16, rank: 0, phase: 'reward'})")
    page.settle()
    assert "Timeout: the verifier did not answer" in page.page.locator(".timeline-facts").inner_text()
    box = box_of(page)
    page.page.mouse.click(box["x"] + GUTTER + 150, box["y"] + TOP + 30)
    chosen = page.selected()
    page.page.keyboard.press("ArrowRight")
    after = page.selected()
    page.page.keyboard.press("ArrowLeft")
    page.page.keyboard.press("ArrowDown")
    inner = page.selected()
    page.page.keyboard.press("ArrowDown")
    other = page.selected()

    assert (chosen["step"], chosen["rank"], chosen["role"], chosen["phase"]) == (16, 0, "", "generate")
    assert chosen["span"]["category"] == "rollout"
    assert after["phase"] == "reward"
    assert (inner["rank"], inner["phase"]) == (0, "generate.execute")
    assert (other["rank"], other["phase"]) == (1, "generate")


def test_enter_goes_in_and_escape_out(page: Watched) -> None:
    """Enter shows the selected span from end to end, Esc what was there before, and at last selects nothing."""
    whole = page.shown()
    page.page.locator(".timeline-stage").focus()
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("Enter")
    first, last = page.shown()
    took = page.selected()["span"]["duration_s"]
    page.page.keyboard.press("Escape")
    back = page.shown()
    page.page.keyboard.press("Escape")

    assert took <= last - first < 1.1 * took
    assert back == pytest.approx(whole)
    assert page.selected()["span"] is None
    assert page.words() == ""


def test_search_counts_and_goes_through_matches(page: Watched) -> None:
    """The number of matching spans is shown; Enter selects one after the other."""
    page.page.locator(".timeline-stage").focus()
    page.page.keyboard.press("/")
    page.page.keyboard.type("sync")
    page.settle()
    counter = page.page.locator(".timeline-found").inner_text()
    page.page.keyboard.press("Enter")
    selected = page.selected()
    page.page.keyboard.press("Enter")
    two = page.selected()

    assert counter == "sync_weights: 120 spans"
    assert {selected["phase"], two["phase"]} == {"sync_weights"}
    assert (selected["step"], selected["rank"]) != (two["step"], two["rank"])


def test_the_table_has_the_longest_spans_in_view(page: Watched) -> None:
    """A screen reader gets the longest spans in view in order, and can select them."""
    page.page.evaluate("timeline.select({step: 40, rank: 1})")
    page.page.locator(".timeline-table summary").click()
    page.settle()
    rows = page.page.locator(".timeline-table tbody tr")
    cells = rows.first.locator("th, td").all_inner_texts()
    rows.nth(3).locator("button").click()

    assert cells[:4] == ["generate", "node2", "rank 1", "40"]
    assert page.selected()["step"] == 40


def test_recorded_text_is_only_text(browser: Browser, tmp_path: Path) -> None:
    """Names, messages and attributes with markup run nothing, and are readable."""
    path = written(tmp_path / "page.html", timeline_of(otel_rl.open_run(made.hostile(tmp_path / "run"))))
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = Watched(context.new_page(), path)
        page.page.locator(".timeline-table summary").click()
        for text in made.HOSTILE:
            page.page.evaluate("(phase) => timeline.select({rank: 0, phase})", text)
            page.page.evaluate("(role) => timeline.select({rank: 0, role})", text)
            page.page.locator(".timeline-search").fill(text)
            page.settle()
        page.page.evaluate("timeline.select({rank: 0, role: '', phase: '<img src=x onerror=window.pwned=1>'})")
        page.settle()

        assert page.page.evaluate("window.pwned") is None
        assert page.page.locator("#place script, #place img, #place b").count() == 0
        assert "<img src=x onerror=window.pwned=1>" in page.words()
        assert page.complaints == []
        assert page.requests == [path.as_uri()]


@pytest.mark.parametrize("width", [390, 1280, 2560])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_every_window(browser: Browser, slow_rank: Path, width: int, scheme: str) -> None:
    """Nothing is wider than the window, and lanes are drawn in the colors of the theme."""
    with browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme) as context:  # type: ignore[arg-type]
        page = Watched(context.new_page(), slow_rank)
        wide = page.page.evaluate("document.documentElement.scrollWidth")
        corner = page.page.evaluate(
            "[...document.querySelector('.timeline-canvas').getContext('2d').getImageData(1, 1, 1, 1).data]"
        )

        assert wide <= width
        assert (sum(corner[:3]) > 600) == (scheme == "light")
        assert page.complaints == []


def test_touch_pans_and_pinches(browser: Browser, slow_rank: Path) -> None:
    """Two fingers zoom, one pans, a tap selects."""
    with browser.new_context(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True) as context:
        page = Watched(context.new_page(), slow_rank)
        whole, box = page.shown(), box_of(page)
        touch = context.new_cdp_session(page.page)

        def fingers(kind: str, *xs: float) -> None:
            points = [{"x": box["x"] + x, "y": box["y"] + TOP + 30, "id": n} for n, x in enumerate(xs)]
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        fingers("touchStart", 200, 240)
        for spread in range(0, 60, 6):
            fingers("touchMove", 200 - spread, 240 + spread)
        fingers("touchEnd")
        near = page.shown()
        page.page.touchscreen.tap(box["x"] + 220, box["y"] + TOP + 30)

        assert near[1] - near[0] < (whole[1] - whole[0]) / 2
        assert page.selected()["span"] is not None
        assert page.complaints == []
