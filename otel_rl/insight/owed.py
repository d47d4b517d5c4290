"""The waits of a run, and who owes them: from what its agents wrote last, without the archive."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import msgspec

from otel_rl.archive.now import Wait, read_now
from otel_rl.insight import wording
from otel_rl.insight.hang import going, gone, how_gone, how_silent, lives, silent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.archive.now import Now
    from otel_rl.archive.runs import Place

_SERVER = re.compile(r":\d+$")
_MOST = 12
"""Sentences about waits of one kind."""
_MOST_GROUPS = 3


class Owed(msgspec.Struct, frozen=True, kw_only=True):
    """The waits of a run.

    Attributes:
        path: The run directory.
        id: Identity of the run.
        is_live: Whether it goes on; otherwise these are the waits of its last moment.
        at_unix_nano: The time that this is said for: the present while it goes on, else when its agents wrote last.
        verdicts: What can never end, and why, in words.
        sentences: The other waits in words.
        waits: The waits, what can never end first.
    """

    path: str
    id: str
    is_live: bool
    at_unix_nano: int
    verdicts: tuple[str, ...]
    sentences: tuple[str, ...]
    waits: tuple[Wait, ...] = ()


def owed(place: Place, at: int | None = None) -> Owed:
    """Return what a run waits for; `at` is the time in Unix nanoseconds."""
    at = time.time_ns() if at is None else at
    nows = read_now(place.path)
    waits = sorted((wait for now in nows for wait in now.waits), key=lambda one: (not one.cause, one.since_unix_nano))
    ends = [one.outcome for now in nows for one in now.processes]
    is_over = bool(ends) and None not in ends
    has_agent = any(lives(one, at) for one in nows)
    is_live = has_agent and not is_over
    return Owed(
        path=str(place.path),
        id=place.id,
        is_live=is_live,
        at_unix_nano=at if is_live else max((one.time_unix_nano for one in nows), default=0),
        verdicts=tuple(_cut(in_vain(waits))),
        sentences=(
            *_opening(nows, waits, at, is_over=is_over, has_agent=has_agent),
            *_sentences([one for one in waits if not one.cause]),
        ),
        waits=tuple(waits),
    )


def _opening(nows: Sequence[Now], waits: Sequence[Wait], at: int, *, is_over: bool, has_agent: bool) -> Iterator[str]:
    if not nows:
        yield "Nothing is known: no agent of this run has written anything."
    elif is_over:
        yield (
            "The run has ended; this was open when its processes died."
            if waits
            else "The run has ended; nothing is owed."
        )
    elif not has_agent:
        yield f"The agent has written nothing since {wording.clock(nows[0].time_unix_nano)}; this was open then."
    elif not waits:
        yield from (f"{reason}." for reason in [going(nows, at).reason] if reason)
        yield "No process is known to wait for another one. If the run hangs, `otel-rl autopsy` looks at the stacks."
    else:
        missing = [one for one in gone(nows) if f"{one.role or 'rank'} {one.rank}" not in _culprits(waits)]
        if missing:
            yield f"{how_gone(missing, {one.host for now in nows for one in now.processes})}."
        if quiet := silent(nows, at):
            yield f"{how_silent(quiet)}."


def _sentences(waits: Sequence[Wait]) -> Iterator[str]:
    groups = [one for one in waits if one.kind == "group"]
    queues = [one for one in waits if one.kind == "queue" and not groups]
    yield from _of_groups(groups)
    others = [one for one in waits if one.kind not in ("group", "queue") and not (groups and one.group)]
    yield from _cut([f"{_sentence(one)}." for one in (*queues, *others)])


def _cut(sentences: Sequence[str]) -> Iterator[str]:
    yield from sentences[:_MOST]
    if len(sentences) > _MOST:
        yield f"{wording.count(len(sentences) - _MOST, 'more wait')}: see --json."


def _culprits(waits: Sequence[Wait]) -> set[str]:
    return {name for one in waits for name in one.culprits}


def in_vain(waits: Sequence[Wait]) -> list[str]:
    """Return what can never end, for each reason the wait that is nearest to it."""
    reasons: dict[object, list[Wait]] = {}
    for wait in (one for one in waits if one.cause):
        reasons.setdefault((wait.cause, wait.culprits), []).append(wait)
    return [_sentence_in_vain(min(waits, key=_distance), len(waits) - 1) for waits in reasons.values()]


def _distance(wait: Wait) -> tuple[bool, bool]:
    """Return how far a wait is from its reason; a trajectory says more than the queue that lacks it."""
    return {*wait.culprits}.isdisjoint(wait.debtors), wait.kind == "queue"


def _sentence_in_vain(wait: Wait, others: int) -> str:
    culprit = wait.culprits[0] if wait.culprits else ""
    if wait.cause == "circle":
        why = f"{wording.names(wait.culprits, 4)} wait for each other in a circle"
    elif wait.cause == "ended":
        why = f"{culprit} has ended"
    else:
        why = f"nobody listens at {culprit}" if _SERVER.search(culprit) else f"{culprit} is dead"
    more = f" ({wording.count(others, 'other wait')} for the same reason)" if others else ""
    return f"{_sentence(wait, ' in vain')}: {why}{more}."


def _sentence(wait: Wait, how: str = "") -> str:
    verb = "wait" if wait.waiters > 1 else "waits"
    return f"{_who(wait)} {verb}{how} for {_what(wait)}, since {wording.clock(wait.since_unix_nano)}"


def _of_groups(groups: Sequence[Wait]) -> Iterator[str]:
    """Yield which groups are owed in each step."""
    for step in dict.fromkeys(one.step for one in groups):
        of_step = [one for one in groups if one.step == step]
        named = [_group(one) for one in of_step[:_MOST_GROUPS]]
        if len(of_step) > _MOST_GROUPS:
            named.append(f"and {wording.count(len(of_step) - _MOST_GROUPS, 'more trajectory', 'more trajectories')}")
        count = len({one.subject for one in of_step})
        who = of_step[0].waiter if step is None else f"step {step}"
        yield f"{who} is owed {count:,} of {wording.count(max(count, of_step[0].groups), 'group')}: {'; '.join(named)}."


def _group(wait: Wait) -> str:
    parts = (wait.subject, *wait.debtors[:1], wait.doing, f"since {wording.clock(wait.since_unix_nano)}")
    return ", ".join(one for one in parts if one)


def _who(wait: Wait) -> str:
    step = "" if wait.step is None else f" (step {wait.step})"
    more = f" and {wording.count(wait.waiters - 1, 'other')}" if wait.waiters > 1 else ""
    return f"{wait.waiter}{more}{step}"


def _what(wait: Wait) -> str:
    """Return what is waited for, and who owes it."""
    debtors = wording.names(wait.debtors)
    of_group = f" of {wait.group}" if wait.group else ""
    texts = {
        "ticket": f"{debtors or 'somebody unknown'} in {wait.subject}",
        "request": f"{wait.subject}{of_group} from {debtors}",
        "tool": f"{wait.subject}{of_group}",
        "group": f"{wait.subject} from {debtors}",
        "collective": f"{debtors} in {wait.subject}",
        "sync": f"{debtors} to get its weights in {wait.subject}",
        "queue": f"a trajectory of {debtors} in {wait.subject}",
    }
    return texts[wait.kind]
