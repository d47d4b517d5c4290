"""`otel-rl top` as an application of Textual: it adds keys, a mouse and a clock to what is drawn without it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from textual.app import App
from textual.binding import Binding
from textual.widgets import Input

from otel_rl.view.terminal import detail, overview
from otel_rl.view.terminal.canvas import CSS, Answer, Canvas
from otel_rl.view.terminal.present import Present, present_of
from otel_rl.view.terminal.reading import Found, Reading
from otel_rl.view.terminal.scene import Drawn, Scene, Who

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual import events
    from textual.app import ComposeResult

    from otel_rl.archive.runs import Place

_EVERY_S, _OVER_EVERY_S = 1.0, 5.0
_MOST_STEPS = 64
"""Steps whose phases and values are kept."""


class Page(NamedTuple):
    """A place inside of a run: what it shows, and the row of its cursor."""

    kind: str
    who: Who = ("", 0)
    step: int = 0
    number: int = 0
    cursor: int = 0


class Top(App[bool]):
    """The screen of a run.

    Args:
        place: The run directory.
        first: What was shown while this application was loaded.
        has_unicode: Whether the terminal shows characters outside of ASCII.
        is_over: Returns whether to end.
    """

    CSS = CSS
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[Any]] = [
        Binding("q", "end(True)"),
        Binding("ctrl+c", "end(False)", priority=True),
        Binding("up,k", "move(-1)"),
        Binding("down,j", "move(1)"),
        Binding("pageup", "move(-20)"),
        Binding("pagedown", "move(20)"),
        Binding("enter", "enter"),
        Binding("escape", "leave"),
        Binding("left,h", "scrub(-1)"),
        Binding("right,l", "scrub(1)"),
        Binding("shift+left", "scrub(-10)"),
        Binding("shift+right", "scrub(10)"),
        Binding("home", "scrub_to_start"),
        Binding("end", "scrub_to_end"),
        Binding("slash", "search"),
        Binding("f", "open('findings')"),
        Binding("s", "sort"),
        Binding("space", "pause"),
        Binding("question_mark", "open('help')"),
    ]

    def __init__(
        self, place: Place, first: Present, *, has_unicode: bool = True, is_over: Callable[[], bool] | None = None
    ) -> None:
        super().__init__(ansi_color=True)
        self._place, self._is_over = place, is_over
        self.scene = Scene(present=first)
        self.pages = [Page("run")]
        self.drawn = Drawn([])
        self._canvas = Canvas(has_unicode=has_unicode)
        self._reading = Reading(str(place.path), self._found)
        self._read_at = self._facts_at = time.monotonic()

    def _found(self, found: Found) -> None:
        """Take an answer in the thread that has read it."""
        self.post_message(Answer(found))

    def compose(self) -> ComposeResult:
        """Return the widgets."""
        yield self._canvas
        yield Input(placeholder="search metrics, phases, ranks, hosts", select_on_focus=False)

    def on_mount(self) -> None:
        """Begin to read and to look."""
        self.title = f"otel-rl top {self._place.path}"
        self._canvas.focus()
        self._reading.start()
        self._ask_for_all()
        self.set_interval(_EVERY_S, self._tick)

    def on_unmount(self) -> None:
        """Let the thread end."""
        self._reading.stop()

    def on_resize(self) -> None:
        """Draw again."""
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Draw the page that is open."""
        cells, height = self._canvas.size.width, self._canvas.size.height
        if cells < 2 or height < 2:
            return
        page, room = self.pages[-1], height - 1
        self.drawn = self._draw_page(page, cells, room)
        lines = self.drawn.lines[:room]
        lines += [()] * (room - len(lines))
        self._canvas.show([*lines, detail.keys(self.scene, cells, deep=page.kind != "run")])

    def _draw_page(self, page: Page, cells: int, height: int) -> Drawn:
        scene = self.scene
        match page.kind:
            case "rank":
                return detail.draw_rank(scene, page.who, cells, height, page.cursor)
            case "step":
                return detail.draw_step(scene, page.who, page.step, cells, height, page.cursor)
            case "phase":
                return detail.draw_phase(scene, page.who, page.step, page.number, cells, height)
            case "findings":
                return detail.draw_findings(scene, cells, height)
            case "help":
                return detail.draw_help(scene, cells)
            case _:
                return overview.draw(scene, cells, height, page.cursor)

    def action_end(self, is_well: bool) -> None:
        """End; the result is false after Ctrl-C."""
        self.exit(is_well)

    def _tick(self) -> None:
        scene, now = self.scene, time.monotonic()
        if self._is_over is not None and self._is_over():
            self.exit(True)
            return
        if scene.is_paused:
            return
        if now - self._read_at >= (_OVER_EVERY_S if scene.present.is_over else _EVERY_S) - 0.1:
            self._read_at = now
            found = present_of(self._place)
            if found.is_complete or not scene.present.is_complete:
                if _stage(found) != _stage(scene.present):
                    self._facts_at = 0.0
                scene.present = found
        if not self._facts_at or (not scene.present.is_over and now - self._facts_at > self._reading.pause):
            self._ask_for_all()
        self.draw()

    def _ask_for_all(self) -> None:
        """Ask for what the first screen shows of the past; the last one asked for is answered first."""
        self._facts_at = time.monotonic()
        names = [one.name for one in self.scene.present.progress.curves]
        for question in (("facts",), ("names",), ("bounds",), ("curves", *names)):
            self._reading.ask(*question)
        if not self.scene.present.is_complete:
            self.scene.note = "reading what the run recorded …"
            self._reading.ask("present")

    def on_answer(self, message: Answer) -> None:
        """Show what was read."""
        question, found = message.found
        scene = self.scene
        if isinstance(found, Exception):
            scene.note = f"the archive could not be read: {type(found).__name__}: {found}"
            self.draw()
            return
        match question:
            case ("present",):
                scene.present, scene.note = found, ""
                self._reading.ask("curves", *(one.name for one in found.progress.curves))
            case ("facts",):
                scene.facts = found
            case ("names",):
                scene.names = found
            case ("bounds",):
                scene.bounds = found
            case ("curves", *_):
                scene.curves = {**scene.curves, **found}
            case ("step", int(number)):
                scene.of_step = {**dict(list(scene.of_step.items())[-_MOST_STEPS:]), number: found}
            case ("values", int(number)):
                scene.values = {**dict(list(scene.values.items())[-_MOST_STEPS:]), number: found}
            case ("rank", str(role), int(rank)):
                scene.of_rank = {**scene.of_rank, (role, rank): found}
            case _:
                pass
        self.draw()

    def _need(self, page: Page) -> None:
        """Ask for what a page shows."""
        scene = self.scene
        if page.kind in ("rank", "step", "phase"):
            self._reading.ask("rank", *page.who)
        if page.kind in ("step", "phase") and page.step >= 0:
            self._need_step(page.step)
        if page.kind == "run" and scene.step is not None:
            self._need_step(scene.step)

    def _need_step(self, step: int) -> None:
        for kind, known in (("values", self.scene.values), ("step", self.scene.of_step)):
            if step not in known:
                self._reading.ask(kind, step)

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        last = max(0, self.drawn.rows - 1)
        self._put_cursor(min(last, max(0, self.pages[-1].cursor + rows)))

    def _put_cursor(self, row: int) -> None:
        self.pages[-1] = self.pages[-1]._replace(cursor=row)
        self.draw()

    def action_enter(self) -> None:
        """Go in."""
        page, scene = self.pages[-1], self.scene
        if page.kind == "run":
            rows = overview.rows_of(scene)
            if page.cursor < len(rows):
                who = rows[page.cursor].role, rows[page.cursor].rank
                inside = Page("rank", who) if scene.step is None else Page("step", who, scene.step)
                self._go_in(inside)
        elif page.kind == "rank":
            steps = detail.steps_of(scene, page.who)
            if page.cursor < len(steps):
                self._go_in(Page("step", page.who, steps[page.cursor].step))
        elif page.kind == "step" and page.cursor < len(detail.phases_of(scene, page.who, page.step)):
            self._go_in(Page("phase", page.who, page.step, page.cursor))

    def _go_in(self, page: Page) -> None:
        self.pages.append(page)
        self._need(page)
        self.draw()

    def action_leave(self) -> None:
        """Go out: of a page, of the search, of a step."""
        if len(self.pages) > 1:
            self.pages.pop()
        elif self.scene.pattern:
            self._search_for("")
        else:
            self.scene.step = None
        self.draw()

    def action_scrub(self, steps: int) -> None:
        """Look at another step."""
        progress, bounds = self.scene.present.progress, self.scene.bounds
        last = progress.last_step if progress.last_step is not None else (bounds[1] if bounds else None)
        first = progress.first_step if progress.first_step is not None else (bounds[0] if bounds else None)
        if self.pages[-1].kind != "run" or last is None or first is None:
            return
        wanted = (last + 1 if self.scene.step is None else self.scene.step) + steps
        self.scene.step = max(first, wanted) if wanted <= last else None
        self._need(self.pages[-1])
        self.draw()

    def action_scrub_to_start(self) -> None:
        """Look at the first step."""
        first = self.scene.present.progress.first_step
        if first is not None and self.pages[-1].kind == "run":
            self.scene.step = first
            self._need(self.pages[-1])
        else:
            self._put_cursor(0)
        self.draw()

    def action_scrub_to_end(self) -> None:
        """Look at the present."""
        if self.pages[-1].kind == "run":
            self.scene.step = None
            self.draw()
        else:
            self._put_cursor(max(0, self.drawn.rows - 1))

    def action_open(self, kind: str) -> None:
        """Show a page, or leave it if it is shown."""
        if self.pages[-1].kind == kind:
            self.pages.pop()
        else:
            self.pages.append(Page(kind))
        self.draw()

    def action_pause(self) -> None:
        """Let the screen stand still, or go on."""
        self.scene.is_paused = not self.scene.is_paused
        self._tick()
        self.draw()

    def action_sort(self) -> None:
        """Put the processes that wait longest first, or all in their order."""
        self.scene.is_sorted = not self.scene.is_sorted
        self._put_cursor(0)

    def action_search(self) -> None:
        """Open the line for a search."""
        field = self.query_one(Input)
        field.value = self.scene.pattern
        field.display = True
        field.focus()

    def on_input_changed(self, message: Input.Changed) -> None:
        """Search while the reader types."""
        if message.input.display:
            self._search_for(message.value)

    def on_input_submitted(self, message: Input.Submitted) -> None:
        """Keep what was found."""
        self._close_search()

    def on_key(self, event: events.Key) -> None:
        """Let Escape end a search."""
        if event.key == "escape" and self.query_one(Input).display:
            event.stop()
            event.prevent_default()
            self._search_for("")
            self._close_search()

    def _close_search(self) -> None:
        self.query_one(Input).display = False
        self._canvas.focus()
        self.draw()

    def _search_for(self, pattern: str) -> None:
        self.scene.pattern = pattern
        self.pages[-1] = self.pages[-1]._replace(cursor=0)
        missing = [name for name in self.scene.names if pattern and self.scene.matches(name)][:24]
        missing = [name for name in missing if name not in self.scene.curves]
        if missing:
            self._reading.ask("curves", *missing)
        self.draw()

    def on_click(self, event: events.Click) -> None:
        """Choose a row; a second time, go in."""
        row = event.y - self.drawn.first
        if 0 <= row < self.drawn.shown:
            chosen = self.drawn.top + row
            if chosen == self.pages[-1].cursor:
                self.action_enter()
            else:
                self._put_cursor(chosen)

    def on_mouse_scroll_down(self) -> None:
        """Move the cursor down."""
        self.action_move(3)

    def on_mouse_scroll_up(self) -> None:
        """Move the cursor up."""
        self.action_move(-3)


def _stage(present: Present) -> tuple[object, ...]:
    """Return what makes the findings old at once when it changes."""
    return present.state, present.progress.attempt, present.progress.steps > 0
