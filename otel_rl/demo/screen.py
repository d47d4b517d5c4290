"""The live display: a thread that follows the recording; plain lines where there is no terminal."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from rich.live import Live

from otel_rl.demo.drawing import number, panel

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console, RenderableType
    from typing_extensions import Self

    from otel_rl.demo.recording import Recording

REFRESH_S = 0.25
LINE_EVERY = 10


class Screen:
    """Shows what was recorded, as long as it is entered."""

    def __init__(self, console: Console, recording: Recording, *, steps: int, title: str) -> None:
        self.console, self.recording, self.steps, self.title = console, recording, steps, title
        self._started = time.monotonic()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._printed = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="otel-rl-demo-screen", daemon=True)

    def __enter__(self) -> Self:
        if self._live is None:
            self.console.print(f"{self.title}\nwarming up on supervised examples")
        else:
            self._live.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._show()
        if self._live is not None:
            self._live.stop()

    def _follow(self) -> None:
        while not self._over.wait(REFRESH_S):
            self._show()

    def _show(self) -> None:
        self.recording.read()
        if self._live is None:
            self._print_lines()
        else:
            self._live.update(self._panel(), refresh=True)

    def _panel(self) -> RenderableType:
        elapsed = time.monotonic() - self._started
        return panel(self.recording, steps=self.steps, title=self.title, elapsed=elapsed)

    def _print_lines(self) -> None:
        rows = self.recording.rows
        for step in sorted(rows)[self._printed :]:
            self._printed += 1
            if (step + 1) % LINE_EVERY and step + 1 != self.steps and step:
                continue
            values = rows[step]
            self.console.print(
                f"step {step + 1:>4}/{self.steps}"
                f"  reward {number(values.get('reward'))}"
                f"  exact match {number(values.get('rewards/exact_match/mean'))}"
                f"  held out {number(values.get('eval/accuracy'))}"
                f"  {values.get('time/step', float('nan')):.2f} s",
                highlight=False,
            )
