"""Answers why steps took their time: their critical paths against those of usual steps."""

from __future__ import annotations

import json
from collections import defaultdict
from statistics import fmean
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.insight import wording
from otel_rl.insight.conclude import changes_in
from otel_rl.insight.recorded import Recorded
from otel_rl.insight.why.answer import Part, Stage, Why
from otel_rl.insight.why.paths import Paths, work_of
from otel_rl.insight.why.sentences import name_of, sentences
from otel_rl.insight.why.steps import MOST_EXPLAINED, Wall, slow_of, usual_of
from otel_rl.insight.why.what_if import OF_TRAJECTORIES, saves_of
from otel_rl.insight.why.window import Work, read_window, walls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.archive.reader import RunReader
    from otel_rl.insight.why.paths import Found
    from otel_rl.insight.why.window import Who

_MOST_USUAL, _LEAST_USUAL = 16, 2
_MOST_SPANS = 150_000
"""Spans of usual steps that are read, so that a large step is explained as fast as a small one."""
_MOST_REPLAYED = 6
_LEAST_REPLAYED = 0.01
"""Parts with a smaller change, as a fraction of the wall time, are not replayed."""
_NOTABLE = 0.02
"""Fraction of the wall time beyond which a difference of clocks is worth a note."""


def why(run: RunReader, steps: tuple[int, int] | None = None, phase: str = "") -> Why:
    """Return why steps took their time.

    Args:
        run: The reader, of `otel_rl.open_run`.
        steps: The first and the last step to explain; the slow ones of the run by default.
        phase: The trainer's name of a phase to explain, instead of whole steps.

    Raises:
        ValueError: The run has no such steps or phase, or no spans of steps.
    """
    recorded = Recorded(run)
    known = [Wall(*one) for one in walls(run, phase)]
    slow = slow_of(known)
    explained = _explained(recorded, known, slow, steps, phase)
    windows = [read_window(run, *one) for one in explained]
    largest = max(1, *(len(one.spans.began) for one in windows))
    most = max(_LEAST_USUAL, min(_MOST_USUAL, _MOST_SPANS // largest))
    are_slow = bool(slow) or (steps is not None and steps[0] == steps[1])
    usual_windows = [read_window(run, *one) for one in usual_of(known, explained, most)] if are_slow else []
    paths = Paths(recorded, [*windows, *usual_windows], phase)
    usual = [paths.of(one) for one in usual_windows]
    found, others = _alike([paths.of(one) for one in windows], usual)
    parts = _parts(recorded, found, usual, [(one.began, one.ended) for one in slow])
    seconds = fmean(one.window.seconds for one in found)
    usual_seconds = fmean(one.window.seconds for one in usual) if usual else None
    depends = _depends(paths, found[0], parts)
    changes = [] if steps or phase else [one.sentence for one in changes_in(recorded)]
    notes = _notes(parts, clocks=paths.clocks, seconds=seconds, depends=depends)
    return Why(
        steps=tuple(one.window.step for one in found),
        usual_steps=tuple(one.window.step for one in usual),
        phase=phase,
        seconds=seconds,
        usual_seconds=usual_seconds,
        sentences=(
            *(() if are_slow else ("No single step stands out: a usual one is explained.",)),
            *sentences([one.window.step for one in found], phase, seconds, usual_seconds, parts),
        ),
        parts=parts,
        path=tuple(_stages(recorded, found[0])),
        clocks_seconds=paths.clocks,
        notes=(*changes, *(_of_others(those, work, usual) for work, those in others.items()), *notes),
    )


def _alike(found: list[Found], usual: Sequence[Found]) -> tuple[list[Found], dict[Work, list[Found]]]:
    """Return the steps that are slow for the reason of the slowest one, and the others by their reason.

    The reason of a step is the work that takes the most time more than usual on its path.
    """
    if not usual:
        return found, {}
    groups: dict[Work, list[Found]] = {}
    for one in found:
        groups.setdefault(max(one.seconds, key=lambda work: _longer(one, work, usual)), []).append(one)
    first, *others = groups
    return groups[first], {work: groups[work] for work in others}


def _longer(found: Found, work: Work, usual: Sequence[Found]) -> float:
    return found.seconds.get(work, 0.0) - fmean(one.seconds.get(work, 0.0) for one in usual)


def _of_others(found: Sequence[Found], work: Work, usual: Sequence[Found]) -> str:
    """Return in words why other steps were slow."""
    more = fmean(_longer(one, work, usual) for one in found)
    names = wording.names([wording.integer(one.window.step) for one in found])
    subject = f"Step {names} was" if len(found) == 1 else f"Steps {names} were"
    return f"{subject} slow for another reason: +{wording.seconds(more)}, {name_of(work.kind, work.name)}."


def _explained(
    recorded: Recorded, known: Sequence[Wall], slow: Sequence[Wall], steps: tuple[int, int] | None, phase: str
) -> list[Wall]:
    """Return the steps to explain, the slowest first: of several, the slow ones, or else the one in the middle.

    Raises:
        ValueError: There are none.
    """
    if not known:
        raise ValueError(_nothing(recorded, phase))
    first, last = steps or (known[0].step, known[-1].step)
    if first > last:
        raise ValueError(f"the first step, {first}, is behind the last one, {last}")
    inside = sorted((one for one in known if first <= one.step <= last), key=lambda one: -one.seconds)
    if not inside:
        number = f"step {first}" if first == last else "these steps"
        raise ValueError(f"the run has no span of {number}; it has steps {known[0].step} to {known[-1].step}")
    return [one for one in inside if one in slow][:MOST_EXPLAINED] or [inside[len(inside) // 2]]


def _nothing(recorded: Recorded, phase: str) -> str:
    """Return why there is nothing to explain."""
    if recorded.damaged:
        return f"files of the archive are damaged: {', '.join(map(str, recorded.damaged[:3]))}"
    phases = dict.fromkeys(one.phase for one in recorded.spans if one.kind == "phase" and one.phase)
    if phase and phases:
        return f"the run has no phase {phase}; it has {wording.names(sorted(phases), 12)}"
    return "the run has no span of a step: give the trainer steps with run.step, and phases"


def _depends(paths: Paths, slowest: Found, parts: Sequence[Part]) -> bool:
    """Return whether the first part is another one if clocks are at the ends of their bounds."""
    if not parts or paths.clocks < _NOTABLE * slowest.window.seconds:
        return False
    top = Work(parts[0].kind, parts[0].name)
    least = slowest.seconds.get(top, 0.0) / 2
    return any(one.seconds.get(top, 0.0) < least for one in paths.by_other_clocks(slowest))


def _parts(
    recorded: Recorded, found: Sequence[Found], usual: Sequence[Found], slow: list[tuple[int, int]]
) -> tuple[Part, ...]:
    """Return the parts, those first that would save the most, then those that changed the most."""
    works = list({work: None for one in (*found, *usual) for work in one.reach})
    now, before = (_means(works, [one.seconds for one in those]) for those in (found, usual))
    reach, reached = (_means(works, [one.reach for one in those]) for those in (found, usual))
    least = _LEAST_REPLAYED * fmean(one.window.seconds for one in found)
    longer = {work: max(now[work] - before[work], reach[work] - reached[work]) for work in works}
    replayed = sorted((work for work in works if usual and longer[work] > least), key=lambda work: -longer[work])
    saves = saves_of(found, usual, replayed[:_MOST_REPLAYED], slow)
    parts = [
        _part(recorded, work, found, now[work], before[work] if usual else None, saves.get(work)) for work in works
    ]
    shown = [one for one in parts if one.seconds or one.usual_seconds or (one.saves_seconds or 0) > least]
    return tuple(sorted(shown, key=_weight, reverse=True))


def _weight(part: Part) -> float:
    return part.change_seconds if part.saves_seconds is None else part.saves_seconds


def _means(works: Sequence[Work], those: Sequence[Mapping[Work, float]]) -> dict[Work, float]:
    return {work: fmean(one.get(work, 0.0) for one in those) if those else 0.0 for work in works}


def _part(
    recorded: Recorded,
    work: Work,
    found: Sequence[Found],
    seconds: float,
    usual: float | None,
    saves: float | None,
) -> Part:
    hops = [hop for one in found for hop in (one.inside if seconds else one.hops) if work_of(hop.label) == work]
    by_who: dict[Who, int] = defaultdict(int)
    for hop in hops:
        by_who[hop.label.who] += hop.ended - hop.began
    whos = sorted(by_who, key=lambda who: -by_who[who])
    inferred = sum(hop.ended - hop.began for hop in hops if hop.is_inferred)
    return Part(
        kind=work.kind,
        name=work.name,
        seconds=seconds,
        usual_seconds=usual,
        change_seconds=seconds - (usual or 0.0),
        saves_seconds=saves,
        who=tuple(filter(None, (_named(recorded, who) for who in whos))),
        number=len(hops),
        longest_seconds=max((hop.ended - hop.began for hop in hops), default=0) / 1e9,
        is_inferred=2 * inferred > sum(by_who.values()),
    )


def _stages(recorded: Recorded, found: Found) -> list[Stage]:
    start = found.window.began
    return [
        Stage(
            kind=work_of(hop.label).kind,
            name=work_of(hop.label).name,
            who=_named(recorded, hop.label.who),
            began_seconds=(hop.began - start) / 1e9,
            ended_seconds=(hop.ended - start) / 1e9,
            is_inferred=hop.is_inferred,
        )
        for hop in found.inside
    ]


def _named(recorded: Recorded, who: Who) -> str:
    """Return a process in words: `rank 3 (node2)`, or the name of another program."""
    if who.resource:
        resource = json.loads(who.resource)
        names = (resource.get(name) for name in (semconv.SERVICE_INSTANCE_ID, semconv.SERVICE_NAME))
        return str(next(filter(None, names), "another program"))
    return recorded.rank_text(who.rank, who.role) if who.rank >= 0 else who.role


def _notes(parts: Sequence[Part], *, clocks: float, seconds: float, depends: bool) -> list[str]:
    notes = []
    least = _LEAST_REPLAYED * seconds
    unknown = [one for one in parts if one.change_seconds > least and one.saves_seconds is None]
    if any(one.kind in OF_TRAJECTORIES and one.usual_seconds is not None for one in unknown):
        notes.append("If its trajectories were faster, a step would have taken others: what it would save is unknown.")
    if depends:
        notes.append(f"Clocks may differ by {wording.seconds(clocks)}, and the first part depends on that.")
    elif clocks > _NOTABLE * seconds:
        notes.append(f"Clocks may differ by {wording.seconds(clocks)}: parts between machines are as uncertain.")
    return notes
