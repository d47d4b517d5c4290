"""Marks, deletion and links for reading, in a real browser."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_rl.recorder.archive.marks import marks_of
from tests.look.recorded import Shape, record
from tests.look.ui.pages import Served, Visit, served, until
from tests.real_parts import needs, needs_program

pytestmark = [pytest.mark.slow, needs("playwright"), needs("axe_playwright_python"), needs_program("chromium")]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Served]:
    """Three runs."""
    for name in ("alpha", "beta", "gamma"):
        record(tmp_path / "runs" / name, Shape(steps=4, name=name))
    with served(tmp_path / "runs") as one:
        yield one


def test_a_run_is_marked(page: Served, visit: Visit, tmp_path: Path) -> None:
    """By keyboard, from its own page: name, tags and notes are there at once, and whoever is refused reads why."""
    from axe_playwright_python.sync_playwright import Axe

    tab = visit(page)
    tab.locator("table.runs a.name", has_text="alpha").click()
    until(lambda: tab.locator("h1").all_inner_texts() != [] and "alpha" in tab.locator("h1").inner_text(), tab)
    tab.get_by_role("button", name="Marks …").click()
    tab.get_by_role("textbox", name="Name", exact=True).fill("best so far")
    tab.get_by_label("Tags").fill("good, candidate")
    tab.get_by_label("Notes").fill("<b>lr 3e-6</b> holds")
    tab.get_by_label("Baseline").check()
    found = Axe().run(tab)
    tab.get_by_role("button", name="Save").press("Enter")
    until(lambda: "best so far" in tab.locator("h1").inner_text(), tab)

    assert found.violations_count == 0, found.generate_report()
    assert "<b>lr 3e-6</b> holds" in tab.locator(".title").inner_text()
    marks = marks_of(tmp_path / "runs" / "alpha")
    assert (marks.name, marks.tags, marks.baseline) == ("best so far", ("candidate", "good"), True)


def test_a_mark_that_is_refused(page: Served, visit: Visit) -> None:
    """The dialog stays, with the reason."""
    tab = visit(page, fails=True)
    tab.locator("table.runs input[type=checkbox]").first.check()
    tab.get_by_role("button", name="Marks …").click()
    tab.get_by_label("Tags").fill("x" * 65)
    tab.get_by_role("button", name="Save").click()
    until(lambda: "a tag 64" in tab.locator("dialog [role=alert]").inner_text(), tab)


def test_runs_are_deleted_after_a_question(page: Served, visit: Visit, tmp_path: Path) -> None:
    """The question names them with their size; no run is deleted before its answer."""
    tab = visit(page)
    until(lambda: tab.locator("table.runs a.name").count() == 3, tab)
    for name in ("alpha", "beta"):
        tab.get_by_label(f"Choose {name}", exact=True).check()
    tab.get_by_role("button", name="Marks …").click()
    tab.get_by_role("button", name="Delete …").click()
    until(lambda: "archive" in tab.locator("dialog").last.inner_text(), tab)
    assert (tmp_path / "runs" / "alpha").exists()
    tab.get_by_role("button", name="Delete 2 runs").click()
    until(lambda: tab.locator("table.runs a.name").all_inner_texts() == ["gamma"], tab)

    assert [place.name for place in (tmp_path / "runs").iterdir()] == ["gamma"]


def test_a_link_for_reading(page: Served, visit: Visit) -> None:
    """It leads to what is shown, and has no button that changes anything."""
    tab = visit(page, "&runs&find=beta")
    tab.get_by_role("button", name="share").click()
    link = tab.get_by_label("Link for reading").input_value()
    other = tab.context.browser.new_context().new_page()
    page.tabs.append(other.context)
    other.goto(link)
    until(lambda: other.locator("table.runs a.name").all_inner_texts() == ["beta"], other)
    other.locator("table.runs input[type=checkbox]").first.check()

    assert other.get_by_role("button", name="Marks …").count() == 0
    assert page.token not in link


def test_a_page_that_frames_this_one(page: Served, visit: Visit) -> None:
    """A frame of another server of this machine gets no token, neither from other tabs nor from the storage."""
    body = f"<iframe src='http://127.0.0.1:{page.port}/'></iframe>".encode()

    class Framing(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Framing)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    own = visit(page, fails=True).context
    used, fresh = own.new_page(), own.new_page()
    used.goto(page.server.link)
    until(lambda: used.locator("table.runs a.name").count() == 3, used)
    for place in (used, fresh):  # the storage of one has the token
        place.goto(f"http://127.0.0.1:{other.server_port}/")
        frame = place.frame_locator("iframe")
        until(lambda: "needs the link" in frame.locator("#watching").inner_text(), place)  # noqa: B023
    other.shutdown()
