"""The use of trajectories by steps: staleness, dropped trajectories, and the bias of dropping them."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from otel_rl import semconv
from otel_rl.agent.analysis.trajectory_time import TrajectoryTime, slowest_tool
from otel_rl.agent.hardware.measurement import Point
from otel_rl.export import SpanLink, Trajectory
from otel_rl.journal.records import IDS, TRAINED, UNKNOWN
from otel_rl.stats import statistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.export import AttributeValue
    from otel_rl.journal.records import Consumed

_MOST_OUTCOMES = 16
_OTHER = "other"
_LARGEST_LABEL = 16
_QUANTILES = (0.5, 0.95)


class Consumption:
    """Totals of the outcomes of trajectories. A new agent starts from zero."""

    def __init__(self) -> None:
        self._trajectories: Counter[str] = Counter()
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._time = TrajectoryTime()

    def add(self, records: Iterable[Consumed]) -> dict[str, float]:
        """Add the trajectories of a step; return the step's values by name.

        Staleness counts the versions between the policy that generated a token and the one that is trained on it,
        each token once, or each trajectory once if the number of tokens is unknown. A quantile is the lowest
        staleness that this share of the tokens does not exceed. A bias is the mean over dropped trajectories less
        the mean over those that were trained on.
        """
        records = list(records)
        each = [one for record in records for one in _each(record)]
        values: dict[str, float] = {}
        for outcome in sorted({one.outcome for one in each}):
            count = sum(one.outcome == outcome for one in each)
            values[f"trajectories/{outcome}"] = count
            self._trajectories[self._label(outcome)] += count
        for one in each:
            for staleness, tokens in one.stale:
                self._tokens[self._label(one.outcome), _bucket(staleness)] += tokens
        values |= {f"trajectories/staleness/{name}": n for name, n in _staleness(each).items()}
        values |= {f"trajectories/bias/{name}": difference for name, difference in _bias(each).items()}
        return values | self._time.add(records)

    def points(self) -> list[Point]:
        """Return the trajectories and tokens so far."""
        counts = [
            Point(semconv.METRIC_TRAJECTORY_COUNT, count, ((semconv.TRAJECTORY_OUTCOME, outcome),))
            for outcome, count in self._trajectories.items()
        ]
        return counts + [
            Point(
                semconv.METRIC_TRAJECTORY_TOKENS,
                tokens,
                ((semconv.POLICY_STALENESS, staleness), (semconv.TRAJECTORY_OUTCOME, outcome)),
            )
            for (outcome, staleness), tokens in self._tokens.items()
        ]

    def _label(self, outcome: str) -> str:
        """Return the outcome if it is one of the first; a reason that contains a number must not create series."""
        return outcome if outcome in self._trajectories or len(self._trajectories) < _MOST_OUTCOMES else _OTHER


def links(records: Iterable[Consumed]) -> list[SpanLink]:
    """Return a link to each trajectory that has a trace, with its attributes."""
    found: list[SpanLink] = []
    for record in records:
        for one in _each(record) if record.have_spans else ():
            if one.span_id:
                attributes: dict[str, AttributeValue] = {
                    semconv.TRAJECTORY_OUTCOME: one.outcome,
                    semconv.TRAJECTORY_TOKENS: one.tokens,
                }
                attributes |= {} if math.isnan(one.reward) else {semconv.TRAJECTORY_REWARD: one.reward}
                attributes |= {semconv.POLICY_VERSION: one.version} if one.version != UNKNOWN else {}
                found.append(SpanLink(one.trace_id.hex(), f"{one.span_id:016x}", attributes))
    return found


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
        for number, one in enumerate(_each(record))
    ]


def dropped_tokens(records: Iterable[Consumed]) -> int:
    """Return how many tokens were generated for trajectories that are not trained on."""
    return sum(sum(array("q", record.segments)[2::3]) for record in records if record.outcome != TRAINED)


def of_step(records: Sequence[Consumed]) -> dict[str, AttributeValue]:
    """Return the attributes of a step's root span that describe its trajectories."""
    trained = [record for record in records if record.outcome == TRAINED]
    tool = slowest_tool(records)
    slowest: dict[str, AttributeValue] = {semconv.TRAJECTORY_TOOL_SLOWEST: tool} if tool else {}
    if not trained:
        return slowest
    version = max(record.policy_version for record in trained)
    attributes = slowest | {semconv.TRAJECTORIES_TRAINED: sum(len(record.ids) // IDS.size for record in trained)}
    return attributes | ({semconv.POLICY_VERSION: version} if version != UNKNOWN else {})


class _Trajectory(NamedTuple):
    trace_id: bytes
    span_id: int
    outcome: str
    reward: float
    version: int
    stale: tuple[tuple[int | None, int], ...]  # staleness and tokens
    segments: tuple[tuple[int, int], ...]  # version and tokens

    @property
    def tokens(self) -> int:
        return sum(tokens for _, tokens in self.stale)


def _each(record: Consumed) -> list[_Trajectory]:
    rewards, segments = array("d", record.rewards), array("q", record.segments)
    of_each: list[list[tuple[int, int]]] = [[] for _ in rewards]
    for n in range(0, len(segments), 3):
        of_each[segments[n]].append((segments[n + 1], segments[n + 2]))
    trained = record.policy_version
    return [
        _Trajectory(
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


def _staleness(each: Iterable[_Trajectory]) -> dict[str, float]:
    """Return statistics of the staleness of trained trajectories, weighted by tokens."""
    parts = [part for one in each if one.outcome == TRAINED for part in one.stale]
    known = [(staleness, tokens) for staleness, tokens in parts if staleness is not None]
    weighted = [part for part in known if part[1] > 0] or [(staleness, 1) for staleness, _ in known]
    if not weighted:
        return {}
    ages, weights = zip(*sorted(weighted), strict=True)
    total = sum(weights)
    found = {"mean": statistics.weighted_mean(ages, weights), "max": float(ages[-1])}
    for q in _QUANTILES:
        below = 0.0
        for age, weight in zip(ages, weights, strict=True):
            below += weight
            if below >= q * total:
                found[statistics.quantile_key(q)] = float(age)
                break
    return found


def _bias(each: Sequence[_Trajectory]) -> dict[str, float]:
    found: dict[str, float] = {}
    quantities = {"length": [float(one.tokens) for one in each], "reward": [one.reward for one in each]}
    for name, values in quantities.items():
        given = [(one.outcome == TRAINED, value) for one, value in zip(each, values, strict=True)]
        trained = [value for was_trained, value in given if was_trained and math.isfinite(value)]
        dropped = [value for was_trained, value in given if not was_trained and math.isfinite(value)]
        if trained and dropped:
            found[name] = statistics.mean(dropped) - statistics.mean(trained)
    return found


def _bucket(staleness: int | None) -> str:
    if staleness is None:
        return "unknown"
    return str(staleness) if staleness < _LARGEST_LABEL else f"{_LARGEST_LABEL}+"
