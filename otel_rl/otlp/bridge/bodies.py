"""Bodies of OTLP requests: content encodings and content types."""

from __future__ import annotations

import base64
import json
import sys
import zlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from google.protobuf import json_format

from otel_rl.errors.texts import shown
from otel_rl.otlp.bridge import sizes
from otel_rl.otlp.bridge.answers import JSON, MALFORMED, PROTOBUF, TOO_LARGE, UNSUPPORTED, Refusal
from otel_rl.otlp.signals import SERVICES, with_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from otel_rl.otlp.bridge.budget import Held

LARGEST_REQUEST = 16 << 20
"""The largest request as sent, in bytes; the Collector's limit is 20 MiB."""
LARGEST_DECOMPRESSED = 64 << 20
"""The largest decompressed request, in bytes; no more is held in memory for one request."""


_CHUNK = 1 << 20
_FED = 4 << 10
"""Bytes that a decompressor gets at once: it copies those behind its stream, of which there may be a million."""
_LARGEST_ZSTD_WINDOW = 25
"""The binary logarithm of the largest window of zstd, in bytes: a decompressor reserves 32 MiB for it."""


class _Decompressor(Protocol):
    """A decompressor of one stream, as in the standard library."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Zlib:
    """A decompressor of zlib with the interface that bz2, lzma and zstd have."""

    def __init__(self, wbits: int) -> None:
        self._one = zlib.decompressobj(wbits)

    @property
    def eof(self) -> bool:
        return self._one.eof

    @property
    def unused_data(self) -> bytes:
        return self._one.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._one.decompress(self._one.unconsumed_tail + data, max_length)


def _zstd() -> _Decompressor:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    made: _Decompressor = zstd.ZstdDecompressor(
        options={zstd.DecompressionParameter.window_log_max: _LARGEST_ZSTD_WINDOW}
    )
    return made


def _has_zstd() -> bool:
    return sys.version_info >= (3, 14) or (find_spec("backports") is not None and bool(find_spec("backports.zstd")))


ENCODINGS: dict[str, Callable[[], _Decompressor]] = {"gzip": lambda: _Zlib(31), "deflate": lambda: _Zlib(15)}
"""The accepted content encodings besides `identity`; zstd needs Python 3.14 or the extra `zstd`."""
if _has_zstd():
    ENCODINGS["zstd"] = _zstd
_SAME = {"x-gzip": "gzip", "zlib": "deflate"}  # the Collector calls deflate zlib


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


def request(signal: str, body: bytes | bytearray, kind: str, encoded_as: str, held: Held) -> Any:
    """Decode a request message of a signal, with the content type `kind` and the content encoding `encoded_as`.

    Its memory is taken from `held` before it is used.

    Raises:
        Refusal: The body is not a valid message, or too large when decompressed, or there is too little memory.
    """
    content = _decompressed(body, encoded_as, held) if encoded_as else body
    found = SERVICES[signal].request()
    try:
        count = sizes.objects(content, found.DESCRIPTOR) if kind == PROTOBUF else sizes.elements(content)
    except sizes.TooManyError as error:
        raise Refusal(TOO_LARGE, f"the body is too large: {error}") from None
    held.take(count * sizes.OBJECT_BYTES)
    try:
        if kind == PROTOBUF:
            found.ParseFromString(content)
        else:
            value = json.loads(content)
            if not isinstance(value, dict):  # protobuf would accept an empty list or text as an empty message
                raise TypeError(f"expected an object, got {type(value).__name__}")
            value = with_ids(value, lambda id_: base64.b64encode(bytes.fromhex(id_)).decode())
            json_format.ParseDict(value, found, ignore_unknown_fields=True)
    except Exception as error:  # parsing has no side effects, so any exception is due to the bytes
        text = f"the body is not a valid {type(found).__name__} ({kind}): {type(error).__name__}: {error}"
        raise Refusal(MALFORMED, text) from error
    return found


def _decompressed(body: bytes | bytearray, name: str, held: Held) -> bytearray:
    """Decompress a body in pieces, and stop at the limit; several streams may follow each other."""
    content = bytearray()
    try:
        for piece in _pieces(body, ENCODINGS[name]):
            if len(content) + len(piece) > LARGEST_DECOMPRESSED:
                text = f"the body has more than {LARGEST_DECOMPRESSED} bytes when decompressed: send less at once"
                raise Refusal(TOO_LARGE, text)
            held.take(len(piece))
            content += piece
    except Refusal:
        raise
    except Exception as error:  # each library has its own exceptions for invalid data
        raise Refusal(MALFORMED, f"the body is not valid {name}: {error}") from error
    return content


def _pieces(body: bytes | bytearray, make: Callable[[], _Decompressor]) -> Iterator[bytes]:
    stream: _Decompressor | None = None
    padding = b""
    for place in range(0, len(body), _FED):
        rest = bytes(body[place : place + _FED])
        while rest := rest.lstrip(padding) if stream is None else rest:
            stream = stream or make()
            piece = stream.decompress(rest, _CHUNK)
            while piece:
                yield piece
                piece = b"" if stream.eof else stream.decompress(b"", _CHUNK)
            rest = stream.unused_data if stream.eof else b""
            if stream.eof:
                stream, padding = None, b"\0"  # gzip may be padded
    if stream is not None:
        raise EOFError("unexpected end of the stream")
