"""Tickets, which link trajectories to the step that trains on them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from itertools import count, islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from otel_rl.convert.values import packed, to_number, to_whole
from otel_rl.errors.texts import name_of, text_of
from otel_rl.journal.ids import parse_traceparent
from otel_rl.journal.records import IDS, UNKNOWN, Consumed
from otel_rl.journal.records import MOST_TOKENS as MOST_LOGPROBS
from otel_rl.trainer.time_split import Split, merged, split_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Ticket = dict[str, Any]
"""A trajectory as a mapping of JSON types: `traceparent`, `policy_version`, `tokens`, `reward`.

If several versions of the policy sampled it, `policy_version` and `tokens` are lists of the same length. A trajectory
with parts also has `parts`, its seconds by kind, and `tools`, the calls, seconds and longest call of each tool. It can
have `prompt_id`, `group_id` and `row`, and `components`, the parts of its reward by name.
"""
ORIGIN = "prompt_id", "group_id", "row"
"""The origin of a trajectory: its prompt, its group, and the row of the dataset."""

_Value = TypeVar("_Value", float, bytes)
_NO_IDS = IDS.pack(b"", 0)
_AT_ONCE = 1000
_BYTES_AT_ONCE = 1 << 20
"""Bytes of log-probabilities after which the next record begins."""
MOST_TOKENS = 1 << 53
"""Exclusive upper bound of the tokens of a trajectory: floats hold all integers below it."""


class Scores(NamedTuple):
    """Findings of the trainer about each ticket, in their order; empty if they were not given."""

    advantages: Sequence[float] = ()
    losses: Sequence[float] = ()
    logprobs: Sequence[bytes] = ()


NO_SCORES = Scores()


def scores(advantages: object, losses: object, logprobs: Any, refuse: Callable[[str], None]) -> Scores:
    """Return findings of a trainer as plain numbers; pass each one that is invalid to `refuse` as a text."""

    def numbers(what: str, values: object) -> bytes:
        try:
            return b"" if values is None else packed("d", values)
        except Exception as error:  # a foreign object may raise anything
            refuse(f"{what}: {text_of(error)}")
            return b""

    in_trainer: list[bytes] = []
    try:
        if isinstance(logprobs, (str, bytes, Mapping)):
            raise TypeError(f"a {type(logprobs).__name__} where a sequence of lists is expected")
        in_trainer += (numbers("logprobs", one)[: 8 * MOST_LOGPROBS] for one in ([] if logprobs is None else logprobs))
    except Exception as error:  # not a sequence
        refuse(f"logprobs: {text_of(error)}")
    return Scores(array("d", numbers("advantages", advantages)), array("d", numbers("losses", losses)), in_trainer)


def consumed(
    tickets: Iterable[Mapping[str, Any]],
    step: int,
    time: int,
    policy_version: int | None,
    outcome: str,
    refuse: Callable[[str], None],
    found: Scores = NO_SCORES,
    *,
    have_spans: bool = True,
) -> Iterator[Consumed]:
    """Yield records of trajectories that were trained on or dropped, at most a thousand in each.

    Each invalid ticket is passed to `refuse` as a text. The times of the records differ, since they identify them.
    """
    version = UNKNOWN if policy_version is None else policy_version
    known = _known(tickets, found, refuse)
    for later in count():
        if not (some := _some(known)):
            break
        ids, tokens = b"".join(one.ids for one in some), [one.segments for one in some]
        segments = array("q", [number for n, parts in enumerate(tokens) for two in parts for number in (n, *two)])
        origins, components = [one.origin for one in some], [one.components for one in some]
        yield Consumed(
            *(step, time + later, outcome, version, ids, _doubles([one.reward for one in some]), segments.tobytes()),
            *merged(one.split for one in some),
            _doubles([one.advantage for one in some]) if found.advantages else b"",
            _doubles([one.loss for one in some]) if found.losses else b"",
            origins if any(map(any, origins)) else [],
            components if any(components) else [],
            [one.logprobs for one in some] if found.logprobs else [],
            have_spans,
        )


def _doubles(values: list[float]) -> bytes:
    return array("d", values).tobytes()


class _Known(NamedTuple):
    """A ticket as `Consumed` holds it; a segment is a policy version and a number of tokens."""

    ids: bytes
    reward: float
    segments: list[tuple[int, int]]
    split: Split
    origin: tuple[str, str, str]
    components: dict[str, float]
    advantage: float
    loss: float
    logprobs: bytes


def _some(known: Iterator[_Known]) -> list[_Known]:
    """Return the next tickets that fit into a record."""
    some: list[_Known] = []
    size = 0
    for one in islice(known, _AT_ONCE):
        some.append(one)
        size += len(one.logprobs)
        if size >= _BYTES_AT_ONCE:
            break
    return some


def _known(tickets: Any, found: Scores, refuse: Callable[[str], None]) -> Iterator[_Known]:
    number = -1
    try:
        if isinstance(tickets, (str, bytes, Mapping)):
            raise TypeError(f"a {type(tickets).__name__} where a sequence of tickets is expected")
        for number, ticket in enumerate(tickets):
            try:
                parts = _reward(ticket), _segments(ticket), split_of(ticket), _origin(ticket), _components(ticket)
                advantage, loss = (_at(values, number, math.nan) for values in (found.advantages, found.losses))
                yield _Known(_ids(ticket), *parts, advantage, loss, _at(found.logprobs, number, b""))
            except Exception as error:  # a foreign object may raise anything
                kind = type(ticket)
                wrong = text_of(error) if issubclass(kind, Mapping) else f"{kind.__name__}; pass what ticket() returned"
                refuse(f"ticket: {wrong}")
    except Exception as error:  # not a sequence, or one that fails half way
        refuse(f"tickets: {text_of(error)}")
    for what, values in found._asdict().items():
        if number >= 0 and len(values) not in (0, number + 1):
            refuse(f"{len(values)} {what} for {number + 1} tickets")


def _at(values: Sequence[_Value], number: int, unknown: _Value) -> _Value:
    return values[number] if number < len(values) else unknown


def _origin(ticket: Mapping[str, Any]) -> tuple[str, str, str]:
    prompt, group, row = ("" if (found := ticket.get(name)) is None else text_of(found) for name in ORIGIN)
    return prompt, group, row


def _components(ticket: Mapping[str, Any]) -> dict[str, float]:
    return {name_of(name): float(to_number(value)) for name, value in (ticket.get("components") or {}).items()}


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
