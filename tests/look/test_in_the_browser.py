"""The page in a real browser: links, keys, the mouse, other widths and themes, and texts that try to act."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import otel_rl
from otel_rl.export import LogRecord
from otel_rl.look.page.report import write_report
from otel_rl.recorder.archive.writer import ArchiveWriter
from tests.look.hostile import HOSTILE
from tests.look.recorded import STARTED, Shape, record
from tests.look.ui.pages import until
from tests.real_parts import needs, needs_program

Look = Callable[..., Any]

pytestmark = [pytest.mark.slow, needs("playwright"), needs("axe_playwright_python"), needs_program("chromium")]

_SHAPES = {
    "straggler": Shape(steps=60, ranks=4, slow_rank=3, slower_from=30, gpus=True, texts=True),
    "turns": Shape(steps=60, turns=True),
    "asynchronous": Shape(steps=20, workers=3),
    "resumed": Shape(steps=40, resumed_at=25),
    "diverged": Shape(steps=30, nan_from=20),
    "crashed": Shape(steps=12, ends="crashed", error="SIGKILL"),
    "live": Shape(steps=12, ends=""),
    "one step": Shape(steps=1, ranks=1),
    "no step": Shape(steps=0),
    "wide": Shape(steps=4, ranks=256, metrics=0),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory in which runs and reports are kept for all tests."""
    return tmp_path_factory.mktemp("reports")


@pytest.fixture
def report_of(place: Path) -> Callable[[str], Path]:
    """Return the function that returns the report of a run of a shape."""

    def made(name: str) -> Path:
        file = place / f"{name.replace(' ', '-')}.html"
        if not file.exists():
            write_report(record(place / file.stem, _SHAPES[name]), file)
        return file

    return made


def through(page: Any) -> None:
    """Scroll to the end, so that everything is drawn."""
    for _ in range(12):
        page.mouse.wheel(0, 900)
        page.wait_for_timeout(50)


def address(page: Any) -> str:
    """Return what the page has behind the number sign in its address."""
    fragment: str = page.evaluate("location.hash")
    return fragment


@pytest.mark.parametrize("name", _SHAPES)
def test_every_run_is_drawn(look: Look, report_of: Callable[[str], Path], name: str) -> None:
    """A run of any kind is drawn without an error or a request, at all widths without scrolling sideways."""
    for width, theme in ((390, "dark"), (1280, "light"), (2560, "dark")):
        page = look(report_of(name), width=width, theme=theme)
        through(page)
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_the_lines_of_a_span(look: Look, tmp_path: Path) -> None:
    """The selected span shows what its process printed in it; a link of a line leads to its step and rank."""
    place = record(tmp_path / "run", Shape(steps=6))
    writer = ArchiveWriter(place / "archive" / "printed", 1 << 60)
    said = [
        (0, 2, "generate", "retrying"),
        (1, 2, "generate", "of another rank"),
        (0, 3, "generate", "of another step"),
    ]
    for number, (rank, step, phase, text) in enumerate(said):
        writer.add(LogRecord(0, STARTED + number, "", rank, "node0", number, "stdout", text, step=step, phase=phase))
    writer.save(seals=True)
    write_report(place, tmp_path / "run.html")
    page = look(tmp_path / "run.html")
    page.locator("#printed a", has_text="2").first.click()
    until(lambda: address(page) in ("#step=2&rank=0", "#step=2&rank=1"), page)
    page.evaluate("location.hash = '#step=2&rank=0&phase=generate'")
    until(lambda: page.locator(".timeline-selected dt", has_text="printed").count() == 1, page)

    assert page.locator(".timeline-selected dt:has-text('printed') + dd").inner_text() == "retrying"


@pytest.mark.parametrize("name", ["straggler", "turns"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_everybody_can_read_it(look: Look, report_of: Callable[[str], Path], name: str, theme: str, width: int) -> None:
    """Axe finds nothing: contrast, labels, the order of titles, focus."""
    page = look(report_of(name), "#step=40&rank=3", width=width, theme=theme)
    through(page)
    page.locator("#curves details summary").first.click()
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    report = page.evaluate("axe.run()")
    texts = [
        f"{violation['id']}: {node['html'][:160]} {node['failureSummary']}"
        for violation in report["violations"]
        for node in violation["nodes"]
    ]
    assert not texts, "\n".join(texts)


def test_hostile_texts_do_nothing(look: Look, tmp_path: Path) -> None:
    """Fifty names and texts that try to become scripts are shown as texts: each alone, and all of them in one."""
    assert len(HOSTILE) >= 50
    hostile = "".join(HOSTILE)
    shape = Shape(steps=6, metrics=0, texts=True, turns=True, gpus=True, workers=1, hostile=hostile, names=HOSTILE)
    write_report(record(tmp_path / "run", shape), tmp_path / "report.html")
    page = look(tmp_path / "report.html")
    through(page)
    for word in ("script", "on", "window", "http", "constructor"):
        page.locator("#search").fill(word)
        page.locator("#draw-curves .multiples").nth(1).locator("figure .u-wrap").first.wait_for()
    for summary in page.locator("details > summary").all()[:8]:
        summary.click()
    assert page.evaluate("window.pwned === undefined")
    assert page.locator("main img, iframe, object, embed, base, svg:not(.path), video, form, template").count() == 0
    assert page.locator("script:not([type])").count() == 1
    assert page.locator("main > section").count() == 15
    for text in HOSTILE[:8]:
        assert text in page.locator("h1").inner_text()
        assert page.locator("#events td").get_by_text(text, exact=True).count() == 1


def test_the_policy_stops_what_gets_in(chromium: Any, report_of: Callable[[str], Path]) -> None:
    """Even an element that a fault let in could not run a script, load an image or apply a style."""
    page = chromium.new_page()
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.goto(report_of("one step").as_uri())
    page.locator("html[data-ready=all]").wait_for()
    page.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "window.pwned = 1";
        document.body.append(script);
        const image = "<img src='http://127.0.0.1:9/x.png' onerror='window.pwned = 1'>";
        document.body.insertAdjacentHTML("beforeend", image);
        document.body.insertAdjacentHTML("beforeend", "<p id='p' style='position:fixed'>x</p>");
    }""")
    page.wait_for_timeout(300)
    assert page.evaluate("window.pwned === undefined")
    assert page.evaluate("getComputedStyle(document.getElementById('p')).position") == "static"
    assert sum("Content Security Policy" in text for text in refused) >= 3
    page.close()


def test_a_link_shows_a_step_of_a_rank(look: Look, report_of: Callable[[str], Path]) -> None:
    """An address with a step and a rank opens there; it is said in words, and stays in the address."""
    page = look(report_of("straggler"), "#step=40&rank=3")
    assert "step 40 · rank 3" in page.locator("#where").inner_text()
    assert address(page) == "#step=40&rank=3"


def test_a_link_stays_at_its_part(look: Look, report_of: Callable[[str], Path]) -> None:
    """A link to a part ends there, although the parts above it grow when they are drawn."""
    page = look(report_of("straggler"), "#step=40&rank=3&at=timeline")
    page.wait_for_timeout(500)
    top = page.evaluate("document.getElementById('timeline').getBoundingClientRect().top")
    assert 0 <= top < 200


def test_evidence_is_one_click_away(look: Look, report_of: Callable[[str], Path]) -> None:
    """The link of a finding shows its steps and its part of the page, and going back leads out again."""
    page = look(report_of("straggler"))
    link = page.locator(".finding a[href*=steps]").first
    steps = link.get_attribute("href").split("steps=")[1].split("&")[0].replace("-", " to ")
    link.click()
    page.wait_for_timeout(300)
    assert f"steps {steps}" in page.locator("#where").inner_text() or steps == "0 to 59"
    page.go_back()
    page.wait_for_timeout(300)
    assert page.locator("#where").inner_text() == ""


def test_dragging_over_the_overview_chooses_steps(look: Look, report_of: Callable[[str], Path]) -> None:
    """All parts follow the overview; Esc leads out."""
    page = look(report_of("straggler"))
    box = page.locator("#brush canvas").bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, y, steps=5)
    page.mouse.up()
    page.wait_for_timeout(100)
    assert address(page) in ("#steps=15-29", "#steps=15-30", "#steps=14-29", "#steps=14-30")
    page.locator("#phases details.behind summary").click()
    shown = page.locator("#phases details.behind tbody tr")
    assert shown.first.locator("td").first.inner_text() in ("14", "15")
    assert shown.count() in (15, 16, 17)
    page.locator("body").click(position={"x": 2, "y": 2})
    page.keyboard.press("Escape")
    page.wait_for_timeout(100)
    assert address(page) in ("", "#")


def test_the_keyboard_does_what_the_mouse_does(look: Look, report_of: Callable[[str], Path]) -> None:
    """The keys are shown by `?`; they search, change the theme, and go through steps and parts."""
    page = look(report_of("straggler"))
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("dialog").is_visible()
    page.keyboard.press("/")
    page.keyboard.type("extra_3")
    assert page.locator("#draw-curves .multiples").nth(1).locator("figure").count() == 1
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(100)
    assert address(page) == "#step=1"
    page.keyboard.press("+")
    page.wait_for_timeout(100)
    assert "steps=" in address(page)
    page.keyboard.press("0")
    page.keyboard.press("Escape")
    page.wait_for_timeout(100)
    assert address(page) in ("", "#")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.id") != ""


def test_clicking_a_cell_chooses_rank_and_step(look: Look, report_of: Callable[[str], Path]) -> None:
    """From ranks and steps, a click goes into one rank in one step."""
    page = look(report_of("straggler"))
    canvas = page.locator("#waiting canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.click(box["x"] + 54 + (box["width"] - 54) * 40.5 / 60, box["y"] + (box["height"] - 22) * 3.5 / 4)
    page.wait_for_timeout(200)
    assert address(page) == "#step=40&rank=3"


def test_numbers_are_those_of_the_reader(look: Look, report_of: Callable[[str], Path], place: Path) -> None:
    """The table behind a curve has the values of `open_run`, and the title line its number of steps and ranks."""
    page = look(report_of("straggler"))
    page.locator("figure[data-name=reward] details summary").first.click()
    cells = page.locator("figure[data-name=reward] td.number").all_inner_texts()
    rows = otel_rl.open_run(place / "straggler").rows("reward")
    assert cells[0::2] == [str(step) for step in rows["step"]]
    assert [float(cell) for cell in cells[1::2]] == pytest.approx(rows["value"], rel=5e-3)
    facts = page.locator("header .facts").inner_text()
    assert "60 of 60 steps" in facts
    assert "4 ranks on 1 machine" in facts


def test_samples_are_found(look: Look, report_of: Callable[[str], Path]) -> None:
    """Completions can be filtered, and follow the chosen step."""
    page = look(report_of("straggler"), "#step=40")
    samples = page.locator("#draw-data tbody tr")
    assert samples.count() == 8
    page.locator("#draw-data input").fill("1 + 40")
    assert samples.count() == 4


def test_it_can_be_printed(look: Look, report_of: Callable[[str], Path]) -> None:
    """On paper, it is light and has no buttons."""
    page = look(report_of("straggler"), theme="dark")
    page.emulate_media(media="print")
    assert not page.locator(".buttons").is_visible()
    assert page.locator("#verdict").is_visible()


def test_tables_fit_on_paper(look: Look, tmp_path: Path) -> None:
    """Nobody can scroll there, so that columns of long words are folded."""
    shape = Shape(steps=6, texts=True, metrics=0, hostile="_long" * 20)
    write_report(record(tmp_path / "run", shape), tmp_path / "report.html")
    page = look(tmp_path / "report.html", width=720)
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") == 720


def test_without_scripts_the_words_are_there(chromium: Any, report_of: Callable[[str], Path]) -> None:
    """A mail program or a browser without scripts shows the findings and the tables."""
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report_of("straggler").as_uri())
    assert page.locator(".finding").count() > 1
    assert "need JavaScript" in page.locator("noscript").inner_text()
    assert page.locator("#events tbody tr").count() == 4
    context.close()


def test_a_sample_is_read_down_to_its_tokens(look: Look, report_of: Callable[[str], Path]) -> None:
    """A row opens a sample: its turns with tool calls, its tokens with a hint, and what colors them."""
    page = look(report_of("turns"), "#at=data")
    page.locator(".sample-list tbody tr").nth(2).click()
    page.wait_for_timeout(100)
    assert address(page).startswith("#sample=")
    shown = page.locator(".transcripts article")
    assert shown.locator(".author").all_inner_texts() == ["system", "user", "assistant", "tool python", "assistant"]
    assert "→ python(" in shown.inner_text()
    assert shown.locator(".tokens").nth(1).locator("i").count() == 160
    assert shown.locator(".tokens.texts").inner_text().endswith(" so so so")
    shown.locator(".tokens i").nth(2).hover()
    for text in ("token 2 · id ", "engine: probability ", "trainer: probability 0.0183, log -4", "trained on"):
        assert text in page.locator("#hint").inner_text()
    choice = page.get_by_label("Color tokens by")
    assert choice.locator("option").count() == 6
    choice.select_option("ratio")
    assert shown.locator(".tokens i.low").count() > 2
    assert shown.locator(".tokens i").nth(2).evaluate("(cell) => cell.style.getPropertyValue('--heat')") == "100%"
    page.keyboard.press("Escape")
    page.wait_for_timeout(100)
    assert "sample" not in address(page)


def test_two_policies_side_by_side(look: Look, report_of: Callable[[str], Path]) -> None:
    """A sample of the same prompt from another step is put next to the chosen one; its link opens it again."""
    page = look(report_of("turns"), "#at=data")
    page.locator(".same button").first.click()
    titles = page.locator(".transcripts h3").all_inner_texts()
    assert len(titles) == 2
    assert len({title.split(" ")[1] for title in titles}) == 2
    questions = page.locator(".transcripts article").evaluate_all(
        "(those) => those.map((one) => one.querySelectorAll('.text')[1].innerText)"
    )
    assert questions[0] == questions[1]
    page.locator(".sample-list tbody tr").first.click()
    page.wait_for_timeout(100)
    shown = page.locator(".transcripts article h3").inner_text()
    other = look(report_of("turns"), address(page))
    assert other.locator(".transcripts article h3").inner_text() == shown


def _without_chart(page: Any) -> list[str]:
    """Return the titles of figures without a drawing, after two seconds at most."""
    titles: list[str] = []
    for _ in range(20):
        page.wait_for_timeout(100)
        titles = page.evaluate(
            "[...document.querySelectorAll('main figure')]"
            ".filter((figure) => !figure.querySelector('canvas, table')).map((figure) => figure.innerText)"
        )
        if not titles:
            break
    return titles


def test_charts_below_the_screen_are_drawn(look: Look, report_of: Callable[[str], Path]) -> None:
    """A screenshot of the whole page has all of them, and nobody has to scroll."""
    page = look(report_of("straggler"), width=390)
    assert page.locator("main figure").count() > 8
    assert _without_chart(page) == []


def test_paper_has_all_charts(look: Look, report_of: Callable[[str], Path]) -> None:
    """They are drawn before the page is printed, even if a browser is never idle."""
    page = look(report_of("straggler"))
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert _without_chart(page) == []


def test_the_shown_steps_are_written(look: Look, report_of: Callable[[str], Path]) -> None:
    """Beside the title of the curves, for all steps and for some."""
    page = look(report_of("straggler"))
    heading = page.locator("#curves .heading")
    assert "steps 0 to 59" in heading.inner_text()
    page.evaluate("location.hash = '#steps=20-29'")
    page.wait_for_function(
        "document.querySelector('#curves .heading').textContent.includes('steps 20 to 29 of 0 to 59')"
    )


def test_parts_without_anything(look: Look, report_of: Callable[[str], Path]) -> None:
    """They are one line together, and no link leads to them."""
    page = look(report_of("one step"))
    (line,) = page.locator("main > .nothing").all_inner_texts()
    assert line.startswith("Nothing to show: ")
    assert "Engines (No engine or worker beside the trainer was recorded)" in line
    assert not page.locator("nav a", has_text="Engines").is_visible()
    assert not page.locator("#engines").is_visible()


def test_events_on_a_phone(look: Look, report_of: Callable[[str], Path]) -> None:
    """No cell of an event is cut off at the edge of the screen."""
    page = look(report_of("straggler"), width=390)
    wide = page.evaluate(
        "Math.max(...[...document.querySelectorAll('#events td')].map((e) => e.getBoundingClientRect().right))"
    )
    assert 0 < wide <= 390
