"""The trajectories that ranks recorded as trained on or dropped: items, links, and attributes of the step."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, NamedTuple

from otel_rl import semconv
from otel_rl.export import SpanLink, Trajectory
from otel_rl.recorder.journal.records import IDS, TRAINED, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.export import AttributeValue
    from otel_rl.recorder.journal.records import Consumed


class ConsumedTrajectory(NamedTuple):
    """A trajectory that a step trained on or dropped."""

    trace_id: bytes
    span_id: int
    outcome: str
    reward: float
    version: int
    stale: tuple[tuple[int | None, int], ...]  # staleness and tokens
    segments: tuple[tuple[int, int], ...]  # version and tokens

    @property
    def tokens(self) -> int:
        """Number of its tokens."""
        return sum(tokens for _, tokens in self.stale)


def links(records: Iterable[Consumed]) -> list[SpanLink]:
    """Return a link to each trajectory that has a trace, with its attributes."""
    links: list[SpanLink] = []
    for record in records:
        for one in each_of(record) if record.have_spans else ():
            if one.span_id:
                attributes: dict[str, AttributeValue] = {
                    semconv.TRAJECTORY_OUTCOME: one.outcome,
                    semconv.TRAJECTORY_TOKENS: one.tokens,
                }
                attributes |= {} if math.isnan(one.reward) else {semconv.TRAJECTORY_REWARD: one.reward}
                attributes |= {semconv.POLICY_VERSION: one.version} if one.version != UNKNOWN else {}
                links.append(SpanLink(one.trace_id.hex(), f"{one.span_id:016x}", attributes))
    return links


def trajectories(record: Consumed, attempt: int, rank: int) -> list[Trajectory]:
    """Return the trajectories that a rank recorded at once."""
    count = len(record.rewards) // 8
    advantages, losses = (array("d", raw) or [math.nan] * count for raw in (record.advantages, record.losses))
    origins, components = record.origins or [("", "", "")] * count, record.components or [{}] * count
    return [
        Trajectory(
            attempt=attempt,
            step=record.step,
            time_unix_nano=record.time,
            rank=rank,
            outcome=record.outcome,
            policy_version=record.policy_version,
            trace_id=one.trace_id.hex() if one.span_id else "",
            span_id=f"{one.span_id:016x}" if one.span_id else "",
            reward=one.reward,
            tokens=one.tokens,
            versions=one.segments,
            number=number,
            prompt_id=origins[number][0],
            group_id=origins[number][1],
            row=origins[number][2],
            advantage=advantages[number],
            loss=losses[number],
            components=components[number],
        )
        for number, one in enumerate(each_of(record))
    ]


def of_step(records: Sequence[Consumed]) -> dict[str, AttributeValue]:
    """Return the attributes of a step's root span that describe its trajectories."""
    trained = [record for record in records if record.outcome == TRAINED]
    tool = _slowest_tool(records)
    slowest: dict[str, AttributeValue] = {semconv.TRAJECTORY_TOOL_SLOWEST: tool} if tool else {}
    if not trained:
        return slowest
    version = max(record.policy_version for record in trained)
    attributes = slowest | {semconv.TRAJECTORIES_TRAINED: sum(len(record.ids) // IDS.size for record in trained)}
    return attributes | ({semconv.POLICY_VERSION: version} if version != UNKNOWN else {})


def each_of(record: Consumed) -> list[ConsumedTrajectory]:
    """Return the trajectories of a record."""
    rewards, segments = array("d", record.rewards), array("q", record.segments)
    of_each: list[list[tuple[int, int]]] = [[] for _ in rewards]
    for n in range(0, len(segments), 3):
        of_each[segments[n]].append((segments[n + 1], segments[n + 2]))
    trained = record.policy_version
    return [
        ConsumedTrajectory(
            trace_id,
            span_id,
            record.outcome,
            reward,
            min((version for version, _ in parts), default=UNKNOWN),
            tuple((None if UNKNOWN in (version, trained) else trained - version, tokens) for version, tokens in parts),
            tuple(parts),
        )
        for (trace_id, span_id), reward, parts in zip(IDS.iter_unpack(record.ids), rewards, of_each, strict=True)
    ]


def _slowest_tool(records: Iterable[Consumed]) -> str:
    """Return the tool with the longest call; empty if no tool was called."""
    calls = ((longest, name) for record in records for name, (_, _, longest) in record.tools.items())
    return max(calls, default=(0.0, ""))[1]
