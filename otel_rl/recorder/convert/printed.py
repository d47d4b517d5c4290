"""Printed text as lines: as a terminal would show them, repeats counted, and bounded.

Both ways to read what a process prints share this: the trainer's own streams, and the files that the agent follows.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST_LINE = 1 << 14
"""Characters of a line that are kept."""
_ALWAYS_KEPT = 1000
"""First lines of a stream, which no limit leaves out."""
_LAST_LINES = 200
"""Last lines of a stream, which no limit leaves out: the reason of a death is among them."""
_BURST_S = 10
"""Seconds of the rate of lines that may come at once, such as a configuration or a summary of a model."""
_MOST_BARS = 64
_MOVES_UP = re.compile(r"\x1b\[(\d{0,3})[AF]")
"""The sequence by which bars below each other are drawn again."""
_ERASES_LINE = re.compile(r"\x1b\[[012]?K")
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?|\x1b(?:[ -/]*[0-~])?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
"""Escape sequences of a terminal (ECMA-48), and control characters that show nothing."""
_BAR = re.compile(r"(?P<drawn>(?<![━╸╺])[━╸╺]+\s{1,4})?(?<!\d)(?P<percent>\d{1,3})%(?(drawn)|\s?[|▕━╸█#=\[])")
"""How far a bar of tqdm, rich or pip is: before or behind what is drawn. Its description is in front of both."""
_SERIOUS = re.compile(
    r"\b(?:[A-Z]\w*)?(?:Error|Exception|Interrupt)\b|\bTraceback\b|\b(?:ERROR|FATAL|CRITICAL)\b|\bNCCL WARN\b"
    r"|[Ss]egmentation fault|\bcore dumped\b|\bKilled\b|\bout of memory\b"
)
"""Lines of errors. They are kept where others are left out."""


class Line(NamedTuple):
    """A printed line."""

    text: str  # as a terminal shows it
    repeated: int = 1  # how often it came in a row
    cut: int = 0  # characters that were cut from its end
    left_out: int = 0  # if above 0, this stands for so many lines that were left out
    in_place: bool = False  # whether it was drawn where others were before, and may be drawn over again


class Assembler:
    """Makes lines of the pieces of text that a program writes; the last line is kept until it has ended."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._size = self._cut = 0
        self._drawn_again = 0  # how many lines below the cursor, with its own, were there before

    def add(self, text: str) -> list[Line]:
        """Return the lines that this text ends, or leaves upwards."""
        before, *moves = _MOVES_UP.split(text) if "\x1b" in text else (text,)
        ended = self._add(before)
        for rows, after in zip(moves[::2], moves[1::2], strict=True):
            ended.append(self.end()._replace(in_place=True))
            self._drawn_again = max(self._drawn_again, 1) + int(rows or 1)
            ended += self._add(after)
        return ended

    def _add(self, text: str) -> list[Line]:
        first, *more = text.split("\n")
        self._extend(first)
        if not more:
            return []
        ended = [self.end(), *(_line(line) for line in more[:-1])]
        self._extend(more[-1])
        if count := min(self._drawn_again, len(ended)):
            ended[:count] = [line._replace(in_place=True) for line in ended[:count]]
            self._drawn_again -= count
        return ended

    def end(self) -> Line:
        """Return the line that has not ended yet."""
        text, cut = "".join(self._open), self._cut
        self._open, self._size, self._cut = [], 0, 0
        return _line(text, cut)

    @property
    def has_open(self) -> bool:
        """Whether a line has begun, and not ended."""
        return self._size > 0

    def _extend(self, text: str) -> None:
        if "\r" in text[:-1]:  # a bar that has been redrawn a thousand times is as long as its last state
            redrawn = as_shown("".join((*self._open, text[: text.rindex("\r")])))
            self._open, self._size = [redrawn], len(redrawn)
            text = text[text.rindex("\r") :]
        room = max(0, 2 * LONGEST_LINE - self._size)
        self._cut += max(0, len(text) - room)
        if text[:room]:
            self._open.append(text[:room])
            self._size += len(text[:room])


class Transcript:
    """The lines of one stream that are kept.

    Equal lines in a row are one, with their number. A bar is one line, with its last state: one that is drawn below
    others may be full many times, and waits for a line that is not drawn over. Where there are more lines than allowed,
    the first and the last ones and errors stay, and the number of the others is a line.

    Args:
        per_second: The number of lines of a process and second, on average over ten.
        characters: The number of characters of a process, after which errors and the last lines alone are kept.
    """

    def __init__(self, per_second: int, characters: int) -> None:
        self._of_a_process, self._processes = (per_second, characters), 1
        self._per_second, self._characters = per_second, characters
        self._allowance, self._at = float(_BURST_S * per_second), 0.0
        self._kept = self._left_out = 0
        self._last: deque[Line] = deque(maxlen=_LAST_LINES)
        self._before, self._repeats = Line(""), 0
        self._bars: dict[str, Line] = {}
        self._full: dict[str, Line] = {}

    def add(self, lines: Iterable[Line], now: float) -> list[Line]:
        """Return the lines that are kept of new ones; `now` is in seconds of a monotonic clock."""
        self._allowance += (now - self._at) * self._per_second
        self._allowance, self._at = min(self._allowance, float(_BURST_S * self._per_second)), now
        return [kept for line in lines for kept in self._take(line)]

    def share(self, processes: int) -> None:
        """Keep as much of each of so many processes that print into this stream."""
        more, self._processes = max(0, processes - self._processes), max(processes, self._processes)
        per_second, characters = self._of_a_process
        self._per_second += more * per_second
        self._allowance += _BURST_S * more * per_second
        self._characters += more * characters

    def end(self) -> list[Line]:
        """Return the lines that waited: the last states of bars, repeats, and the last lines."""
        lines = [*self._counted(), *self._full.values(), *self._bars.values()]
        self._bars, self._full = {}, {}
        left_out = self._left_out - len(self._last)
        lines += [Line("", left_out=left_out)] if left_out else []
        lines += self._last
        self._last.clear()
        self._left_out = 0
        return lines

    def _take(self, line: Line) -> Iterator[Line]:
        in_place = line.in_place
        line = line._replace(in_place=False) if in_place else line
        if bar := _BAR.search(line.text):
            what, is_full = line.text[: bar.start()].strip(), bar["percent"] == "100"
            for others in (self._bars, self._full):
                others.pop(what, None)
            waiting = self._full if is_full else self._bars
            if (in_place or not is_full) and len(waiting) < _MOST_BARS:
                waiting[what] = line
                return
        elif not line.text.strip():
            return
        elif not in_place:  # what was drawn in place stays as it is
            full, self._full = [*self._full.values()], {}
            for each in full:
                yield from self._within_limits(each)
        if line == self._before:
            self._repeats += 1
            return
        yield from self._counted()
        yield from self._within_limits(line)
        self._before = line

    def _counted(self) -> Iterator[Line]:
        """Yield the line before, if it was repeated."""
        repeats, self._repeats = self._repeats, 0
        if repeats:
            yield from self._within_limits(self._before._replace(repeated=repeats))

    def _within_limits(self, line: Line) -> Iterator[Line]:
        fits = self._allowance >= 1 and self._characters > 0
        if not fits and self._kept >= _ALWAYS_KEPT and not _SERIOUS.search(line.text):
            self._left_out += 1
            self._last.append(line)
            return
        if self._left_out:
            yield Line("", left_out=self._left_out)
            self._left_out = 0
            self._last.clear()
        self._kept += 1
        self._allowance = max(0.0, self._allowance - 1)
        self._characters -= len(line.text)
        yield line


def as_shown(text: str) -> str:
    """Return a line as a terminal shows it: what follows a carriage return is written over what was there."""
    if text.isprintable() or not (_ESCAPE.search(text) or "\r" in text):  # the first is ten times as fast
        return text
    shown = ""
    for part in text.split("\r"):
        erased = _ERASES_LINE.match(part) is not None
        plain = _ESCAPE.sub("", part)
        shown = plain if erased else plain + shown[len(plain) :]
    return shown


def shown_lines(text: str) -> str:
    """Return several lines as a terminal shows them."""
    return "\n".join(map(as_shown, text.split("\n")))


def _line(text: str, cut: int = 0) -> Line:
    shown = as_shown(text.removesuffix("\r"))
    return Line(shown[:LONGEST_LINE], cut=cut + max(0, len(shown) - LONGEST_LINE))
