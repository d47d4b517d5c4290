"""The console."""

from __future__ import annotations

import os
import sys

import pytest

from otel_rl.export import Event, Exporter, Params, Refused, Row
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


def test_nothing_to_show(run, capsys):
    """What the console has no place for leaves no empty line."""
    assert printed(capsys, run, Params(0, {"lr": 1})) == ""


def test_non_finite(run, capsys):
    """NaN and infinities are printed as such."""
    row = Row(0, 0, {"kl": float("nan"), "norm": float("-inf")})

    assert printed(capsys, run, row) == "step 0  kl nan  norm -inf\n"


def test_broken_pipe(run, monkeypatch):
    """When the reader of the output has gone, the rows are refused: they will never be taken."""
    reading, writing = os.pipe()
    os.close(reading)
    pipe = os.fdopen(writing, "wb", buffering=0)

    class Unbuffered:
        def write(self, text):
            pipe.write(text.encode())

        def flush(self):
            pipe.flush()

    monkeypatch.setattr(sys, "stdout", Unbuffered())

    with pipe, pytest.raises(Refused):
        ConsoleExporter(run).export([Row(0, 0, {"loss": 1})])


def test_contract(run):
    """It is an exporter."""
    assert isinstance(ConsoleExporter(run), Exporter)
