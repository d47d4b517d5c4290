"""Tickets, which link trajectories to the step that trains on them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from otel_rl.convert.values import to_whole
from otel_rl.errors.texts import text_of
from otel_rl.journal.ids import parse_traceparent
from otel_rl.journal.records import IDS, UNKNOWN, Consumed
from otel_rl.trainer.time_split import Split, merged, split_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Ticket = dict[str, Any]
"""A trajectory as a mapping of JSON types: `traceparent`, `policy_version`, `tokens`, `reward`.

If several versions of the policy sampled it, `policy_version` and `tokens` are lists of the same length. A trajectory
with parts also has `parts`, its seconds by kind, and `tools`, the calls, seconds and longest call of each tool.
"""

_NO_IDS = IDS.pack(b"", 0)
_AT_ONCE = 1000
MOST_TOKENS = 1 << 53
"""Exclusive upper bound of the tokens of a trajectory: floats hold all integers below it."""


def consumed(
    tickets: Iterable[Mapping[str, Any]],
    step: int,
    time: int,
    policy_version: int | None,
    outcome: str,
    refuse: Callable[[str], None],
) -> Iterator[Consumed]:
    """Yield records of trajectories that were trained on or dropped, a thousand in each.

    Each invalid ticket is passed to `refuse` as a text.
    """
    version = UNKNOWN if policy_version is None else policy_version
    known = _known(tickets, refuse)
    while some := list(islice(known, _AT_ONCE)):
        ids = b"".join(one.ids for one in some)
        rewards = array("d", [one.reward for one in some]).tobytes()
        segments = array("q", [number for n, one in enumerate(some) for two in one.segments for number in (n, *two)])
        parts, tools = merged(one.split for one in some)
        yield Consumed(step, time, outcome, version, ids, rewards, segments.tobytes(), parts, tools)


class _Known(NamedTuple):
    """A ticket as `Consumed` holds it; a segment is a policy version and a number of tokens."""

    ids: bytes
    reward: float
    segments: list[tuple[int, int]]
    split: Split


def _known(tickets: Any, refuse: Callable[[str], None]) -> Iterator[_Known]:
    try:
        if isinstance(tickets, (str, bytes, Mapping)):
            raise TypeError(f"a {type(tickets).__name__} where a sequence of tickets is expected")
        for ticket in tickets:
            try:
                yield _Known(_ids(ticket), _reward(ticket), _segments(ticket), split_of(ticket))
            except Exception as error:  # a foreign object may raise anything
                kind = type(ticket)
                wrong = text_of(error) if issubclass(kind, Mapping) else f"{kind.__name__}; pass what ticket() returned"
                refuse(f"ticket: {wrong}")
    except Exception as error:  # not a sequence, or one that fails half way
        refuse(f"tickets: {text_of(error)}")


def _ids(ticket: Mapping[str, Any]) -> bytes:
    ids = parse_traceparent(str(ticket.get("traceparent") or ""))
    return _NO_IDS if ids is None else IDS.pack(ids.trace_id.to_bytes(16, "big"), ids.span_id)


def _reward(ticket: Mapping[str, Any]) -> float:
    reward = ticket.get("reward")
    return math.nan if reward is None else float(reward)


def _segments(ticket: Mapping[str, Any]) -> list[tuple[int, int]]:
    versions, tokens = ticket.get("policy_version"), ticket.get("tokens", 0)
    versions = versions if isinstance(versions, (list, tuple)) else [versions]
    tokens = tokens if isinstance(tokens, (list, tuple)) else [tokens]
    pairs = zip(versions, tokens, strict=True)
    return [
        (UNKNOWN if version is None else to_whole(version, UNKNOWN), to_whole(count, 0, MOST_TOKENS))
        for version, count in pairs
    ]
