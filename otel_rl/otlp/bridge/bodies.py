"""Bodies of OTLP requests: content encodings and content types."""

from __future__ import annotations

import base64
import gzip
import io
import json
import sys
import zlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format

from otel_rl.otlp.bridge.answers import JSON, MALFORMED, PROTOBUF, TOO_LARGE, UNSUPPORTED, Refusal
from otel_rl.otlp.signals import SERVICES, with_ids

if TYPE_CHECKING:
    from collections.abc import Callable

LARGEST_REQUEST = 16 << 20
"""The largest request as sent, in bytes; the Collector's limit is 20 MiB."""
LARGEST_DECOMPRESSED = 64 << 20
"""The largest decompressed request, in bytes; no more is held in memory for one request."""


def _gunzip(body: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
        return file.read(LARGEST_DECOMPRESSED + 1)


def _inflate(body: bytes) -> bytes:
    decompressor = zlib.decompressobj()
    content = decompressor.decompress(body, LARGEST_DECOMPRESSED + 1)
    if not decompressor.eof and len(content) <= LARGEST_DECOMPRESSED:
        raise EOFError("unexpected end of the stream")
    return content


def _unzstd(body: bytes) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    with zstd.ZstdFile(io.BytesIO(body)) as file:
        return bytes(file.read(LARGEST_DECOMPRESSED + 1))


def _has_zstd() -> bool:
    return sys.version_info >= (3, 14) or (find_spec("backports") is not None and bool(find_spec("backports.zstd")))


ENCODINGS: dict[str, Callable[[bytes], bytes]] = {"gzip": _gunzip, "deflate": _inflate}
"""The accepted content encodings besides `identity`; zstd needs Python 3.14 or the extra `zstd`."""
if _has_zstd():
    ENCODINGS["zstd"] = _unzstd
_SAME = {"x-gzip": "gzip", "zlib": "deflate"}  # the Collector calls deflate zlib


def content_type(header: str) -> str:
    """Parse a content type.

    Raises:
        Refusal: The content type is not supported.
    """
    kind = media_type(header)
    if kind in (PROTOBUF, JSON):
        return kind
    text = f"Content-Type {header[:100]!r} is not supported: use {PROTOBUF} or {JSON}"
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
        text = f"Content-Encoding {header[:100]!r} is not supported: use one of {accepted}"
        raise Refusal(UNSUPPORTED, text, {"Accept-Encoding": accepted})
    return name


def request(signal: str, body: bytes, kind: str = PROTOBUF, encoded_as: str = "") -> Any:
    """Decode a request message of a signal, with the content type `kind` and the content encoding `encoded_as`.

    Raises:
        Refusal: The body is not a valid message, or too large when decompressed.
    """
    content = _decompressed(body, encoded_as)
    found = SERVICES[signal].request()
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


def _decompressed(body: bytes, name: str) -> bytes:
    if not name:
        return body
    try:
        content = ENCODINGS[name](body)
    except Exception as error:  # each library has its own exceptions for invalid data
        raise Refusal(MALFORMED, f"the body is not valid {name}: {error}") from error
    if len(content) > LARGEST_DECOMPRESSED:
        raise Refusal(
            TOO_LARGE, f"the body has more than {LARGEST_DECOMPRESSED} bytes when decompressed: send less at once"
        )
    return content
