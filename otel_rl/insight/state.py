"""The state of a run, and why: live, hung, how it ended, or empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from otel_rl import semconv
from otel_rl.insight import wording

if TYPE_CHECKING:
    from otel_rl.archive.now import Now, ProcessNow
    from otel_rl.insight.facts import State
    from otel_rl.insight.recorded import End, Happening, Recorded

_NS = 1_000_000_000
_FRESH_S = 30.0
"""Age in seconds of a state that a live agent has: it writes one at least every 10 s."""
_SILENT_S = 60.0
"""Seconds in which a rank that hangs records nothing, at the least."""
_TIMES_LONGEST = 5.0
"""How often the longest time of its phase so far a rank that hangs records nothing, at the least."""
_SILENT_AT_FIRST_S = 1800.0
"""The same in a phase that did not end before: engines start, models are compiled, the first evaluation runs."""
_OUT_OF_MEMORY = ("OutOfMemoryError", "CUDA out of memory", "HIP out of memory", "RESOURCE_EXHAUSTED", "MemoryError")
_MOST_NAMED = 3


class Standing(NamedTuple):
    """The state of a run.

    Attributes:
        state: The state.
        reason: Why it failed, crashed, hangs or was lost; empty otherwise.
        step: The step in which that happened; `None` if it is unknown.
        ranks: The ranks that it happened to, the first one first.
        role: Their role; empty for trainer ranks.
        phase: The phase in which it happened; empty if it is unknown.
    """

    state: State
    reason: str = ""
    step: int | None = None
    ranks: tuple[int, ...] = ()
    role: str = ""
    phase: str = ""


def standing(recorded: Recorded) -> Standing:
    """Return the state of a run."""
    last = max((one.attempt for one in recorded.members), default=0)
    ends = [one for one in recorded.ends if one.attempt >= last]
    if ends:
        return _ended(recorded, ends[-1])
    live = next((one for one in recorded.now if _is_live(one, recorded.at_unix_nano)), None)
    if live is not None:
        return _hung(recorded, live) or Standing("live")
    if recorded.steps is None and not recorded.members:
        return Standing("empty")
    return Standing("lost", _silence(recorded))


def _is_live(now: Now, at: int) -> bool:
    return now.state != "ended" and at - now.time_unix_nano < _FRESH_S * _NS


def _ended(recorded: Recorded, end: End) -> Standing:
    state = cast("State", end.outcome)
    if state == "finished":
        return Standing(state)
    downs = [
        one
        for one in recorded.events
        if one.name in (semconv.EVENT_PROCESS_FAILED, semconv.EVENT_PROCESS_LOST)
        and _is_of_attempt(recorded, one, end.attempt)
    ]
    downs.sort(key=lambda one: int(one.attributes.get(semconv.PROCESS_DOWN_ORDER, 0)))
    if not downs:
        return Standing(state, end.error)
    first = downs[0]
    phase = str(first.attributes.get(semconv.PHASE, "")) or _open_phase(recorded, first)
    ranks = tuple(dict.fromkeys(one.rank for one in downs if one.rank is not None and one.role == first.role))
    others = len(downs) - 1
    after = f", then {wording.count(others, 'other')}" if others else ""
    reason = f"{_who(recorded, first)} {_what(recorded, first)}{_inside(phase)}{after}"
    return Standing(state, reason, first.step, ranks, first.role, phase)


def _is_of_attempt(recorded: Recorded, event: Happening, attempt: int) -> bool:
    """Return whether a process of the event's rank and role was in the attempt at that time."""
    return any(
        one.attempt == attempt and (one.rank, one.role) == (event.rank, event.role)
        for one in recorded.members
        if one.started_unix_nano <= event.time_unix_nano
    )


def _who(recorded: Recorded, event: Happening) -> str:
    return recorded.rank_text(event.rank or 0, event.role, event.host)


def _what(recorded: Recorded, event: Happening) -> str:
    if event.name == semconv.EVENT_PROCESS_LOST:
        grows = any(
            one.rank == event.rank and str(one.attributes.get(semconv.MEMORY_OF, "")).startswith("host")
            for one in recorded.events_of(semconv.EVENT_MEMORY_GROWING)
        )
        return "was killed, probably for lack of host memory," if grows else "was killed or disappeared"
    kind = str(event.attributes.get(semconv.ERROR_TYPE, ""))
    message = str(event.attributes.get(semconv.EXCEPTION_MESSAGE, ""))
    if any(text in kind or text in message for text in _OUT_OF_MEMORY):
        return "ran out of memory"
    text = ": ".join(part for part in (kind, message.splitlines()[0] if message else "") if part)
    outcome = str(event.attributes.get(semconv.PROCESS_OUTCOME, "failed"))
    verb = "was stopped by" if outcome == "crashed" else "failed with"
    return f"{verb} {text}" if text else outcome


def _inside(phase: str) -> str:
    return f" inside {phase}" if phase else ""


def _open_phase(recorded: Recorded, event: Happening) -> str:
    """Return the innermost phase that the error left, by the spans of the step that failed."""
    if event.step is None or event.rank is None:
        return ""
    role = "role IS NULL" if not event.role else "role IS NOT NULL"
    found = recorded.run.sql(
        f"SELECT phase FROM spans WHERE step = {event.step} AND rank = {event.rank} AND {role}"
        " AND phase IS NOT NULL AND error IS NOT NULL ORDER BY start_unix_nano DESC LIMIT 1"
    )
    return str(found["phase"][0]) if len(found) else ""


def _hung(recorded: Recorded, now: Now) -> Standing | None:
    """Return the standing of a run whose ranks all record nothing for too long; `None` if one does."""
    ranks = [one for one in now.processes if not one.role and one.outcome is None]
    if not ranks:
        return None
    silent_s = (recorded.at_unix_nano - max(one.last_unix_nano for one in ranks)) / _NS
    if silent_s < _SILENT_S:  # the common case, found without reading more
        return None
    longest = _longest(recorded)
    for one in ranks:
        place = one.phases[-1].name if one.phases else ""
        usual = _TIMES_LONGEST * longest[place] if place in longest else _SILENT_AT_FIRST_S
        if (recorded.at_unix_nano - one.last_unix_nano) / _NS < usual:
            return None
    phases = {one.rank: one.phases[-1].name for one in ranks if one.phases}
    culprits = _behind(ranks)
    if not culprits:
        return Standing("hung", f"no rank recorded anything for {wording.seconds(silent_s)}", ranks[0].step)
    named = wording.names([recorded.rank_text(one.rank, host=one.host) for one in culprits], _MOST_NAMED)
    phase = phases.get(culprits[0].rank, "")
    verb = "is" if len(culprits) == 1 else "are"
    where = f"{verb} in {phase}" if phase else f"{verb} outside of any phase"
    others = {one for rank, one in phases.items() if rank not in {each.rank for each in culprits}}
    rest = f"; the others wait in {wording.names(sorted(others))}" if others else ""
    reason = f"{named} {where} for {wording.seconds(silent_s)}{rest}"
    return Standing("hung", reason, culprits[0].step, tuple(one.rank for one in culprits), "", phase)


def _longest(recorded: Recorded) -> dict[str, float]:
    """Return the longest time of each phase so far in seconds; of the empty name, that of a step."""
    found: dict[str, float] = {}
    for one in recorded.spans:
        name = "" if one.kind == "step" else one.phase or ""
        if one.kind != "trajectory":
            found[name] = max(found.get(name, 0.0), one.longest)
    times = recorded.step_times.finite.values
    return found if "" in found or not len(times) else found | {"": float(times.max())}


def _behind(ranks: list[ProcessNow]) -> list[ProcessNow]:
    """Return the ranks that the others wait for: the fewest that are at another place, and got there first.

    A rank that hangs entered its phase before the others entered the collective in which they wait.
    """
    places: dict[tuple[int | None, str], list[ProcessNow]] = {}
    for one in ranks:
        places.setdefault((one.step, one.phases[-1].name if one.phases else ""), []).append(one)
    if len(places) == 1:
        return ranks
    return min(places.values(), key=lambda found: (len(found), min(one.last_unix_nano for one in found)))


def _silence(recorded: Recorded) -> str:
    last = max((one.time_unix_nano for one in recorded.now), default=0)
    if not last:
        return "no end was recorded"
    ago = wording.seconds((recorded.at_unix_nano - last) / _NS)
    return f"no end was recorded, and the agent has written nothing for {ago}: its machine died, or it was killed"
