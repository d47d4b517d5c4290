"""The console."""

from __future__ import annotations

import io
import sys

from otel_rl.export import Event, Params, Row, Table
from otel_rl_exporters.console import ConsoleExporter


def printed(capsys, run, *items, **options):
    ConsoleExporter(run, **options).export(items)
    return capsys.readouterr().out


def test_row(run, capsys):
    """A row is one line, with four digits of a float and all of an integer."""
    row = Row(12, 0, {"reward": 0.43104, "loss": 0.0123, "time/step": 1.2, "tokens": 2**60})

    assert (
        printed(capsys, run, row) == "step 12  reward 0.431  loss 0.0123  time/step 1.2  tokens 1152921504606846976\n"
    )


def test_many_values(run, capsys):
    """Of a row with many values the first eight are printed, and how many more there are."""
    row = Row(0, 0, dict.fromkeys("abcdefghij", 1))

    assert printed(capsys, run, row) == "step 0  a 1  b 1  c 1  d 1  e 1  f 1  g 1  h 1  +2\n"


def test_names(run, capsys):
    """With patterns every value that matches one is printed, and no other."""
    row = Row(0, 0, {"actor/loss": 1, "critic/loss": 2, "score": 3})

    assert printed(capsys, run, row, names=["actor/*", "score"]) == "step 0  actor/loss 1  score 3\n"


def test_incomplete_row(run, capsys):
    """A row says that it is late and which ranks it lacks."""
    row = Row(3, 0, {"loss": 1}, missing_ranks=(1, 5), late=True)

    assert printed(capsys, run, row) == "step 3  (late)  (without ranks 1, 5)  loss 1\n"


def test_event(run, capsys):
    """An event is a line, too."""
    event = Event("checkpoint", 0, {"path": "ckpt/4"}, step=4, rank=0)

    assert printed(capsys, run, event) == "checkpoint  step 4  rank 0  path ckpt/4\n"


def test_table(run, capsys):
    """A table is a heading and its first four rows, drawn one line each, with four digits of a float."""
    rows = tuple((f"question {n}", n / 3, None, n == 1) for n in range(6))
    table = Table("completions", 7, 0, ("prompt", "reward", "note", "correct"), rows, cut_rows=10)

    lines = printed(capsys, run, table).splitlines()
    assert lines[0] == "table completions  step 7  +12 rows"
    assert [line.split() for line in lines[1:]] == [
        ["prompt", "reward", "note", "correct"],
        [lines[2].strip()],
        ["question", "0", "0", "False"],
        ["question", "1", "0.333", "True"],
        ["question", "2", "0.667", "False"],
        ["question", "3", "1", "False"],
    ]


def test_table_is_literal(run, capsys):
    """Markup of rich is printed as it is, and nothing in a cell reaches the terminal as a command or a new line."""
    cells = ("[red]a[/red] :smile:", "b\x1b[31m\nc\r\x07\x9b")
    printed_lines = printed(capsys, run, Table("[b]t", 0, 0, ("[i]x", "y"), (cells,))).splitlines()

    assert printed_lines[0] == "table [b]t  step 0"
    assert printed_lines[1].split() == ["[i]x", "y"]
    assert printed_lines[3] == " [red]a[/red] :smile:   b\\x1b[31m\\nc\\r\\x07\\x9b"


def test_wide_table(run, capsys, monkeypatch):
    """A table is as wide as the terminal: long texts are cut, so that the numbers stay readable."""
    monkeypatch.setenv("COLUMNS", "60")
    row = ("word " * 2_000, "y" * 10_000, 0.25, 17)
    lines = printed(capsys, run, Table("t", 0, 0, ("a", "b", "reward", "length"), (row,))).splitlines()

    assert len(lines) == 4
    assert max(map(len, lines)) <= 60
    assert lines[1].split() == ["a", "b", "reward", "length"]
    assert lines[3].count("…") == 2
    assert lines[3].split()[-2:] == ["0.25", "17"]


def test_table_rows(run, capsys):
    """Fewer rows can be asked for, or no tables."""
    table = Table("t", 0, 0, ("a",), ((1,), (2,)))

    assert printed(capsys, run, table, table_rows=1).splitlines()[0] == "table t  step 0  +1 rows"
    assert printed(capsys, run, table, table_rows=0) == ""


def test_narrow_encoding(run, monkeypatch):
    """Characters that the terminal's encoding does not have are escaped."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    ConsoleExporter(run).export([Row(0, 0, {"奖励": 1})])

    assert raw.getvalue() == b"step 0  \\u5956\\u52b1 1\n"


def test_nothing_to_show(run, capsys):
    """Items that the console does not print leave no empty line."""
    assert printed(capsys, run, Params(0, {"lr": 1})) == ""


def test_non_finite(run, capsys):
    """NaN and infinities are printed as such."""
    row = Row(0, 0, {"kl": float("nan"), "norm": float("-inf")})

    assert printed(capsys, run, row) == "step 0  kl NaN  norm -inf\n"
