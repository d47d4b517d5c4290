"""Validation samples in the terminal: the distribution of rewards, and some conversations with their rewards."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from otel_rl.recorder.convert.cells import cell_len, fit
from otel_rl.recorder.convert.completions import message_text
from otel_rl.recorder.convert.tables import Limits, cut
from otel_rl.recorder.convert.wrapping import wrapped
from otel_rl.recorder.errors.sinks import lines as lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TextIO

_BARS = 20
_BAR_WIDTH = 20
_MARKERS = ((0.7, "🔥", "bright_green"), (0.3, "✨", "green"), (-0.5, "🟠", "orange3"))
_LOWEST_MARKER = ("🔴", "red")
_UNKNOWN_MARKER = ("❔", "bright_black")
_ROLES = {"system": "magenta", "user": "cyan", "assistant": "green", "tool": "yellow"}
_OTHER_ROLE = "blue"
_CODES = {
    "bold": "1",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
    "bright_black": "90",
    "bright_green": "92",
    "orange3": "38;5;172",
}
"""Escape sequences of styles."""
_ALL_LINES = 1 << 60

Row = tuple[str, str]
"""A text of any number of lines, and its style."""


class Bar(msgspec.Struct, frozen=True):
    """A bar of the histogram: the number of rewards with one value, or in a range.

    `high` is exclusive unless it equals `low` or the bar is the last one.
    """

    low: float
    high: float
    count: int


class _Screen(NamedTuple):
    """The text stream that samples are printed to."""

    file: TextIO
    width: int  # in cells
    encoding: str
    has_color: bool

    def escaped(self, text: str) -> str:
        """Return a text as the stream can show it; line ends stay."""
        return lines_of(text).encode(self.encoding, "backslashreplace").decode(self.encoding)

    def draw(self, parts: Iterable[Row]) -> None:
        """Print one line."""
        texts = [f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.has_color and style else text for text, style in parts]
        print("".join(texts).rstrip(), file=self.file)

    def rule(self, title: str) -> None:
        """Print a title in the middle of a line."""
        self.draw([(self.border(title, self.width), "bold")])

    def panel(self, title: str, rows: Iterable[Row], style: str = "") -> None:
        """Print texts in a box, whose title is in its upper edge."""
        corners, side = ("╭╮╰╯", "│") if self.has_boxes else ("++++", "|")
        room = self.width - 4
        self.draw([(f"{corners[0]}{self.border(title, self.width - 2)}{corners[1]}", style or "bold")])
        for text, of_text in rows:
            for line in wrapped(self.escaped(text), room, _ALL_LINES)[0]:
                self.draw(
                    [(f"{side} ", style), (line, of_text), (" " * (room - cell_len(line)), ""), (f" {side}", style)]
                )
        self.draw([(f"{corners[2]}{self.border('', self.width - 2)}{corners[3]}", style)])

    def border(self, title: str, cells: int) -> str:
        """Return a horizontal line with a title in its middle."""
        text = f" {self.escaped(title)} " if title else ""
        missing = cells - cell_len(text)
        line = "─" if self.has_boxes else "-"
        return line * (missing // 2) + text + line * (missing - missing // 2) if missing >= 0 else fit(text, cells)

    @property
    def has_boxes(self) -> bool:
        """Whether the stream can show lines."""
        return self.escaped("─") == "─"


def _screen_of(file: TextIO, width: int | None) -> _Screen:
    has_color = file.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    return _Screen(
        file,
        max(20, width or shutil.get_terminal_size().columns),
        getattr(file, "encoding", None) or "utf-8",
        has_color,
    )


def print_samples(
    message_logs: Sequence[object],
    rewards: Sequence[object],
    num_samples: int = 5,
    step: int = 0,
    *,
    file: TextIO | None = None,
    width: int | None = None,
) -> None:
    """Print statistics of the rewards, and the samples that `choose` selects.

    Control characters and invalid Unicode in the texts are escaped. Rewards on a device are read, so call it where the
    trainer waits for the device anyway.

    Args:
        message_logs: For each sample, a list of messages with `role` and `content`, or a pair of prompt and completion,
            or one text.
        rewards: Reward of each sample; a missing one is NaN.
        num_samples: The largest number of samples to print; 0 prints nothing.
        step: Iteration of the RL loop.
        file: The text stream to print to; by default standard output.
        width: Cells of a line; by default those of the terminal.
    """
    if num_samples <= 0:
        return
    screen = _screen_of(file or sys.stdout, width)
    logs = list(message_logs)
    if not logs:
        screen.draw([(screen.escaped(f"⚠ no samples to show at step {step}"), "yellow")])
        return
    given = rewards.tolist() if hasattr(rewards, "tolist") else rewards
    values = [_number(reward) for reward in (given if isinstance(given, (list, tuple)) else [given])]
    values = (values + [math.nan] * len(logs))[: len(logs)]
    screen.rule(f"TRAINING STEP {step}")
    screen.panel("Reward Statistics", _statistics(values))
    for number, index in enumerate(choose(values, num_samples), 1):
        emoji, color = marker(values[index])
        title = f"{emoji} Sample {number} | Reward: {values[index]:.4f}"
        screen.panel(title, _conversation(logs[index]), color)
    screen.rule("End of Samples")


def print_message_log_samples(
    message_logs: Sequence[object], rewards: Sequence[object], num_samples: int = 5, step: int = 0
) -> None:
    """Print samples like `print_samples`, with the name and the arguments of NeMo-RL's function.

    Raises:
        AssertionError: The numbers of rewards and samples differ.
    """
    if len(message_logs) != len(rewards):
        raise AssertionError(f"{len(message_logs)} samples and {len(rewards)} rewards")
    print_samples(message_logs, rewards, num_samples, step)


def choose(rewards: Sequence[float], n: int) -> list[int]:
    """Return the indices of the samples to print: all in order if there are at most `n`.

    Otherwise they are the `n // 2` best ones in descending order, the median if `n` is odd, and the `n // 2` worst ones
    in descending order. NaN is worse than any number.
    """
    if n >= len(rewards):
        return list(range(len(rewards)))
    keys = [(math.isnan(reward), 0.0 if math.isnan(reward) else -reward) for reward in rewards]
    order = sorted(range(len(rewards)), key=keys.__getitem__)
    half = max(n, 0) // 2
    middle = [order[len(order) // 2]] if n > 0 and n % 2 else []
    return order[:half] + order[len(order) - half :] + middle


def bars(rewards: Sequence[float]) -> list[Bar]:
    """Return one bar per distinct reward, ascending; if there are more than 20, 20 bins of equal width.

    NaN has no bar. Bins leave out infinities too.
    """
    counts = Counter(reward for reward in rewards if not math.isnan(reward))
    if len(counts) <= _BARS:
        return [Bar(value, value, counts[value]) for value in sorted(counts)]
    finite = {value: count for value, count in counts.items() if math.isfinite(value)}
    low, high = min(finite), max(finite)
    edges = [low + (high / _BARS - low / _BARS) * index for index in range(_BARS)] + [high]
    heights = [0] * _BARS
    for value, count in finite.items():
        place = (value / 2 - low / 2) / (high / 2 - low / 2)  # the difference itself can overflow
        heights[min(int(place * _BARS), _BARS - 1)] += count
    return [Bar(edges[index], edges[index + 1], height) for index, height in enumerate(heights)]


def marker(reward: float) -> tuple[str, str]:
    """Return the emoji and the color of a reward, with limits at 0.7, 0.3 and -0.5; NaN has its own."""
    if math.isnan(reward):
        return _UNKNOWN_MARKER
    return next(((emoji, color) for least, emoji, color in _MARKERS if reward >= least), _LOWEST_MARKER)


def _statistics(rewards: Sequence[float]) -> Iterator[Row]:
    known = [reward for reward in rewards if not math.isnan(reward)]
    finite = [reward for reward in known if math.isfinite(reward)]
    average = sum(reward / len(finite) for reward in finite) if finite else math.nan
    yield f"Total samples: {len(rewards)}", ""
    yield f"Average reward: {average:.4f}", ""
    yield f"Min: {min(known, default=math.nan):.4f} | Max: {max(known, default=math.nan):.4f}", ""
    if len(finite) < len(rewards):
        yield f"Not finite, and not in the average: {len(rewards) - len(finite)}", "yellow"
    yield from _chart(bars(rewards))


def _chart(histogram: Sequence[Bar]) -> Iterator[Row]:
    values = [f"{bar.low:.4f}" if bar.low == bar.high else f"{bar.low:.4f} … {bar.high:.4f}" for bar in histogram]
    width = max(map(len, values), default=0)
    most = max((bar.count for bar in histogram), default=0)
    for bar, value in zip(histogram, values, strict=True):
        emoji, color = marker(bar.low)
        length = max(bar.count * _BAR_WIDTH // most, 1) if bar.count else 0
        yield f"{emoji} {value:>{width}} {'█' * length} ({bar.count})", color


def _conversation(log: object) -> Iterator[Row]:
    for number, (role, content) in enumerate(_messages(log)):
        style = _ROLES.get(role.lower(), _OTHER_ROLE)
        if number:
            yield "", ""
        yield role.upper(), "bold"
        yield cut(content, Limits().text), style


def _messages(log: object) -> list[tuple[str, str]]:
    if isinstance(log, str):
        return [("assistant", log)]
    if not isinstance(log, (list, tuple)):
        return [("unknown", f"<{type(log).__name__}>")]
    if len(log) == 2 and all(isinstance(text, str) for text in log):
        return [("user", log[0]), ("assistant", log[1])]
    return [
        (str(message.get("role", "unknown")), message_text(message))
        if isinstance(message, Mapping)
        else ("unknown", message if isinstance(message, str) else f"<{type(message).__name__}>")
        for message in log
    ]


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type] # what cannot be converted raises
    except Exception:  # conversions of unknown objects can raise anything
        return math.nan
