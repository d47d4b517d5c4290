"""Goodput: what the time of a phase counts as, and where the wall time of a run went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from otel_rl.semconv.phase_categories import category_of, is_listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_rl.recorder.facts.own_time import PhasePart
    from otel_rl.semconv.phase_categories import Category

PRODUCTIVE, OVERHEAD, IDLE = "productive", "overhead", "idle"
WASTED, HUNG, UNCLASSIFIED, UNACCOUNTED = "wasted", "hung", "unclassified", "unaccounted"
TRAINING: frozenset[Category] = frozenset(("rollout", "reward", "training"))
"""The categories of phases whose time trains."""
_OUTSIDE = ("start", "between", "end", "open")
TRAINED = "trained"
"""The part of the wall time of a run that trained."""
Interval = tuple[int, int]
"""Two times in Unix nanoseconds."""


class AttemptTime(NamedTuple):
    """An attempt on the wall clock: times in Unix nanoseconds."""

    began: int  # when its first rank started
    ended: int  # when its last rank ended, or the end of what is known of it
    first_step: int | None  # when its first step began; `None` without steps
    last_step: int  # when its last step ended
    in_steps: int  # nanoseconds in at least one step of the valid history
    repeated: int = 0  # nanoseconds in steps that a later attempt repeated, and in no other
    after: Literal["between", "end", "open"] = "between"  # the part that its time after the last whole step belongs to


def counts_as(name: PhasePart) -> str:
    """Return what the time of a phase, or of a part that has a category of its own, counts as."""
    phase, part = name
    if not phase:
        return UNACCOUNTED
    known = part if part and is_listed(part) else phase
    category = category_of(known)
    if category in TRAINING:
        return PRODUCTIVE
    if category == "waiting":
        return IDLE
    return OVERHEAD if category != "other" or is_listed(known) else UNCLASSIFIED


def wasted_share(attributes: Mapping[str, object]) -> float:
    """Return the share of a phase's time that made tokens which are not used, by its `tokens` and `wasted_tokens`."""
    tokens, wasted = attributes.get("tokens"), attributes.get("wasted_tokens")
    if not isinstance(tokens, (int, float)) or not isinstance(wasted, (int, float)) or tokens <= 0:
        return 0.0
    return min(1.0, max(0.0, wasted / tokens))


def goodput(attempts: Sequence[AttemptTime], hung: Sequence[Interval], shares: Mapping[str, float]) -> dict[str, float]:
    """Return the parts of the wall time of a run; they sum to 1, or there are none.

    Keys are `trained`; `hung`; `repeated` after a resume; `down` between attempts; in an attempt, `start` before its
    first step, `between` steps, `end` after its last whole step if it broke, and `open` in the step that is open; in
    steps, the categories of phases that do not train, with `none` outside of any.

    Args:
        attempts: The attempts, in their order.
        hung: The intervals in which no rank made progress, which do not overlap.
        shares: The share of each category in the time of steps; that of hangs is left out.
    """
    spent: dict[str, float] = dict.fromkeys((*_OUTSIDE, "steps", "repeated", "down", HUNG), 0.0)
    until = attempts[0].began if attempts else 0
    for attempt in attempts:
        spent["down"] += max(0, attempt.began - until)
        until = max(until, attempt.ended)
        for key, nanoseconds in _parts(attempt, hung):
            spent[key] += nanoseconds
    spent[HUNG] = sum(ended - began for began, ended in hung)
    in_steps = spent.pop("steps")
    known = {category: share for category, share in shares.items() if category != HUNG}
    whole = sum(known.values())
    for category, share in known.items() if whole > 0 else ():
        key = TRAINED if category in TRAINING else category
        spent[key] = spent.get(key, 0.0) + in_steps * share / whole
    total = sum(spent.values())
    return {key: seconds / total for key, seconds in spent.items() if seconds > 0} if total > 0 and whole > 0 else {}


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """Return intervals that do not overlap, in their order."""
    found: list[Interval] = []
    for began, ended in sorted(intervals):
        if found and began <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], ended)
        elif ended > began:
            found.append((began, ended))
    return found


def everywhere(machines: Iterable[Iterable[Interval]]) -> list[Interval]:
    """Return the intervals in which a run hangs that several agents follow.

    It does so while all of them say that no rank goes on: since that began on the first machine, until one ends it.
    """
    first, *others = [joined(machine) for machine in machines] or [[]]
    for other in others:
        first = [
            (min(began, since), min(ended, until))
            for began, ended in first
            for since, until in other
            if began < until and since < ended
        ]
    return joined(first)


def _parts(attempt: AttemptTime, hung: Sequence[Interval]) -> list[tuple[str, int]]:
    """Return the nanoseconds of an attempt in which it did not hang: before, in, between and after its steps."""
    began, ended, first, last = attempt.began, max(attempt.began, attempt.ended), attempt.first_step, attempt.last_step
    if first is None:
        return [("start", ended - began - within(hung, began, ended))]
    first, last = min(ended, max(began, first)), min(ended, max(began, last))
    last = max(first, last)
    stopped = within(hung, first, last)
    steps = min(attempt.in_steps, last - first)
    repeated = min(attempt.repeated, last - first - steps)
    between = last - first - steps - repeated
    # A hang is inside of a step; of an attempt whose steps are all void, of a repeated one.
    of_steps = min(stopped, steps)
    of_repeated = min(stopped - of_steps, repeated)
    return [
        ("start", first - began - within(hung, began, first)),
        ("steps", steps - of_steps),
        ("repeated", repeated - of_repeated),
        ("between", between - (stopped - of_steps - of_repeated)),
        (attempt.after, ended - last - within(hung, last, ended)),
    ]


def within(intervals: Iterable[Interval], began: int, ended: int) -> int:
    """Return for how long one of the intervals lasts between two moments."""
    return sum(max(0, min(ended, until) - max(began, since)) for since, until in intervals)
