"""Explains why steps took their time: their critical paths against those of usual steps."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.look.insight.span_work import SpanWork, name_of
from otel_rl.look.insight.why.answer import ExplainedSteps, PathPart, Stage
from otel_rl.look.insight.why.sentences import sentences
from otel_rl.look.insight.why.slow_lines import slow_lines
from otel_rl.look.insight.why.slow_steps import MOST_EXPLAINED, StepWall, slow_of, usual_of, walls
from otel_rl.look.insight.why.step_paths import StepPaths, work_of
from otel_rl.look.insight.why.step_spans import read_window
from otel_rl.look.insight.why.what_if import OF_TRAJECTORIES, saves_of
from otel_rl.recorder.archive.json_texts import decoded
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.look.insight.why.step_paths import StepPath
    from otel_rl.look.insight.why.step_spans import SpanProcess
    from otel_rl.look.reader.runs import RunReader

_MOST_USUAL, _LEAST_USUAL = 16, 2
_MOST_SPANS = 150_000
"""Spans of usual steps that are read, so that a large step is explained as fast as a small one."""
_MOST_REPLAYED = 6
_LEAST_REPLAYED = 0.01
"""Parts with a smaller change, as a fraction of the wall time, are not replayed."""
_NOTABLE = 0.02
"""Fraction of the wall time beyond which a difference of clocks is worth a note."""


def explained_steps(run: RunReader, steps: tuple[int, int] | None = None, phase: str = "") -> ExplainedSteps:
    """Return why steps took their time.

    Args:
        run: The reader, of `otel_rl.open_run`.
        steps: The first and the last step to explain; the slow ones of the run by default.
        phase: The trainer's name of a phase to explain, instead of whole steps.

    Raises:
        ValueError: The run has no such steps or phase, or no spans of steps.
    """
    recorded = RecordedRun(run)
    known = walls(run, phase)
    slow = slow_of(known)
    explained = _explained(recorded, known, slow, steps, phase)
    windows = [read_window(run, *wall) for wall in explained]
    largest = max(1, *(len(window.spans.began) for window in windows))
    most = max(_LEAST_USUAL, min(_MOST_USUAL, _MOST_SPANS // largest))
    are_slow = bool(slow) or (steps is not None and steps[0] == steps[1])
    usual_windows = [read_window(run, *wall) for wall in usual_of(known, explained, most)] if are_slow else []
    paths = StepPaths(recorded, [*windows, *usual_windows], phase)
    usual = [paths.of(window) for window in usual_windows]
    paths_of_steps, others = _alike([paths.of(window) for window in windows], usual)
    parts = _parts(recorded, paths_of_steps, usual, [(wall.began, wall.ended) for wall in slow])
    seconds = fmean(path.window.seconds for path in paths_of_steps)
    usual_seconds = fmean(path.window.seconds for path in usual) if usual else None
    depends = _depends(paths, paths_of_steps[0], parts)
    notes = _notes(parts, clocks=paths.clocks, seconds=seconds, depends=depends)
    return ExplainedSteps(
        steps=tuple(path.window.step for path in paths_of_steps),
        usual_steps=tuple(path.window.step for path in usual),
        phase=phase,
        seconds=seconds,
        usual_seconds=usual_seconds,
        sentences=(
            *(() if are_slow else ("No single step stands out: a usual one is explained.",)),
            *sentences([path.window.step for path in paths_of_steps], phase, seconds, usual_seconds, parts),
            *slow_lines(run, known, slow if steps is None else [wall for wall in slow if wall in explained]),
        ),
        parts=parts,
        path=tuple(_stages(recorded, paths_of_steps[0])),
        clocks_seconds=paths.clocks,
        notes=(*(_of_others(others_of, work, usual) for work, others_of in others.items()), *notes),
    )


def _alike(slow: list[StepPath], usual: Sequence[StepPath]) -> tuple[list[StepPath], dict[SpanWork, list[StepPath]]]:
    """Return the steps that are slow for the reason of the slowest one, and the others by their reason.

    The reason of a step is the work that takes the most time more than usual on its path.
    """
    if not usual:
        return slow, {}
    groups: dict[SpanWork, list[StepPath]] = {}
    for path in slow:
        groups.setdefault(max(path.seconds, key=lambda work: _longer(path, work, usual)), []).append(path)
    first, *others = groups
    return groups[first], {work: groups[work] for work in others}


def _longer(path: StepPath, work: SpanWork, usual: Sequence[StepPath]) -> float:
    return path.seconds.get(work, 0.0) - fmean(other.seconds.get(work, 0.0) for other in usual)


def _of_others(paths: Sequence[StepPath], work: SpanWork, usual: Sequence[StepPath]) -> str:
    """Return in words why other steps were slow."""
    more = fmean(_longer(path, work, usual) for path in paths)
    names = wording.names([wording.integer(path.window.step) for path in paths])
    subject = f"Step {names} was" if len(paths) == 1 else f"Steps {names} were"
    return f"{subject} slow for another reason: +{wording.seconds(more)}, {name_of(work.kind, work.name)}."


def _explained(
    recorded: RecordedRun,
    known: Sequence[StepWall],
    slow: Sequence[StepWall],
    steps: tuple[int, int] | None,
    phase: str,
) -> list[StepWall]:
    """Return the steps to explain, the slowest first: of several, the slow ones, or else the one in the middle.

    Raises:
        ValueError: There are none.
    """
    if not known:
        raise ValueError(_nothing(recorded, phase))
    first, last = steps or (known[0].step, known[-1].step)
    if first > last:
        raise ValueError(f"the first step, {first}, is behind the last one, {last}")
    inside = sorted((wall for wall in known if first <= wall.step <= last), key=lambda wall: -wall.seconds)
    if not inside:
        number = f"step {first}" if first == last else "these steps"
        raise ValueError(f"the run has no span of {number}; it has steps {known[0].step} to {known[-1].step}")
    return [wall for wall in inside if wall in slow][:MOST_EXPLAINED] or [inside[len(inside) // 2]]


def _nothing(recorded: RecordedRun, phase: str) -> str:
    """Return why there is nothing to explain."""
    if recorded.damaged:
        return f"files of the archive are damaged: {', '.join(map(str, recorded.damaged[:3]))}"
    phases = dict.fromkeys(span.phase for span in recorded.spans if span.kind == "phase" and span.phase)
    if phase and phases:
        return f"the run has no phase {phase}; it has {wording.names(sorted(phases), 12)}"
    return "the run has no span of a step: give the trainer steps with run.step, and phases"


def _depends(paths: StepPaths, slowest: StepPath, parts: Sequence[PathPart]) -> bool:
    """Return whether the first part is another one if clocks are at the ends of their bounds."""
    if not parts or paths.clocks < _NOTABLE * slowest.window.seconds:
        return False
    top = SpanWork(parts[0].kind, parts[0].name)
    least = slowest.seconds.get(top, 0.0) / 2
    return any(path.seconds.get(top, 0.0) < least for path in paths.by_other_clocks(slowest))


def _parts(
    recorded: RecordedRun, paths: Sequence[StepPath], usual: Sequence[StepPath], slow: list[tuple[int, int]]
) -> tuple[PathPart, ...]:
    """Return the parts, those first that would save the most, then those that changed the most."""
    works = list({work: None for path in (*paths, *usual) for work in path.reach})
    now, before = (_means(works, [path.seconds for path in side]) for side in (paths, usual))
    reach, reached = (_means(works, [path.reach for path in side]) for side in (paths, usual))
    least = _LEAST_REPLAYED * fmean(path.window.seconds for path in paths)
    longer = {work: max(now[work] - before[work], reach[work] - reached[work]) for work in works}
    replayed = sorted((work for work in works if usual and longer[work] > least), key=lambda work: -longer[work])
    saves = saves_of(paths, usual, replayed[:_MOST_REPLAYED], slow)
    parts = [
        _part(recorded, work, paths, now[work], before[work] if usual else None, saves.get(work)) for work in works
    ]
    shown = [part for part in parts if part.seconds or part.usual_seconds or (part.saves_seconds or 0) > least]
    return tuple(sorted(shown, key=_weight, reverse=True))


def _weight(part: PathPart) -> float:
    return part.change_seconds if part.saves_seconds is None else part.saves_seconds


def _means(works: Sequence[SpanWork], times: Sequence[Mapping[SpanWork, float]]) -> dict[SpanWork, float]:
    return {work: fmean(seconds.get(work, 0.0) for seconds in times) if times else 0.0 for work in works}


def _part(
    recorded: RecordedRun,
    work: SpanWork,
    paths: Sequence[StepPath],
    seconds: float,
    usual: float | None,
    saves: float | None,
) -> PathPart:
    hops = [hop for path in paths for hop in (path.inside if seconds else path.hops) if work_of(hop.label) == work]
    by_who: dict[SpanProcess, int] = defaultdict(int)
    for hop in hops:
        by_who[hop.label.who] += hop.ended - hop.began
    whos = sorted(by_who, key=lambda who: -by_who[who])
    inferred = sum(hop.ended - hop.began for hop in hops if hop.is_inferred)
    return PathPart(
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


def _stages(recorded: RecordedRun, path: StepPath) -> list[Stage]:
    start = path.window.began
    return [
        Stage(
            kind=work_of(hop.label).kind,
            name=work_of(hop.label).name,
            who=_named(recorded, hop.label.who),
            began_seconds=(hop.began - start) / 1e9,
            ended_seconds=(hop.ended - start) / 1e9,
            is_inferred=hop.is_inferred,
        )
        for hop in path.inside
    ]


def _named(recorded: RecordedRun, who: SpanProcess) -> str:
    """Return a process in words: `rank 3 (node2)`, or the name of another program."""
    if who.resource:
        resource = decoded(who.resource)
        names = (resource.get(name) for name in (semconv.SERVICE_INSTANCE_ID, semconv.SERVICE_NAME))
        return str(next(filter(None, names), "another program"))
    return recorded.rank_text(who.rank, who.role) if who.rank >= 0 else who.role


def _notes(parts: Sequence[PathPart], *, clocks: float, seconds: float, depends: bool) -> list[str]:
    notes = []
    least = _LEAST_REPLAYED * seconds
    unknown = [part for part in parts if part.change_seconds > least and part.saves_seconds is None]
    if any(part.kind in OF_TRAJECTORIES and part.usual_seconds is not None for part in unknown):
        notes.append("If its trajectories were faster, a step would have taken others: what it would save is unknown.")
    if depends:
        notes.append(f"Clocks may differ by {wording.seconds(clocks)}, and the first part depends on that.")
    elif clocks > _NOTABLE * seconds:
        notes.append(f"Clocks may differ by {wording.seconds(clocks)}: parts between machines are as uncertain.")
    return notes
