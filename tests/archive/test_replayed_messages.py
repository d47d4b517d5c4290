"""Spans of an archive that are sent again: they have the messages of their trajectories, as during the run."""

from __future__ import annotations

import json
from pathlib import Path

from otel_rl.archive.replay import Replay
from otel_rl.archive.writer import Writer
from otel_rl.export import Message, Span

TRACE, OTHER = "a" * 32, "b" * 32
INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"


def message(number: int, author: str, text: str) -> Message:
    return Message(0, 1, 10 + number, "", 0, TRACE, "c" * 16, number, author, text=text)


def test_a_span_has_its_messages_again(tmp_path: Path) -> None:
    """Also if they were saved after it, and in another order; spans without messages stay as they are."""
    place = tmp_path / "archive" / "local"
    writer = Writer(place, 1 << 60)
    spans = [
        Span("rl.trajectory", TRACE, "c" * 16, "", 0, 9, {"x": 1, INPUT: "as during the run"}),
        Span("rl.trajectory", OTHER, "d" * 16, "", 0, 9, {"x": 2}),
        Span("rl.loop", OTHER, "e" * 16, "", 0, 9, {"x": 3}),
    ]
    writer.add(*spans)
    writer.save(seals=True)
    writer.add(message(1, "assistant", "4"), message(0, "user", "2 + 2?"))
    writer.save(seals=True)
    found = {one.span_id: one for *_, one in Replay(place, {}, {}) if isinstance(one, Span)}
    attributes = found["c" * 16].attributes

    assert [json.loads(str(attributes[name]))[0]["parts"][0]["content"] for name in (INPUT, OUTPUT)] == ["2 + 2?", "4"]
    assert (found["d" * 16], found["e" * 16]) == (spans[1], spans[2])


def test_an_archive_without_messages(tmp_path: Path) -> None:
    """Its spans are those that were recorded."""
    place = tmp_path / "archive" / "local"
    writer = Writer(place, 1 << 60)
    span = Span("rl.trajectory", TRACE, "c" * 16, "", 0, 9, {"x": 1})
    writer.add(span)
    writer.save(seals=True)

    assert [one for *_, one in Replay(place, {}, {})] == [span]
