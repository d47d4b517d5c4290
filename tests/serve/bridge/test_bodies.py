"""Bodies of requests: what is decoded, and that its size is limited, of one request and of all that are handled."""

from __future__ import annotations

import gzip
import threading
from typing import Any

import pytest

from otel_rl.recorder.otlp.answers import JSON, PROTOBUF, Refusal
from otel_rl.serve.bridge import bodies
from tests.collector import wait_for
from tests.fuzz.samples import compressed
from tests.serve.bridge.bridges import step_metrics

_BODY = step_metrics("run", {n: {"loss": 1.0} for n in range(300)}).SerializeToString()


@pytest.fixture(params=["gzip", "deflate", "zstd"])
def encoding(request: pytest.FixtureRequest) -> str:
    if request.param not in bodies.ENCODINGS:
        pytest.skip("needs Python 3.14 or the extra zstd")
    return str(request.param)


def decoded(body: bytes, encoding: str = "", kind: str = PROTOBUF) -> bytes:
    """Return the message in a body, encoded again."""
    with bodies.decoded("logs", body, kind, encoding) as request:
        return bytes(request.SerializeToString())


def test_compressed(encoding: str) -> None:
    """A body in each encoding is the request that was compressed."""
    assert decoded(compressed(encoding, _BODY), encoding) == _BODY


def test_streams_follow_each_other() -> None:
    """Streams of gzip with padding in between make one message."""
    middle = len(_BODY) // 2
    for padding in (0, 1, 5000):
        two = gzip.compress(_BODY[:middle]) + bytes(padding) + gzip.compress(_BODY[middle:])

        assert decoded(two, "gzip") == _BODY


def test_a_stream_that_ends_early(encoding: str) -> None:
    """It is refused, wherever it ends."""
    whole = compressed(encoding, bytes(range(256)) * 100 + _BODY)
    for end in (1, 9, len(whole) // 2, len(whole) - 1):
        with pytest.raises(Refusal, match=f"not valid {encoding}"):
            decoded(whole[:end], encoding)


def test_a_bomb(encoding: str) -> None:
    """Decompression stops at the limit; a client does not repeat the request."""
    with pytest.raises(Refusal, match="send less at once") as caught:
        decoded(compressed(encoding, bytes(bodies.LARGEST + 1)), encoding)

    assert (caught.value.kind.http, caught.value.kind.retryable) == (413, False)


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"])
def test_json_that_is_no_request(body: bytes) -> None:
    """It is refused: broken, no object, or nested too deeply."""
    with pytest.raises(Refusal, match="not a valid ExportLogsServiceRequest"):
        decoded(body, kind=JSON)


def test_values_in_values() -> None:
    """A request that nests values ten thousand times is refused."""
    value = b""
    for _ in range(10_000):
        value = b"\x2a" + _sized(b"\x0a" + _sized(value))  # an array value in an array of values
    with pytest.raises(Refusal, match="not a valid ExportLogsServiceRequest"):
        decoded(b"\x0a" + _sized(b"\x12" + _sized(b"\x12" + _sized(b"\x2a" + _sized(value)))))


def _sized(content: bytes) -> bytes:
    """Return the content with its size before it."""
    number, found = len(content), bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number]) + content


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> bodies.Room:
    """Room for requests of 1.5 times the size of `_BODY`, which counts as a large one."""
    monkeypatch.setattr(bodies, "SMALL", 100)
    room = bodies.Room(len(_BODY) * 3 // 2)
    monkeypatch.setattr(bodies, "ROOM", room)
    return room


def test_requests_wait_for_each_other(room: bodies.Room) -> None:
    """A request is decoded when those that are handled leave room for it."""
    found: list[Any] = []
    with bodies.decoded("logs", _BODY, PROTOBUF, ""):
        waiting = threading.Thread(target=lambda: found.append(decoded(_BODY)))
        waiting.start()
        wait_for(lambda: room._changed._waiters, "the second request does not wait")
        before = found.copy()
    waiting.join()

    assert (before, found) == ([], [_BODY])


def test_a_request_that_waits_too_long(room: bodies.Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is asked to retry later; then the request is accepted."""
    monkeypatch.setattr(bodies, "_WAIT_S", 0.01)
    with bodies.decoded("logs", _BODY, PROTOBUF, ""), pytest.raises(Refusal, match="being handled") as caught:
        decoded(_BODY)

    assert (caught.value.kind.http, caught.value.headers["Retry-After"]) == (503, "5")
    assert decoded(_BODY) == _BODY


def test_a_refused_body_frees_its_room(room: bodies.Room) -> None:
    """A body that cannot be decoded holds nothing."""
    for _ in range(3):
        with pytest.raises(Refusal):
            decoded(b"\xff" * len(_BODY))

    assert decoded(_BODY) == _BODY
