"""The waits of a run, and who owes them: from what its agents wrote last, without the archive."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.archive.now import Wait
from otel_rl.recorder.archive.present import present_of
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.processes import process_name
from otel_rl.recorder.facts.unusual import how_unusual, is_unusual

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_rl.recorder.archive.now import ProcessNow
    from otel_rl.recorder.archive.present import RunPresent
    from otel_rl.recorder.archive.runs import Place

_SERVER = re.compile(r":\d+$")
_MOST = 12
"""Sentences about waits of one kind."""
_MOST_GROUPS = 3


class Owed(msgspec.Struct, frozen=True, kw_only=True):
    """The waits of a run."""

    path: str  # the run directory
    id: str  # identity of the run
    is_live: bool  # whether it goes on; otherwise these are the waits of its last moment
    at_unix_nano: int  # the time that this is said for: the present while it goes on, else when its agents wrote last
    verdicts: tuple[str, ...]  # what can never end, and why, in words
    sentences: tuple[str, ...]  # the other waits in words
    waits: tuple[Wait, ...] = ()  # the waits, what can never end first


def owed(place: Place, at: int | None = None) -> Owed:
    """Return what a run waits for; `at` is the time in Unix nanoseconds."""
    present = present_of(place, at)
    waits = sorted(present.waits, key=lambda wait: (not wait.cause, wait.since_unix_nano))
    is_live = not present.is_over and present.lacks not in ("report", "agent")
    return Owed(
        path=str(place.path),
        id=place.id,
        is_live=is_live,
        at_unix_nano=present.at if is_live else present.last_unix_nano,
        verdicts=tuple(_cut(in_vain(waits))),
        sentences=(*_opening(present, waits, is_live=is_live), *of_waits([wait for wait in waits if not wait.cause])),
        waits=tuple(waits),
    )


def unusual_phases(present: RunPresent) -> list[str]:
    """Return which ranks of a run that goes on are far longer in a phase than usual: one sentence for each phase.

    A rank that marks neither steps nor phases is where it logged last.
    """
    phases: dict[str, ProcessNow] = {}
    for process in present.processes if not present.is_over and not present.lacks else ():
        if process.outcome is None and not process.role and is_unusual(_age(process, present.at), process.usual_s):
            phases.setdefault(_phase(process), process)
    return [_unusual(process, present.at) for process in phases.values()]


def _unusual(process: ProcessNow, at: int) -> str:
    age = _age(process, at)
    how = how_unusual(age, process.usual_s)
    who, phase = wording.capitalized(process_name(process.role, process.rank)), _phase(process)
    does = f"is in {phase}" if phase else "has recorded nothing"
    return f"{who} {does} for {wording.seconds(age)}, {how}."


def _phase(process: ProcessNow) -> str:
    return process.phases[-1].name if process.phases else ""


def _age(process: ProcessNow, at: int) -> float:
    since = process.phases[-1].started_unix_nano if process.phases else process.last_unix_nano
    return max(0, at - since) / 1e9


def _opening(present: RunPresent, waits: Sequence[Wait], *, is_live: bool) -> Iterator[str]:
    """Yield what the state of the run says about its waits, unless these say why it is in this state."""
    unusual = unusual_phases(present) if is_live else []
    if present.state == "empty":
        yield "Nothing is known: no agent of this run has written anything."
    elif present.is_over:
        how = "this was open when its agents wrote last" if waits else "nothing is owed"
        yield f"The run has ended ({present.state}); {how}."
    elif present.reason and not any(wait.cause for wait in waits):
        reason = wording.capitalized(present.reason)
        if not any(sentence.startswith(reason.partition(" for ")[0]) for sentence in unusual):
            yield f"{reason}."
    yield from unusual
    if is_live and not waits:
        yield "No process is known to wait for another one. If the run hangs, `otel-rl autopsy` looks at the stacks."


def of_waits(waits: Sequence[Wait]) -> Iterator[str]:
    """Yield waits in words."""
    groups = [wait for wait in waits if wait.kind == "group"]
    queues = [wait for wait in waits if wait.kind == "queue" and not groups]
    yield from _of_groups(groups)
    others = [wait for wait in waits if wait.kind not in ("group", "queue") and not (groups and wait.group)]
    yield from _cut([f"{_sentence(queue)}." for queue in (*queues, *others)])


def _cut(sentences: Sequence[str]) -> Iterator[str]:
    yield from sentences[:_MOST]
    if len(sentences) > _MOST:
        yield f"{wording.count(len(sentences) - _MOST, 'more wait')}: see --json."


def in_vain(waits: Sequence[Wait]) -> list[str]:
    """Return what can never end, for each reason the wait that is nearest to it."""
    reasons: dict[object, list[Wait]] = {}
    for wait in (wait for wait in waits if wait.cause):
        reasons.setdefault((wait.cause, wait.culprits), []).append(wait)
    return [_sentence_in_vain(min(waits, key=_distance), len(waits) - 1) for waits in reasons.values()]


def _distance(wait: Wait) -> tuple[bool, bool]:
    """Return how far a wait is from its reason; a trajectory says more than the queue that lacks it."""
    return {*wait.culprits}.isdisjoint(wait.debtors), wait.kind == "queue"


def why_endless(wait: Wait) -> str:
    """Return why a wait can never end; empty if it can."""
    culprit = wait.culprits[0] if wait.culprits else ""
    match wait.cause:
        case "":
            return ""
        case "circle":
            return f"{wording.names(wait.culprits, 4)} wait for each other in a circle"
        case "ended":
            return f"{culprit} has ended"
        case "dead":
            return f"nobody listens at {culprit}" if _SERVER.search(culprit) else f"{culprit} is dead"


def _sentence_in_vain(wait: Wait, others: int) -> str:
    more = f" ({wording.count(others, 'other wait')} for the same reason)" if others else ""
    return f"{_sentence(wait, ' in vain')}: {why_endless(wait)}{more}."


def _sentence(wait: Wait, how: str = "") -> str:
    verb = "wait" if wait.waiters > 1 else "waits"
    return f"{_who(wait)} {verb}{how} for {awaited(wait)}, since {wording.clock(wait.since_unix_nano)}"


def _of_groups(groups: Sequence[Wait]) -> Iterator[str]:
    """Yield which groups are owed in each step."""
    for step in dict.fromkeys(group.step for group in groups):
        of_step = [group for group in groups if group.step == step]
        named = [_group(wait) for wait in of_step[:_MOST_GROUPS]]
        if len(of_step) > _MOST_GROUPS:
            named.append(f"and {wording.count(len(of_step) - _MOST_GROUPS, 'more trajectory', 'more trajectories')}")
        count = len({wait.subject for wait in of_step})
        who = of_step[0].waiter if step is None else f"step {step}"
        yield f"{who} is owed {count:,} of {wording.count(max(count, of_step[0].groups), 'group')}: {'; '.join(named)}."


def _group(wait: Wait) -> str:
    parts = (wait.subject, *wait.debtors[:1], wait.doing, f"since {wording.clock(wait.since_unix_nano)}")
    return ", ".join(part for part in parts if part)


def _who(wait: Wait) -> str:
    step = "" if wait.step is None else f" (step {wait.step})"
    more = f" and {wording.count(wait.waiters - 1, 'other')}" if wait.waiters > 1 else ""
    return f"{wait.waiter}{more}{step}"


def awaited(wait: Wait) -> str:
    """Return what a process waits for, and who owes it."""
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
