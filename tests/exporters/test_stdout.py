"""Standard output, line by line."""

from __future__ import annotations

import math

import pytest

from otel_rl.export import Event, Params, Row
from otel_rl_exporters.stdout import StdoutExporter
from tests.exporters import same_run
from tests.exporters.trackers import strict


def read(line, tag="metrics_tag"):
    start, _, tail = line.partition(": ")

    assert start == tag
    return strict(tail)


def test_line(run, capsys):
    """A row is one line: the tag, a colon, and JSON of the step and the metrics in their order."""
    StdoutExporter(run).export([Row(3, 0, {"loss": 0.5, "tokens": 2**60})])

    assert (
        capsys.readouterr().out == 'metrics_tag: {"step": 3, "metrics": {"loss": 0.5, "tokens": 1152921504606846976}}\n'
    )


def test_non_finite(run, capsys):
    """What JSON has no number for is a text, so that every line is strict JSON."""
    StdoutExporter(run).export([Row(0, 0, {"a": math.nan, "b": math.inf, "c": -math.inf})])

    assert read(capsys.readouterr().out)["metrics"] == {"a": "NaN", "b": "Infinity", "c": "-Infinity"}


def test_ascii(run, capsys):
    """A line is ASCII, so that no encoding of a terminal or a log can fail on it."""
    StdoutExporter(run).export([Row(0, 0, {"奖励": 1})])

    assert capsys.readouterr().out.isascii()


def test_tag(run, capsys):
    """The tag can be another one."""
    StdoutExporter(run, tag="rl").export([Row(0, 0, {})])

    assert capsys.readouterr().out == 'rl: {"step": 0, "metrics": {}}\n'


def test_standard_error(run, capsys):
    """The lines can go to standard error."""
    StdoutExporter(run, stream="stderr").export([Row(0, 0, {})])
    captured = capsys.readouterr()

    assert captured.out == ""
    assert captured.err.startswith("metrics_tag: ")


def test_the_rest(run, capsys):
    """Items that are not rows print no line."""
    StdoutExporter(run).export([Params(0, {"lr": 1}), Event("checkpoint", 0), *same_run.tables()])

    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("options", [{"stream": "file"}, {"tag": "a\nb"}])
def test_wrong_options(run, options):
    """A stream that does not exist, or a tag of two lines, is an error at once."""
    with pytest.raises(ValueError, match=next(iter(options))):
        StdoutExporter(run, **options)
