"""Tickets, which link trajectories to the step that trains on them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from itertools import count, islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from otel_rl.recorder.convert.values import packed, to_number, to_whole
from otel_rl.recorder.errors.texts import name_of, text_of
from otel_rl.recorder.journal.ids import parse_traceparent
from otel_rl.recorder.journal.records import IDS, UNKNOWN, Consumed
from otel_rl.recorder.journal.records import MOST_TOKENS as MOST_LOGPROBS
from otel_rl.recorder.trainer.time_split import Split, merged, split_of

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


class GivenScores(NamedTuple):
    """Findings of the trainer about each ticket, in their order; empty if they were not given."""

    advantages: Sequence[float] = ()
    losses: Sequence[float] = ()
    logprobs: Sequence[bytes] = ()


NO_SCORES = GivenScores()


def scores(advantages: object, losses: object, logprobs: Any, refuse: Callable[[str], None]) -> GivenScores:
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
        in_trainer += (
            numbers("logprobs", values)[: 8 * MOST_LOGPROBS] for values in ([] if logprobs is None else logprobs)
        )
    except Exception as error:  # not a sequence
        refuse(f"logprobs: {text_of(error)}")
    return GivenScores(array("d", numbers("advantages", advantages)), array("d", numbers("losses", losses)), in_trainer)


def consumed(
    tickets: Iterable[Mapping[str, Any]],
    step: int,
    time: int,
    policy_version: int | None,
    outcome: str,
    refuse: Callable[[str], None],
    given: GivenScores = NO_SCORES,
    *,
    have_spans: bool = True,
) -> Iterator[Consumed]:
    """Yield records of trajectories that were trained on or dropped, at most a thousand in each.

    Each invalid ticket is passed to `refuse` as a text. The times of the records differ, since they identify them.
    """
    version = UNKNOWN if policy_version is None else policy_version
    known = _known(tickets, given, refuse)
    for later in count():
        if not (batch := _next_batch(known)):
            break
        ids, tokens = b"".join(ticket.ids for ticket in batch), [ticket.segments for ticket in batch]
        segments = array("q", [number for n, parts in enumerate(tokens) for two in parts for number in (n, *two)])
        origins, components = [ticket.origin for ticket in batch], [ticket.components for ticket in batch]
        yield Consumed(
            *(step, time + later, outcome, version, ids),
            *(_doubles([ticket.reward for ticket in batch]), segments.tobytes()),
            *merged(ticket.split for ticket in batch),
            _doubles([ticket.advantage for ticket in batch]) if given.advantages else b"",
            _doubles([ticket.loss for ticket in batch]) if given.losses else b"",
            origins if any(map(any, origins)) else [],
            components if any(components) else [],
            [ticket.logprobs for ticket in batch] if given.logprobs else [],
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


def _next_batch(known: Iterator[_Known]) -> list[_Known]:
    """Return the next tickets that fit into a record."""
    batch: list[_Known] = []
    size = 0
    for ticket in islice(known, _AT_ONCE):
        batch.append(ticket)
        size += len(ticket.logprobs)
        if size >= _BYTES_AT_ONCE:
            break
    return batch


def _known(tickets: Any, given: GivenScores, refuse: Callable[[str], None]) -> Iterator[_Known]:
    number = -1
    try:
        if isinstance(tickets, (str, bytes, Mapping)):
            raise TypeError(f"a {type(tickets).__name__} where a sequence of tickets is expected")
        for number, ticket in enumerate(tickets):
            try:
                parts = _reward(ticket), _segments(ticket), split_of(ticket), _origin(ticket), _components(ticket)
                advantage, loss = (_at(values, number, math.nan) for values in (given.advantages, given.losses))
                yield _Known(_ids(ticket), *parts, advantage, loss, _at(given.logprobs, number, b""))
            except Exception as error:  # a foreign object may raise anything
                kind = type(ticket)
                wrong = text_of(error) if issubclass(kind, Mapping) else f"{kind.__name__}; pass what ticket() returned"
                refuse(f"ticket: {wrong}")
    except Exception as error:  # not a sequence, or one that fails half way
        refuse(f"tickets: {text_of(error)}")
    for what, values in given._asdict().items():
        if number >= 0 and len(values) not in (0, number + 1):
            refuse(f"{len(values)} {what} for {number + 1} tickets")


def _at(values: Sequence[_Value], number: int, unknown: _Value) -> _Value:
    return values[number] if number < len(values) else unknown


def _origin(ticket: Mapping[str, Any]) -> tuple[str, str, str]:
    prompt, group, row = ("" if (value := ticket.get(name)) is None else text_of(value) for name in ORIGIN)
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
