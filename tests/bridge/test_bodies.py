"""Compressed bodies: several streams, and how often their bytes are copied."""

from __future__ import annotations

import gzip

import pytest

from otel_rl.otlp.bridge import bodies
from otel_rl.otlp.bridge.answers import PROTOBUF, Refusal
from otel_rl.otlp.bridge.budget import Budget, Held
from tests.bridge.bridges import step_metrics

_BODY = step_metrics("run", {n: {"loss": 1.0} for n in range(300)}).SerializeToString()


class _Counting(bodies._Zlib):
    """Decompresses gzip, and counts the bytes that are copied behind the ends of streams."""

    copied = 0

    @property
    def unused_data(self) -> bytes:
        found = super().unused_data
        _Counting.copied += len(found)
        return found


def decoded(body: bytes) -> bytes:
    """Return the message in a body of gzip, encoded again."""
    with Held(Budget(), "192.0.2.1") as held:
        return bytes(bodies.request("logs", body, PROTOBUF, "gzip", held).SerializeToString())


def test_streams_follow_each_other() -> None:
    """Streams with padding in between make one message, wherever the pieces of the body end."""
    middle = len(_BODY) // 2
    for padding in (0, 1, bodies._FED, 3 * bodies._FED + 5):
        two = gzip.compress(_BODY[:middle]) + bytes(padding) + gzip.compress(_BODY[middle:])

        assert decoded(two) == _BODY


def test_a_stream_that_ends_early() -> None:
    """It is refused, also if the body ends where a piece does."""
    whole = gzip.compress(bytes(range(256)) * 100 + _BODY, 0)
    for end in (1, 9, bodies._FED, 2 * bodies._FED, len(whole) - 1):
        with pytest.raises(Refusal, match="not valid gzip"):
            decoded(whole[:end])


def test_many_empty_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes behind each of them are copied once per piece, not the rest of the body each time."""
    monkeypatch.setitem(bodies.ENCODINGS, "gzip", lambda: _Counting(31))
    streams = 3000
    decoded(gzip.compress(b"") * streams)

    assert 0 < _Counting.copied <= streams * bodies._FED // 2


def test_many_fields() -> None:
    """A body of a few kilobytes with five million unknown fields is refused before they are all counted."""
    unknown = bytes([15 << 3, 1])
    with pytest.raises(Refusal, match="more than 1048576 messages, fields or elements"):
        decoded(gzip.compress(unknown * (5 << 20)))
