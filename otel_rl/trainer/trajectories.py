"""Rollouts and trajectories, and the tickets that link them to the step that trains on them.

A rollout worker and the trainer are different processes, with queues between them and different weight versions. So a
trajectory is a trace of its own. Its ticket, a plain mapping, travels with the data to the trainer.
"""

from __future__ import annotations

import math
from array import array
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import trace
from opentelemetry.trace import SpanKind

from otel_rl import semconv
from otel_rl.convert.values import to_whole
from otel_rl.errors.redaction import redacted_name
from otel_rl.errors.texts import LONGEST_NAME, text_of
from otel_rl.journal.ids import SpanIds, format_traceparent, parse_traceparent
from otel_rl.journal.records import IDS, UNKNOWN, Consumed
from otel_rl.trainer.arguments import cut_name, refuse_extra
from otel_rl.trainer.parts import Part, Split, TimeSplit, known_kind, merged, split_of
from otel_rl.trainer.phase import Phase
from otel_rl.trainer.spans import never_raises

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from typing_extensions import Never, Self

    from otel_rl.trainer.recorder import Recorder
    from otel_rl.trainer.step import StepSpan

Ticket = dict[str, Any]
"""A trajectory as a mapping of JSON types: `traceparent`, `policy_version`, `tokens`, `reward`.

If several versions of the policy sampled it, `policy_version` and `tokens` are lists of the same length. A trajectory
with parts also has `parts`, its seconds by kind, and `tools`, the calls, seconds and longest call of each tool.
"""

_NO_IDS = IDS.pack(b"", 0)
_AT_ONCE = 1000
_MOST_TOKENS = 1 << 53


class Rollout(Phase):
    """A batch of trajectories with a trace of its own; a context manager. If `recorded` is false, it has no span."""

    kind = SpanKind.INTERNAL
    _depth = 2
    span_name = semconv.SPAN_ROLLOUT

    def __init__(
        self, recorder: Recorder, *, recorded: bool, policy_version: int | None, attributes: Mapping[str, object]
    ) -> None:
        version = {} if policy_version is None else {semconv.POLICY_VERSION: policy_version}
        super().__init__(recorder, self.span_name, {**version, **attributes})
        self.policy_version = UNKNOWN if policy_version is None else policy_version
        self._recorded = recorded

    def _place(self, parent: trace.Span | None, step: StepSpan | None) -> tuple[int, bytes]:
        """Return no parent: another step than the open one may train on it."""
        return 0, self._recorder.ids.trace_id().to_bytes(16, "big")

    def __enter__(self) -> Self:
        if self._recorded:
            return super().__enter__()
        self._split_from(self._recorder.clock.now())
        return self

    def _split_from(self, time: int) -> None:
        """Begin to split the time into parts."""


class Trajectory(Rollout):
    """One trajectory with a trace of its own, linked to the rollout that is current; a context manager.

    Phases, requests and tool calls inside are in its trace. An inference server joins it by `otel_rl.carrier()`.
    """

    span_name = semconv.SPAN_TRAJECTORY
    _split: TimeSplit | None = None  # `None` until it begins

    def __init__(
        self, recorder: Recorder, *, recorded: bool, policy_version: int | None, attributes: Mapping[str, object]
    ) -> None:
        super().__init__(recorder, recorded=recorded, policy_version=policy_version, attributes=attributes)
        self._tokens: dict[int, int] = {}
        self._reward: float | None = None
        batch = trace.get_current_span()
        if recorded and isinstance(batch, Rollout):
            self.add_link(batch.get_span_context())

    def part(  # type: ignore[override] # the name of a part is a text, not an attribute of any type
        self, kind: str = "", /, *_extra: Never, name: str = "", **attributes: object
    ) -> Part:
        """Return a context manager for a part of the trajectory.

        The time of each kind is summed over the trajectories of a step, and the time of tools by name. While several
        parts are open, time counts for the last one that began. A call with another kind is refused and counted.

        Args:
            kind: "model", "tool", "environment" or "verifier".
            name: Name of the tool, model, environment or verifier, such as "search".
            attributes: Attributes of its span.
        """
        recorder = self._recorder
        if _extra:
            refuse_extra(recorder, "part", _extra)
        known = known_kind(recorder, kind)
        is_short = type(name) is str and len(name) <= LONGEST_NAME
        called = redacted_name(name) if is_short else cut_name(recorder, "part", name)
        return Part(recorder, self, known, called, attributes, recorded=self._recorded)

    def _begin(self, parent: trace.Span | None, start_time: int | None = None) -> None:
        super()._begin(parent, start_time)
        self._split_from(self._began)

    def _split_from(self, time: int) -> None:
        self._split = TimeSplit(time)

    @property
    def split(self) -> TimeSplit | None:
        """The time of its parts; `None` before it begins."""
        return self._split

    @never_raises
    def generated(self, tokens: int, policy_version: int | None = None) -> None:
        """Add generated tokens.

        Args:
            tokens: Number of tokens.
            policy_version: Version of the policy that generated them; by default the last one.
        """
        count = to_whole(tokens, 0, _MOST_TOKENS)
        if policy_version is not None:
            self.policy_version = to_whole(policy_version, UNKNOWN)
        self._tokens[self.policy_version] = self._tokens.get(self.policy_version, 0) + count

    @never_raises
    def rewarded(self, reward: float) -> None:
        """Set the reward of the trajectory."""
        self._reward = float(reward)

    def ticket(self) -> Ticket:
        """Return the mapping that travels with the data to the trainer; it has JSON types only."""
        versions, tokens = list(self._tokens) or [self.policy_version], list(self._tokens.values()) or [0]
        ticket: Ticket = {"policy_version": versions, "tokens": tokens}
        if self._reward is not None:
            ticket["reward"] = self._reward
        if self._split is not None:
            ticket |= self._split.told(self._recorder.clock.now())
        if self._recorded:
            here = self.get_span_context()
            ticket["traceparent"] = format_traceparent(SpanIds(here.trace_id, here.span_id))
        return ticket

    def end(self, end_time: int | None = None) -> None:
        """End the trajectory; a second call does nothing."""
        now = self._moment(end_time)
        if self._split is not None:
            self._split.close(now)
        if not self._ended:
            told: dict[str, Any] = {semconv.TRAJECTORY_TOKENS: sum(self._tokens.values())}
            if self._reward is not None:
                told[semconv.TRAJECTORY_REWARD] = self._reward
            if len(self._tokens) > 1:
                told[semconv.POLICY_VERSIONS] = list(self._tokens)
            self.set_attributes(told)
        super().end(now)


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
    while part := list(islice(known, _AT_ONCE)):
        ids = b"".join(one.ids for one in part)
        rewards = array("d", [one.reward for one in part]).tobytes()
        segments = array("q", [number for n, one in enumerate(part) for two in one.segments for number in (n, *two)])
        parts, tools = merged(one.split for one in part)
        yield Consumed(step, time, outcome, version, ids, rewards, segments.tobytes(), parts, tools)


class _Known(NamedTuple):
    """A ticket as `Consumed` holds it; a segment is a policy version and a number of tokens."""

    ids: bytes
    reward: float
    segments: list[tuple[int, int]]
    split: Split


def _known(tickets: Any, refuse: Callable[[str], None]) -> Iterator[_Known]:
    try:
        if isinstance(tickets, (str, bytes)):
            raise TypeError(f"a {type(tickets).__name__} where a sequence of tickets is expected")
        for ticket in tickets:
            try:
                yield _Known(_ids(ticket), _reward(ticket), _segments(ticket), split_of(ticket))
            except Exception as error:  # a foreign object may raise anything
                refuse(f"ticket: {text_of(error)}")
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
        (UNKNOWN if version is None else to_whole(version, UNKNOWN), to_whole(count, 0, _MOST_TOKENS))
        for version, count in pairs
    ]
