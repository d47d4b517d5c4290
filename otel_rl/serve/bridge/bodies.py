"""Bodies of OTLP requests: content encodings, content types, and how much of them is in memory at once."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import sys
import threading
import zlib
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format

from otel_rl.recorder.errors.texts import shown
from otel_rl.recorder.otlp.answers import JSON, LATER, MALFORMED, PROTOBUF, TOO_LARGE, UNSUPPORTED, Refusal, too_large
from otel_rl.recorder.otlp.signals import SERVICES, with_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LARGEST = 16 << 20
"""The largest request in bytes, as sent and decompressed. All that are handled at the same time have no more either."""
_EXPANSION = 4
"""A decoded request takes several times the memory of its bytes; the largest one is handled alone."""
_WAIT_S = 10.0
"""The time limit for a request to wait for others, in seconds; OTLP clients wait that long for a response."""
SMALL = 256 << 10
"""The size in bytes up to which a decompressed body waits for no other: the number of threads bounds their memory."""
_MOST_WAITING = 8
"""Larger bodies that wait for their turn, each of which occupies a thread; the client of a further one is to retry."""
_MOST_PARTS = 1 << 18
"""The largest number of parts of less than 16 bytes in a body: an empty span of 2 bytes takes 175 bytes of memory."""
_PART = re.compile(rb"[%s][\x00-\x0f\x80-\x8f]" % re.escape(bytes(range(2, 256, 8))))
"""The beginning of such a part in protobuf: a tag of wire type 2, and a length; few other places look like it."""
_PART_OF_JSON = re.compile(rb"[,\[{]")
_MOST_PARTS_OF_JSON = 1 << 20
"""The largest number of values in JSON, where 10,000 records of an official client have 300,000."""
_LARGEST_ZSTD_WINDOW = 24
"""The binary logarithm of the largest window of zstd, in bytes: a decompressor reserves that much memory."""


def _gunzip(body: bytes, most: int) -> bytes:
    return gzip.GzipFile(fileobj=io.BytesIO(body)).read(most)


def _inflate(body: bytes, most: int) -> bytes:
    stream = zlib.decompressobj()
    content = stream.decompress(body, most)
    # `decompressobj` raises nothing for a stream that is cut off: half a request would count as the whole one.
    if len(content) < most and not stream.eof:
        raise EOFError("unexpected end of the stream")
    return content


def _unzstd(body: bytes, most: int) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    # A frame of a few bytes can name a window of 2 GiB, which the decompressor reserves.
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _LARGEST_ZSTD_WINDOW}
    return bytes(zstd.ZstdFile(io.BytesIO(body), options=options).read(most))


ENCODINGS: dict[str, Callable[[bytes, int], bytes]] = {"gzip": _gunzip, "deflate": _inflate}
"""The accepted content encodings besides `identity`, with functions that return the first bytes of the content."""
if sys.version_info >= (3, 14) or (find_spec("backports") and find_spec("backports.zstd")):  # the extra `zstd`
    ENCODINGS["zstd"] = _unzstd
_SAME = {"x-gzip": "gzip", "zlib": "deflate"}  # the Collector calls deflate zlib


class Room:
    """Room for the requests that are handled at the same time, whichever listener they come from.

    One large request is decoded at a time. It waits for room during its turn, so that smaller ones do not overtake it
    again and again. Few may wait for their turn: the threads that they occupy are those of smaller requests.
    """

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._changed = threading.Condition()
        self._turn = threading.Lock()
        self._places = threading.Semaphore(_MOST_WAITING)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn of a large request.

        Raises:
            Refusal: Too many wait already; the client should retry later.
        """
        if not self._places.acquire(blocking=False):
            raise Refusal(LATER, "other large requests are waiting")
        try:
            with self._turn:
                yield
        finally:
            self._places.release()

    @contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Wait for the memory of a request of so many bytes, and free it at the end of the block.

        Raises:
            Refusal: Others take them for too long; the client should retry later.
        """
        size = min(size * _EXPANSION, self._size)
        with self._changed:
            if not self._changed.wait_for(lambda: self._free >= size, _WAIT_S):
                raise Refusal(LATER, "other requests are being handled")
            self._free -= size
        try:
            yield
        finally:
            with self._changed:
                self._free += size
                self._changed.notify_all()


ROOM = Room(LARGEST)


def content_type(header: str) -> str:
    """Parse a content type.

    Raises:
        Refusal: The content type is not supported.
    """
    kind = media_type(header)
    if kind in (PROTOBUF, JSON):
        return kind
    text = f"Content-Type {shown(header)} is not supported: use {PROTOBUF} or {JSON}"
    raise Refusal(UNSUPPORTED, text, {"Accept-Post": f"{PROTOBUF}, {JSON}"})


def media_type(header: str) -> str:
    """Return the media type in a content type, without parameters."""
    return header.partition(";")[0].strip().lower()


def encoding(header: str) -> str:
    """Parse a content encoding; return an empty string for none.

    Raises:
        Refusal: The content encoding is not supported.
    """
    name = header.strip().lower()
    name = _SAME.get(name, name)
    if name in ("", "identity"):
        return ""
    if name not in ENCODINGS:
        accepted = ", ".join([*ENCODINGS, "identity"])
        text = f"Content-Encoding {shown(header)} is not supported: use one of {accepted}"
        raise Refusal(UNSUPPORTED, text, {"Accept-Encoding": accepted})
    return name


@contextmanager
def decoded(signal: str, body: bytes | bytearray, kind: str, encoded_as: str) -> Iterator[Any]:
    """Decode a request of a signal, and keep room for it until the end of the block, in which it is handled.

    Args:
        signal: The signal.
        body: The body as sent; a bytearray is cleared.
        kind: The content type.
        encoded_as: The content encoding; empty for none.

    Raises:
        Refusal: The body is not a valid message, or too large when decompressed, or too many others are handled.
    """
    with ExitStack() as until_handled:
        # Only so much at first: a small body that expands must not take its memory before its turn.
        content = _decompressed(body, encoded_as, SMALL) if encoded_as else body
        with ExitStack() as until_decoded:
            if len(content) > SMALL:
                until_decoded.enter_context(ROOM.turn())
                content = _decompressed(body, encoded_as, LARGEST) if encoded_as else body
                _check_size(content, kind)
                until_handled.enter_context(ROOM.reserved(len(content)))
            request = _parsed(signal, content, kind)
            if isinstance(body, bytearray):
                body.clear()  # callers still have it
            # Freed before the request is handled: otherwise bytes and message are in memory together.
            del content, body
        yield request


def _check_size(content: bytes | bytearray, kind: str) -> None:
    if len(content) > LARGEST:
        raise too_large(LARGEST)
    part, most = (_PART, _MOST_PARTS) if kind == PROTOBUF else (_PART_OF_JSON, _MOST_PARTS_OF_JSON)
    if next(islice(part.finditer(content), most, None), None):
        raise Refusal(TOO_LARGE, f"the body has more than {most} values of a few bytes: send less at once")


def _decompressed(body: bytes | bytearray, name: str, most: int) -> bytes:
    """Return the content of a body, or the first bytes of it if there are more than `most`."""
    try:
        # One byte more than allowed shows that there is more, without decompressing the rest (bridge/test_bodies.py).
        return ENCODINGS[name](bytes(body), most + 1)
    except Exception as error:  # each library has its own exceptions for invalid data
        raise Refusal(MALFORMED, f"the body is not valid {name}: {error}") from error


def _parsed(signal: str, content: bytes | bytearray, kind: str) -> Any:
    request = SERVICES[signal].request()
    try:
        if kind == PROTOBUF:
            request.ParseFromString(content)
        else:
            value = json.loads(content)
            if not isinstance(value, dict):  # protobuf would accept an empty list or text as an empty message
                raise TypeError(f"expected an object, got {type(value).__name__}")
            value = with_ids(value, lambda id_: base64.b64encode(bytes.fromhex(id_)).decode())
            json_format.ParseDict(value, request, ignore_unknown_fields=True)
    except Exception as error:  # parsing has no side effects, so any exception is due to the bytes
        text = f"the body is not a valid {type(request).__name__} ({kind}): {type(error).__name__}: {error}"
        raise Refusal(MALFORMED, text) from error
    return request
