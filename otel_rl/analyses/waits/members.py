"""The processes of the last attempt, with the spans that they have open, or left open when they died."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from otel_rl import semconv
from otel_rl.recorder.agent.steps.state import ROLLOUTS
from otel_rl.recorder.facts.processes import ended_badly

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from otel_rl.export import AttributeValue
    from otel_rl.recorder.agent.steps.state import Journal, State
    from otel_rl.recorder.journal.records import SpanStarted

GROUPS = {"group", "group_id", "prompt_id"}
"""Attributes of trajectories that name their group."""


class Member(NamedTuple):
    """A process of the last attempt, and the spans that it has open, or left open when it died."""

    name: str  # the name of its journal
    journal: Journal  # the state of its journal
    roots: Mapping[bytes, SpanStarted]  # its trajectories, by their traces
    spans: Sequence[SpanStarted]  # the spans
    inner: Sequence[SpanStarted]  # the innermost of the spans, in the order in which they began

    @property
    def is_dead(self) -> bool:
        """Whether it ended badly; a worker that was cancelled has ended, since its creator may stop it."""
        is_stopped = self.journal.outcome == "cancelled" and not self.journal.is_rank
        return self.journal.over and ended_badly(self.journal.outcome) and not is_stopped


def members_of(state: State, attempt: int) -> dict[str, Member]:
    """Return the processes of an attempt by names of their own."""
    return {
        label: _member(name, one, one.left if one.over else [*one.spans.values()])
        for label, name, one in _named(state, attempt)
    }


def _named(state: State, attempt: int) -> Iterator[tuple[str, str, Journal]]:
    """Yield the processes of an attempt with the names of their journals, and names of their own.

    A process takes the place of those of its role and number that have ended. Workers that were started without numbers
    have the same one at the same time; their names have more.
    """
    by_label: defaultdict[str, list[tuple[str, Journal]]] = defaultdict(list)
    for name, journal in sorted(state.journals.items(), key=lambda one: one[1].started.time):
        if journal.started.attempt == attempt:
            by_label[journal.label].append((name, journal))
    for label, those in by_label.items():
        kept = [
            (name, one) for name, one in those if not one.over or one is those[-1][1] or (one.left and not one.is_rank)
        ]
        for name, one in kept:
            more = "" if len(kept) == 1 else f" ({one.started.host}, process {one.started.pid})"
            yield f"{label}{more}", name, one


def _member(name: str, journal: Journal, spans: Sequence[SpanStarted]) -> Member:
    """Return a process with its innermost spans; around trajectories, a phase or a batch of them is not work."""
    roots = {span.trace_id: span for span in spans if span.name == semconv.SPAN_TRAJECTORY and span.kind is not None}
    last = max((span.time for span in roots.values()), default=-1)
    parents = {span.parent_id for span in spans}
    inner = [
        span
        for span in spans
        if span.span_id not in parents
        and (span.trace_id in roots or span.time > last or not (span.kind is None or span.name in ROLLOUTS))
    ]
    return Member(name, journal, roots, spans, inner)


def group_of(attributes: Mapping[str, AttributeValue], span_id: str) -> str:
    """Return the group of a trajectory; one that names none is a group of its own."""
    key = next((key for key in sorted(GROUPS) if key in attributes), "")
    return f"{key.removesuffix('_id')} {attributes[key]}" if key else f"trajectory {span_id}"


def group_in(trajectory: SpanStarted) -> str:
    """Return the group of an open trajectory."""
    return group_of(trajectory.awaits or {}, f"{trajectory.span_id:016x}")
