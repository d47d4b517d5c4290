"""Printed text as lines: what a terminal shows, repeats, bars, and limits."""

from __future__ import annotations

import io
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.convert.printed import LONGEST_LINE, Assembler, Line, Transcript, as_shown
from otel_rl.recorder.settings.settings import PrintedOutput
from tests.real_parts import needs

LINES = st.lists(st.text(st.characters(blacklist_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=30), max_size=20)


def texts(lines: list[Line]) -> list[str]:
    return [line.text for line in lines]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("  0%|    |\r 50%|##  |\r100%|####|", "100%|####|"),
        ("long text\rshort", "shorttext"),
        ("long text\r\x1b[2Kshort", "short"),
        ("bell\x07 and nul\x00", "bell and nul"),
        ("\x9b31mred\x9b0m of eight bits\x9d0;title\x9c\x85", "red of eight bits"),
        ("a\tb", "a\tb"),
        ("unfinished \x1b[3", "unfinished "),
        ("日本語 ✓", "日本語 ✓"),
    ],
)
def test_what_a_terminal_shows(written: str, shown: str) -> None:
    """Escape sequences are gone, and a carriage return writes over what was there."""
    assert as_shown(written) == shown


@given(LINES, st.integers(0, 1 << 32))
def test_pieces_of_any_size(lines: list[str], seed: int) -> None:
    """A program writes a line in pieces, as `print` does, and each line is there once."""
    text, pieces, rng = "".join(f"{line}\n" for line in lines), Assembler(), random.Random(seed)
    ended, at = [], 0
    while at < len(text):
        size = rng.randint(1, 9)
        ended += pieces.add(text[at : at + size])
        at += size

    assert texts(ended) == lines
    assert not pieces.has_open


def test_a_line_of_ten_megabytes() -> None:
    """It is cut, and takes no more memory than its beginning."""
    pieces = Assembler()
    for _ in range(100):
        assert pieces.add("x" * 100_000) == []
    (line,) = pieces.add("\n")

    assert len(line.text) == LONGEST_LINE
    assert len(line.text) + line.cut == 10_000_000


def test_a_bar_that_is_redrawn_all_night() -> None:
    """It is one line, with its last state."""
    pieces = Assembler()
    for step in range(100_000):
        assert pieces.add(f"\rsteps: {step // 1000}%|{'#' * (step // 10_000)}") == []

    assert pieces.end().text == "steps: 99%|#########"


def test_bars_below_each_other() -> None:
    """Each of two bars that change in turns is one line: its last state."""
    transcript = Transcript(1000, 1 << 20)
    drawn = [Line(f"{name}: {percent}%|##") for percent in range(0, 100, 10) for name in ("epoch", "batch")]
    kept = transcript.add(drawn, 0.0)

    assert kept == []
    assert texts(transcript.end()) == ["epoch: 90%|##", "batch: 90%|##"]


class Terminal(io.StringIO):
    """A terminal, which programs ask whether it is one."""

    def isatty(self) -> bool:
        return True


def kept_of(terminal: Terminal) -> list[str]:
    """Return the lines of what was written, piece by piece, and a line behind it."""
    transcript, assembler, kept = Transcript(1000, 1 << 20), Assembler(), []
    for piece in re.findall(r"[^\x1b]+|\x1b\[[^a-zA-Z]*[a-zA-Z]", f"{terminal.getvalue()}\nall is done\nbye\n"):
        kept += transcript.add(assembler.add(piece), 0.0)
    return texts([*kept, *transcript.end()])


@needs("tqdm")
@pytest.mark.parametrize("stays", [True, False])
def test_bars_of_tqdm_inside_each_other(stays: bool) -> None:
    """Each is one line, though the inner one is drawn again for each step of the outer one."""
    from tqdm import tqdm

    terminal = Terminal()
    for _ in tqdm(range(20), "epoch", file=terminal, mininterval=0, ncols=60):
        for _ in tqdm(range(5), "batch", file=terminal, mininterval=0, ncols=60, position=1, leave=stays):
            pass

    assert [text[:12] for text in kept_of(terminal)] == ["batch: 100%|", "epoch: 100%|", "all is done", "bye"]


@needs("rich")
def test_bars_of_rich_below_each_other() -> None:
    """Each is one line, one that was full long before the others as well; what is printed above them stays."""
    from rich.console import Console
    from rich.progress import Progress

    terminal = Terminal()
    with Progress(console=Console(file=terminal, force_terminal=True, width=70), auto_refresh=False) as progress:
        tasks = [progress.add_task(name, total=20) for name in ("load", "train", "test")]
        for number in range(20):
            for task, advance in zip(tasks, (20, 1, 0.5), strict=True):
                progress.update(task, advance=advance, refresh=True)
            if number == 10:
                progress.print("loss is low")
    kept = [" ".join(re.findall(r"[a-z]+|\d+%", text)) for text in kept_of(terminal)]

    assert kept == ["loss is low", "load 100%", "train 100%", "all is done", "bye", "test 50%"]


def test_a_line_that_is_repeated() -> None:
    """It is there at once, and its repeats with their number when another line comes."""
    transcript = Transcript(1000, 1 << 20)

    assert transcript.add([Line("retrying")] * 4113, 0.0) == [Line("retrying")]
    assert transcript.add([Line("done")], 1.0) == [Line("retrying", repeated=4112), Line("done")]


def test_a_flood() -> None:
    """The first lines, the last lines and errors stay, and where lines are missing, their number is a line."""
    transcript, flood = Transcript(100, 1 << 30), [Line(f"line {number}") for number in range(50_000)]
    flood[30_000] = Line("RuntimeError: CUDA error: an illegal memory access was encountered")
    kept = [*transcript.add(flood, 0.0), *transcript.end()]

    assert texts(kept)[:1000] == [f"line {number}" for number in range(1000)]
    assert texts(kept)[-1] == "line 49999"
    assert flood[30_000] in kept
    assert sum(line.left_out or line.repeated for line in kept) == 50_000


@pytest.mark.parametrize("processes", [1, 8])
def test_lines_within_the_rate(processes: int) -> None:
    """With default settings, each process may print 1,000 lines a second, however long, and loses none."""
    transcript, rate = Transcript(PrintedOutput().per_second, PrintedOutput().limit), 1000 * processes
    transcript.share(processes)
    seconds = [transcript.add([Line(f"{at}.{number}") for number in range(rate)], float(at)) for at in range(120)]

    assert sum(map(len, seconds)) == 120 * rate


def test_the_last_words_behind_the_limit_of_characters() -> None:
    """A run that printed more than is kept still has what its process printed last."""
    transcript = Transcript(10_000, 1000)
    kept = transcript.add([Line(f"{number:0100}") for number in range(3000)], 0.0)

    assert len(kept) == 1000
    assert texts(transcript.end())[-1] == f"{2999:0100}"
