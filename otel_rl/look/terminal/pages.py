"""The places inside of a run that a reader can be at: what each shows, and where Enter and `w` lead from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.terminal import detail, overview, text_pages
from otel_rl.look.terminal.processes import rows_of
from otel_rl.look.terminal.scene import Question, Who

if TYPE_CHECKING:
    from otel_rl.look.terminal.scene import Drawn, Scene


class Page(NamedTuple):
    """A place inside of a run: what it shows, and the row of its cursor, or the first line of a text."""

    kind: str
    who: Who = ("", 0)
    step: int = 0
    number: int = 0
    cursor: int = 0
    question: Question = Question()


def draw(scene: Scene, page: Page, cells: int, height: int) -> Drawn:
    """Draw a page."""
    match page.kind:
        case "rank":
            return detail.draw_rank(scene, page.who, cells, height, page.cursor)
        case "step":
            return detail.draw_step(scene, page.who, page.step, cells, height, page.cursor)
        case "phase":
            return detail.draw_phase(scene, page.who, page.step, page.number, cells, height)
        case "findings":
            return text_pages.draw_findings(scene, cells, height, page.cursor)
        case "autopsy":
            return text_pages.draw_autopsy(scene, cells, height, page.cursor)
        case "why":
            return text_pages.draw_why(scene, page.question, cells, height, page.cursor)
        case "help":
            return text_pages.draw_help(scene, cells, height, page.cursor)
        case _:
            return overview.draw(scene, cells, height, page.cursor)


def inside(scene: Scene, page: Page) -> Page | None:
    """Return the page that Enter opens; `None` if there is none."""
    if page.kind == "run":
        rows = rows_of(scene)
        if page.cursor < len(rows):
            who = rows[page.cursor].role, rows[page.cursor].rank
            return Page("rank", who) if scene.step is None else Page("step", who, scene.step)
    elif page.kind == "rank":
        steps = detail.steps_of(scene, page.who)
        if page.cursor < len(steps):
            return Page("step", page.who, steps[page.cursor].step)
    elif page.kind == "step" and page.cursor < len(detail.phases_of(scene, page.who, page.step)):
        return Page("phase", page.who, page.step, page.cursor)
    return None


def question_of(scene: Scene, page: Page) -> Question:
    """Return what `w` asks: why the chosen step, or its phase, took its time; the run, if no step is chosen."""
    question = Question(scene.step)
    if page.kind == "rank":
        steps = detail.steps_of(scene, page.who)
        question = Question(steps[page.cursor].step if page.cursor < len(steps) else None)
    elif page.kind in ("step", "phase"):
        phases = detail.phases_of(scene, page.who, page.step)
        question = Question(page.step, phases[page.number].name if page.kind == "phase" else "")
    return Question() if question.step is not None and question.step < 0 else question
