"""Spans of an archive that are sent again: they have the messages of their trajectories, as during the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_rl.export import Item, Message, Span
from otel_rl.recorder.archive import files, intact
from otel_rl.recorder.archive.replay import Replay
from otel_rl.recorder.archive.writer import ArchiveWriter

TRACE, OTHER = "a" * 32, "b" * 32
INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"


def message(number: int, author: str, text: str) -> Message:
    return Message(0, 1, 10 + number, "", 0, TRACE, "c" * 16, number, author, text=text)


def test_a_span_has_its_messages_again(tmp_path: Path) -> None:
    """Also if they were saved after it, and in another order; spans without messages stay as they are."""
    place = tmp_path / "archive" / "local"
    writer = ArchiveWriter(place, 1 << 60)
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
    writer = ArchiveWriter(place, 1 << 60)
    span = Span("rl.trajectory", TRACE, "c" * 16, "", 0, 9, {"x": 1})
    writer.add(span)
    writer.save(seals=True)

    assert [one for *_, one in Replay(place, {}, {})] == [span]


def saved(place: Path, *items: Item, seals: bool = True) -> ArchiveWriter:
    writer = ArchiveWriter(place, 1 << 60)
    for item in items:
        writer.add(item)
    writer.save(seals=seals)
    return writer


def texts(place: Path) -> list[str]:
    """Return the texts of the output of all spans of a machine."""
    spans = [span for *_, span in Replay(place, {}, {}) if isinstance(span, Span)]
    outputs = [json.loads(str(span.attributes[OUTPUT])) for span in spans if OUTPUT in span.attributes]
    return [message["parts"][0]["content"] for output in outputs for message in output]


SPAN = Span("rl.trajectory", TRACE, "c" * 16, "", 0, 9, {})


def test_messages_of_another_machine(tmp_path: Path) -> None:
    """A rollout worker's machine has them, the machine of the trainer the span; young files count too."""
    saved(tmp_path / "archive" / "node1", SPAN)
    saved(tmp_path / "archive" / "node2", message(1, "assistant", "b"), message(0, "assistant", "a"))
    saved(tmp_path / "archive" / "node3", message(2, "assistant", "c"), seals=False)

    assert texts(tmp_path / "archive" / "node1") == ["a", "b", "c"]


def test_damaged_messages(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The messages of other files are there, and a warning names the damaged one."""
    saved(tmp_path / "archive" / "node1", SPAN, message(0, "assistant", "a"))
    saved(tmp_path / "archive" / "node2", message(1, "assistant", "b"))
    (damaged,) = (tmp_path / "archive" / "node2" / "messages").glob("*.parquet")
    damaged.write_bytes(damaged.read_bytes()[:-9] + b"x" * 9)

    assert texts(tmp_path / "archive" / "node1") == ["a"]
    assert damaged.name in caplog.text


def test_a_file_that_is_sealed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A young file that was listed is gone when it is read: its lines are in a sealed one."""
    place = tmp_path / "archive" / "local"
    writer = saved(place, SPAN, message(0, "assistant", "a"), seals=False)
    read, sealed = intact.read, []

    def sealing(file: files.File) -> bytes:
        if "messages" in file.path.parts and not sealed:
            sealed.append(file)
            writer.save(seals=True)
            file.path.unlink(missing_ok=True)
        return read(file)

    monkeypatch.setattr(intact, "read", sealing)

    assert texts(place) == ["a"]
    assert sealed


def test_many_messages_are_decoded_in_parts(tmp_path: Path) -> None:
    """Each span gets its own, of several files with thousands of lines."""
    spans = [Span("rl.trajectory", TRACE, f"{n:016x}", "", 0, 9, {}) for n in range(300)]
    lines = [
        Message(0, 1, n, "", 0, TRACE, f"{n % 300:016x}", n // 300, "assistant", text=f"{n % 300}/{n // 300}")
        for n in range(3000)
    ]
    writer = saved(tmp_path / "archive" / "local", *spans, *lines[:1500])
    writer.add(*lines[1500:])
    writer.save(seals=True)

    assert texts(tmp_path / "archive" / "local") == [f"{n}/{number}" for n in range(300) for number in range(10)]
