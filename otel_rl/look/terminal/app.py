"""`otel-rl top` as an application of Textual: it adds keys, a mouse and a clock to what is drawn without it."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from textual import work
from textual.app import App
from textual.binding import Binding
from textual.widgets import Input

from otel_rl.look.terminal import detail, overview, text_pages
from otel_rl.look.terminal.canvas import CSS, Canvas, ReplyArrived
from otel_rl.look.terminal.processes import rows_of
from otel_rl.look.terminal.reading import HistoryReader, Reply
from otel_rl.look.terminal.scene import Drawn, Question, Scene, Who
from otel_rl.recorder.archive.present import RunPresent, present_of
from otel_rl.semconv import EVENT_AUTOPSY_CONCLUDED as CONCLUDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual import events
    from textual.app import ComposeResult

    from otel_rl.recorder.archive.runs import Place

_EVERY_S, _OVER_EVERY_S, _NEWER_EVERY_S = 1.0, 5.0, 3.0
_NEWS_S = 15.0
"""Seconds for which the screen says that it shows another run."""


class Page(NamedTuple):
    """A place inside of a run: what it shows, and the row of its cursor, or the first line of a text."""

    kind: str
    who: Who = ("", 0)
    step: int = 0
    number: int = 0
    cursor: int = 0
    question: Question = Question()


class Top(App[bool]):
    """The screen of a run.

    Args:
        place: The run directory.
        first: What was shown while this application was loaded.
        has_unicode: Whether the terminal shows characters outside of ASCII.
        is_over: Returns whether to end.
        newest: Returns the run to show; by default, it stays the same.
    """

    CSS = CSS
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[Any]] = [
        Binding("q", "end(True)"),
        # Textual's own Ctrl-C only says how to quit, and one in the search copies: this has to come before both.
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
        Binding("a", "open('autopsy')"),
        Binding("w", "why"),
        Binding("s", "sort"),
        Binding("space", "pause"),
        Binding("question_mark", "open('help')"),
    ]

    def __init__(
        self,
        place: Place,
        first: RunPresent,
        *,
        has_unicode: bool = True,
        is_over: Callable[[], bool] | None = None,
        newest: Callable[[], Place | None] | None = None,
    ) -> None:
        super().__init__(ansi_color=True)  # else Textual turns the colors of the terminal into those of its theme
        self._place, self._is_over, self._newest = place, is_over, newest
        self._news_until = 0.0
        self.scene = Scene(present=first)
        self.pages = [Page("run")]
        self.drawn = Drawn([])
        self._canvas = Canvas(has_unicode=has_unicode)
        self._reading = HistoryReader(str(place.path), partial(self._post, str(place.path)))
        self._read_at = self._facts_at = time.monotonic()

    def _post(self, path: str, reply: Reply) -> None:
        """Take an answer in the thread that has read it."""
        # Any thread may call `post_message`; widgets must not be touched from here.
        self.post_message(ReplyArrived(reply, path))

    def compose(self) -> ComposeResult:
        """Return the widgets."""
        yield self._canvas
        yield Input(placeholder="search metrics, phases, ranks, hosts", select_on_focus=False)

    def on_mount(self) -> None:
        """Begin to read and to look."""
        self._canvas.focus()
        self._begin()
        self.set_interval(_EVERY_S, self._tick)
        if self._newest is not None:
            self.set_interval(_NEWER_EVERY_S, self._look_for_newer)

    def _begin(self) -> None:
        self.title = f"otel-rl top {self._place.path}"
        self._reading.start()
        self._ask_for_all()

    @work(thread=True, exclusive=True)
    def _look_for_newer(self) -> None:
        """Look for a newer run, in a thread: file systems can be slow."""
        place = None if self._newest is None else self._newest()
        if place is not None and place.path != self._place.path:
            self.call_from_thread(self._move_to, place)

    def _move_to(self, place: Place) -> None:
        """Show another run, unless the reader is in the middle of something."""
        scene = self.scene
        if len(self.pages) > 1 or scene.step is not None or scene.is_paused or self.query_one(Input).display:
            scene.news = f"A newer run has started: {place.project} · {place.name}. It is shown on the first screen."
            self._news_until = math.inf
            return
        self._reading.stop()
        news = f"A newer run has started, and is shown now. The run before: {scene.present.path}"
        self._place, self._news_until = place, time.monotonic() + _NEWS_S
        self.scene = Scene(present=present_of(place), is_sorted=scene.is_sorted, news=news)
        self.pages = [Page("run")]
        self._reading = HistoryReader(str(place.path), partial(self._post, str(place.path)))
        self._begin()
        self.draw()

    def on_unmount(self) -> None:
        """Let the thread end."""
        self._reading.stop()

    def on_resize(self) -> None:
        """Draw again."""
        # The canvas has its new size only after the refresh (tests/look/terminal/test_app.py).
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
        self._canvas.show([*lines, text_pages.keys(self.scene, cells, deep=page.kind != "run")])

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
                return text_pages.draw_findings(scene, cells, height, page.cursor)
            case "autopsy":
                return text_pages.draw_autopsy(scene, cells, height, page.cursor)
            case "why":
                return text_pages.draw_why(scene, page.question, cells, height, page.cursor)
            case "help":
                return text_pages.draw_help(scene, cells, height, page.cursor)
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
        if now > self._news_until:
            scene.news = ""
        if now - self._read_at >= (_OVER_EVERY_S if scene.present.is_over else _EVERY_S) - 0.1:
            self._read_at = now
            present = present_of(self._place)
            if present.is_complete or not scene.present.is_complete:
                if _stage(present) != _stage(scene.present):
                    scene.facts, self._facts_at = None, 0.0
                scene.renew(present)
        if not self._facts_at or (not scene.present.is_over and now - self._facts_at > self._reading.pause):
            self._ask_for_all()
        self.draw()

    def _ask_for_all(self) -> None:
        """Ask for what the first screen shows of the past; the last one asked for is answered first."""
        self._facts_at = time.monotonic()
        names = [curve.name for curve in self.scene.present.progress.curves]
        for question in (("facts",), ("names",), ("bounds",), ("curves", *names)):
            self._reading.ask(*question)
        if not self.scene.present.is_complete:
            self.scene.note = "reading what the run recorded …"
            self._reading.ask("present")

    def on_reply_arrived(self, message: ReplyArrived) -> None:
        """Show what was read."""
        question, reply = message.reply
        if message.path != str(self._place.path):
            return
        scene = self.scene
        if isinstance(reply, Exception):
            scene.note = f"the archive could not be read: {type(reply).__name__}: {reply}"
            self.draw()
            return
        scene.learn(question, reply)
        if question == ("present",):
            self._reading.ask("curves", *(curve.name for curve in scene.present.progress.curves))
        self.draw()

    def _need(self, page: Page) -> None:
        """Ask for what a page shows."""
        scene = self.scene
        if page.kind == "autopsy":
            self._reading.ask("autopsy")
        if page.kind == "why":
            self._reading.ask("why", *page.question)
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
            rows = rows_of(scene)
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
            self._go_in(Page(kind))
        self.draw()

    def action_why(self) -> None:
        """Say why the chosen step took its time, or leave that page if it is shown."""
        page, scene = self.pages[-1], self.scene
        if page.kind == "why":
            self.pages.pop()
            self.draw()
            return
        question = Question(scene.step)
        if page.kind == "rank":
            steps = detail.steps_of(scene, page.who)
            question = Question(steps[page.cursor].step if page.cursor < len(steps) else None)
        elif page.kind in ("step", "phase"):
            phases = detail.phases_of(scene, page.who, page.step)
            question = Question(page.step, phases[page.number].name if page.kind == "phase" else "")
        if question.step is not None and question.step < 0:
            question = Question()
        self._go_in(Page("why", question=question))

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


def _stage(present: RunPresent) -> tuple[object, ...]:
    """Return what makes the findings old at once when it changes."""
    return (
        present.state,
        present.progress.attempt,
        present.progress.steps > 0,
        {(process.role, process.rank): process.outcome for process in present.processes},
        {(wait.cause, wait.culprits) for wait in present.waits if wait.cause},
        {(stall.kind, stall.role, stall.rank, stall.since_unix_nano) for stall in present.stalled},
        max((event.time_unix_nano for event in present.progress.events if event.name == CONCLUDED), default=0),
    )
