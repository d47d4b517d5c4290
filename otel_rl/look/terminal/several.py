"""`otel-rl top` with several runs, as an application of Textual."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App
from textual.binding import Binding

from otel_rl.look.terminal import compared, text_pages
from otel_rl.look.terminal.canvas import CSS, Canvas, ReplyArrived
from otel_rl.look.terminal.reading import HistoryReader, Reply
from otel_rl.look.terminal.scene import Drawn
from otel_rl.recorder.archive.present import RunPresent, present_of
from otel_rl.recorder.archive.runs import place_of

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from otel_rl.look.terminal.phases import Points

_EVERY_S = 1.0


class Several(App[RunPresent | None]):
    """The screen of several runs. The result is the run to open, or `None`.

    Args:
        runs: The runs.
        has_unicode: As in `Top`.
    """

    CSS = CSS
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[Any]] = [
        Binding("q,escape", "end"),
        Binding("ctrl+c", "end", priority=True),
        Binding("up,k", "move(-1)"),
        Binding("down,j", "move(1)"),
        Binding("enter", "enter"),
    ]

    def __init__(self, runs: list[RunPresent], *, has_unicode: bool = True) -> None:
        super().__init__(ansi_color=True)
        self.runs, self.cursor = runs, 0
        self.drawn = Drawn([])
        self._whole: dict[tuple[str, str], Points] = {}
        self._canvas = Canvas(has_unicode=has_unicode)
        self._readings = {run.path: HistoryReader(run.path, partial(self._post, run.path)) for run in runs}

    def compose(self) -> ComposeResult:
        """Return the widgets."""
        yield self._canvas

    def on_mount(self) -> None:
        """Begin to read and to look."""
        self._canvas.focus()
        for run in self.runs:
            self._readings[run.path].start()
            self._readings[run.path].ask("curves", *compared.names_of(run))
        self.set_interval(_EVERY_S, self._tick)

    def on_unmount(self) -> None:
        """Let the threads end."""
        for reading in self._readings.values():
            reading.stop()

    def on_resize(self) -> None:
        """Draw again."""
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Draw the runs."""
        cells, height = self._canvas.size.width, self._canvas.size.height
        if cells > 1 and height > 1:
            self.drawn = compared.draw(self.runs, self._whole, cells, height - 1, self.cursor)
            lines = self.drawn.lines + [()] * (height - 1 - len(self.drawn.lines))
            self._canvas.show([*lines, text_pages.few_keys(cells)])

    def _post(self, path: str, reply: Reply) -> None:
        if isinstance(reply.answer, dict):
            self.post_message(ReplyArrived(reply, path))

    def on_reply_arrived(self, message: ReplyArrived) -> None:
        """Show curves that were read."""
        curves = message.reply.answer
        self._whole |= {(message.path, name): points for name, points in curves.items()}
        self.draw()

    def _tick(self) -> None:
        fresh = [present_of(place_of(run.path)) for run in self.runs]
        self.runs = [new if new.is_complete else old for new, old in zip(fresh, self.runs, strict=True)]
        self.draw()

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self.cursor = min(len(self.runs) - 1, max(0, self.cursor + rows))
        self.draw()

    def action_enter(self) -> None:
        """Open the run of the cursor."""
        self.exit(self.runs[self.cursor])

    def action_end(self) -> None:
        """End."""
        self.exit(None)
