"""`otel-rl top` as an application of Textual: it adds keys, a mouse and a clock to what is drawn without it."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, ClassVar

from textual import work
from textual.app import App
from textual.binding import Binding
from textual.widgets import Input

from otel_rl.look.terminal import pages, text_pages
from otel_rl.look.terminal.canvas import CSS, Canvas, ReplyArrived
from otel_rl.look.terminal.pages import Page
from otel_rl.look.terminal.scene import Drawn, Scene
from otel_rl.look.terminal.watched import EVERY_S, WatchedRun
from otel_rl.recorder.archive.present import RunPresent, present_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual import events
    from textual.app import ComposeResult

    from otel_rl.look.terminal.reading import Reply
    from otel_rl.recorder.archive.runs import Place

_NEWER_EVERY_S = 3.0
_ALL = 1 << 60
"""More steps, and more rows, than there are."""
_NEWS_S = 15.0
"""Seconds for which the screen says that it shows another run."""


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
        Binding("home", "far(-1)"),
        Binding("end", "far(1)"),
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
        self._is_over, self._newest = is_over, newest
        self._news_until = 0.0
        self._watched = WatchedRun(place, first, self._post)
        self.pages = [Page("run")]
        self.drawn = Drawn([])
        self._canvas = Canvas(has_unicode=has_unicode)

    @property
    def scene(self) -> Scene:
        """Everything that is shown of the run."""
        return self._watched.scene

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
        self.set_interval(EVERY_S, self._tick)
        if self._newest is not None:
            self.set_interval(_NEWER_EVERY_S, self._look_for_newer)

    def _begin(self) -> None:
        self.title = f"otel-rl top {self._watched.path}"
        self._watched.start()

    @work(thread=True, exclusive=True)
    def _look_for_newer(self) -> None:
        """Look for a newer run, in a thread: file systems can be slow."""
        place = None if self._newest is None else self._newest()
        if place is not None and place.path != self._watched.place.path:
            self.call_from_thread(self._move_to, place)

    def _move_to(self, place: Place) -> None:
        """Show another run, unless the reader is in the middle of something."""
        scene = self.scene
        if len(self.pages) > 1 or scene.step is not None or scene.is_paused or self.query_one(Input).display:
            scene.news = f"A newer run has started: {place.project} · {place.name}. It is shown on the first screen."
            self._news_until = math.inf
            return
        self._watched.stop()
        news = f"A newer run has started, and is shown now. The run before: {scene.present.path}"
        self._news_until = time.monotonic() + _NEWS_S
        self._watched = WatchedRun(place, present_of(place), self._post, is_sorted=scene.is_sorted, news=news)
        self.pages = [Page("run")]
        self._begin()
        self.draw()

    def on_unmount(self) -> None:
        """Let the thread end."""
        self._watched.stop()

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
        self.drawn = pages.draw(self.scene, page, cells, room)
        lines = self.drawn.lines[:room]
        lines += [()] * (room - len(lines))
        self._canvas.show([*lines, text_pages.keys(self.scene, cells, page.kind)])

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
        self._watched.renew()
        self.draw()

    def on_reply_arrived(self, message: ReplyArrived) -> None:
        """Show what was read."""
        if message.path == self._watched.path:
            self._watched.learn(message.reply)
            self.draw()

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self._put_cursor(max(0, min(self.drawn.rows - 1, self.pages[-1].cursor + rows)))

    def _put_cursor(self, row: int) -> None:
        self.pages[-1] = self.pages[-1]._replace(cursor=row)
        self.draw()

    def action_enter(self) -> None:
        """Go in."""
        page = pages.inside(self.scene, self.pages[-1])
        if page is not None:
            self._go_in(page)

    def _go_in(self, page: Page) -> None:
        self.pages.append(page)
        self._watched.need(page)
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
        if self.pages[-1].kind == "run":
            self.scene.scrub(steps)
            self._watched.need(self.pages[-1])
            self.draw()

    def action_far(self, sign: int) -> None:
        """Look at the first step, or at the present; on other pages, go to the first row, or to the last one."""
        go = self.action_scrub if self.pages[-1].kind == "run" else self.action_move
        go(sign * _ALL)

    def action_open(self, kind: str) -> None:
        """Show a page, or leave it if it is shown."""
        if self.pages[-1].kind == kind:
            self.pages.pop()
        else:
            self._go_in(Page(kind))
        self.draw()

    def action_why(self) -> None:
        """Say why the chosen step took its time, or leave that page if it is shown."""
        page = self.pages[-1]
        if page.kind == "why":
            self.pages.pop()
            self.draw()
        else:
            self._go_in(Page("why", question=pages.question_of(self.scene, page)))

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
        self._watched.search(pattern)
        self.pages[-1] = self.pages[-1]._replace(cursor=0)
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
