"""Trace and span ids: the same on every rank for steps, drawn from the system for all other spans.

Ids never come from `random`, NumPy or torch: a trainer that seeds them gives every rank the same
ids, and drawing from them would change the training.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections import deque
from typing import NamedTuple

_BITS = 16
"""Bits of a span id that count up."""
_MASK = (1 << _BITS) - 1
_POOL = 256
"""Span ids that are made at once."""
_NO_TRACE, _FIRST_TRACE = bytes(16), bytes(15) + b"\1"
_sha256, _from_bytes = hashlib.sha256, int.from_bytes
# Version ff is invalid, and version 00 ends with its flags.
_TRACEPARENT = re.compile(r"^(?!ff|00.{54})[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?$")


class SpanIds(NamedTuple):
    """The identity of a span: 128 bits of trace id, 64 bits of span id."""

    trace_id: int
    span_id: int


def step_ids(run_id: str, attempt: int, step: int) -> SpanIds:
    """Return the ids of the root span of a step, as numbers."""
    trace_id, span_id = packed_step_ids(run_id, attempt, step)
    return SpanIds(int.from_bytes(trace_id, "big"), span_id)


def packed_step_ids(run_id: str, attempt: int, step: int) -> tuple[bytes, int]:
    """Return the ids of the root span of a step packed: a hash, so that ranks agree without communicating.

    The hash includes the attempt, so that a resumed run does not write into the traces of the attempt before.
    """
    digest = _sha256(f"{run_id}/{attempt}/{step}".encode()).digest()
    trace_id = digest[:16]
    return trace_id if trace_id != _NO_TRACE else _FIRST_TRACE, _from_bytes(digest[16:24], "big") or 1


class RandomIds:
    """A generator of ids from `os.urandom`.

    Span ids count up within blocks of 65,536 whose first 48 bits are random: they are unique in a trace, and stored in
    a quarter of the space of random ones. A forked child must create its own, or it repeats the ids of its parent.
    """

    def __init__(self) -> None:
        self._pool: deque[int] = deque()  # `pop` is atomic, so threads need no lock
        self._numbers = itertools.count()  # and so is `next`
        self._blocks: dict[int, int] = {}

    def span_id(self) -> int:
        """Return an id of 64 bits, never 0."""
        try:
            return self._pool.pop()
        except IndexError:
            number = next(self._numbers) * _POOL
            drawn = (int.from_bytes(os.urandom(6), "big") or 1) << _BITS
            first = self._blocks.setdefault(number >> _BITS, drawn) + (number & _MASK)
            self._pool.extend(reversed(range(first, first + _POOL)))
            return self.span_id()

    def trace_id(self) -> int:
        """Return 128 random bits, never 0."""
        return int.from_bytes(os.urandom(16), "big") or 1


def format_traceparent(ids: SpanIds) -> str:
    """Return the W3C `traceparent` of a sampled span."""
    return f"00-{ids.trace_id:032x}-{ids.span_id:016x}-01"


def parse_traceparent(text: str) -> SpanIds | None:
    """Return the ids in a W3C `traceparent`, or `None` if it is not a valid one."""
    match = _TRACEPARENT.match(text.strip().lower())
    if match is None:
        return None
    ids = SpanIds(int(match[1], 16), int(match[2], 16))
    return ids if ids.trace_id and ids.span_id else None
