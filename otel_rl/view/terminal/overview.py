"""The first screen of a run: verdict, processes, where the time goes, curves, devices, events."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import TYPE_CHECKING

from otel_rl.insight import wording
from otel_rl.view.terminal import drawing, gauges, words
from otel_rl.view.terminal.lines import Span, beside, both_ends, fit, fit_line, folded, line, marked, right, safe, width
from otel_rl.view.terminal.phases import exclusive
from otel_rl.view.terminal.scene import Drawn, label, window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.archive.now import PhaseTime, ProcessNow
    from otel_rl.view.terminal.lines import Line, Style
    from otel_rl.view.terminal.phases import Phase, Points
    from otel_rl.view.terminal.scene import Scene

_WIDE = 110
_NS = 1e9
_LEAST_SHARE = 0.005
"""The least share of time that a legend names: one that is not 0 % when it is rounded."""
_NARROW = 50
"""Cells below which a curve does not say its steps."""
_HIGH = 6
"""Lines of a metric at the most."""
_LARGE = 3
"""Lines that a metric needs for a curve of dots below its name."""
_SIGNS: dict[str, tuple[str, Style]] = {
    "bad": ("●", "bad"),
    "warning": ("●", "warning"),
    "note": ("○", "note"),
    "good": ("○", "good"),
}


def draw(scene: Scene, cells: int, height: int, cursor: int | None) -> Drawn:
    """Draw the screen of a run; `cursor` is the row of a process, `None` where nobody can move it."""
    present = scene.present
    top = [title(scene, cells), *verdict(scene, cells, 2 if height < 30 else 3 if height < 45 else 5)]
    below = [*_shares(scene, cells, 1 if height < 28 else 3), *gauges.draw(present, cells, 3 if height < 40 else 8)]
    below += _exporters(scene, cells)
    events = _events(scene, cells)
    processes = rows_of(scene)
    room = height - len(top) - len(below) - 2  # the head of the table, and the keys
    shown = min(len(events), 3 if room < 20 else max(3, room // 5))
    room -= shown + (1 if shown else 0)
    names = _names(scene)
    if cells >= _WIDE:
        left = max(58, cells * 11 // 20)
        body, count = _processes(scene, processes, left, room, cursor)
        drawn = curves(scene, names, cells - left - 2, room + 1)
        body = beside(body, drawn, left)
    else:
        body, count = _narrow(scene, processes, names, cells, room, cursor)
    lines = [*top, *body, *below]
    if shown:
        lines += [rule("events", cells), *events[-shown:]]
    first_row = len(top) + 1
    at = window(len(processes), cursor or 0, count)
    return Drawn([fit_line(row, cells) for row in lines], first_row, at, len(processes), count)


def title(scene: Scene, cells: int, *places: str) -> Line:
    """Draw the line that says which run this is, where in it the reader is, and how far it is."""
    present, progress = scene.present, scene.present.progress
    where = " › ".join((safe(present.title), *map(safe, places)))
    parts: list[Span] = [Span(f" {where} ", "title")]
    if scene.step is not None:
        parts.append(Span(f" looking at step {scene.step:,} ", "warning"))
    elif places:
        pass
    elif progress.last_step is None:
        parts.append(Span(" no step yet"))
    else:
        total, last = progress.total_steps, progress.last_step
        # Steps begin at 0 or, in some frameworks, at 1.
        parts.append(Span(f" step {last + (last < total):,} of {total:,}" if total else f" step {last:,}"))
    if progress.step_seconds is not None and not places:
        before = progress.step_seconds_before
        was = f" ({words.time_of(before)} before)" if before is not None else ""
        style: Style = "" if before is None else "warning" if progress.step_seconds > before else "good"
        parts.append(Span(f"  {words.time_of(progress.step_seconds)}/step{was}", style))
        left = (progress.total_steps or 0) - progress.steps
        if present.state == "live" and left > 0:
            parts.append(Span(f"  ETA {words.left(left * progress.step_seconds)}"))
    state = [words.state(present.state), Span(" ")]
    if scene.is_paused:
        state.insert(0, Span(" paused ", "warning"))
    if present.is_over and present.last_unix_nano:
        state.insert(-1, Span(f" {words.seen(present.last_unix_nano, time.time_ns())} ago", "dim"))
    return both_ends(parts, state, cells)


def verdict(scene: Scene, cells: int, least: int) -> list[Line]:
    """Draw what is to say of the run first: the findings, the worst first.

    It has at least so many lines. Bad findings are whole if twice as many lines have room for them.
    """
    found: list[Line] = []
    facts, present = scene.facts, scene.present
    if facts is not None:
        for number, finding in enumerate(facts.findings[:least]):
            sign, style = _SIGNS[finding.severity]
            advice = f"  → {safe(finding.advice)}" if finding.advice else ""
            row = (Span(f" {sign} ", style), Span(safe(finding.sentence)), Span(advice, "dim"))
            room = 2 * least - len(found) - (min(least, len(facts.findings)) - number - 1)
            lines = folded(row, cells - 2)
            kept = lines[: room if finding.severity in ("bad", "warning") else 1]
            found += [*kept[:-1], (*kept[-1], Span(" …"))] if len(kept) < len(lines) else kept
    elif present.reason:
        found.append(fit_line((Span(" ● ", words.state(present.state).style), Span(safe(present.reason))), cells))
    note = scene.note or ("" if facts is not None else "reading what was found …")
    found += [fit_line((Span(f" {safe(note)}", "dim"),), cells)] if note and len(found) < least else []
    return found + [line()] * (least - len(found))


def rule(text: str, cells: int) -> Line:
    """Draw the head of a section."""
    return line((f" {text} " + "─" * max(0, cells - len(text) - 3), "dim"))


def _narrow(
    scene: Scene, processes: Sequence[ProcessNow], names: Sequence[str], cells: int, room: int, cursor: int | None
) -> tuple[list[Line], int]:
    """Draw the processes, and below them the curves in two columns, as high as the processes leave room for."""
    half, pairs = (cells - 2) // 2, math.ceil(len(names) / 2)
    of_curves = min(max(min(pairs, room // 2), room - max(1, len(processes))), _HIGH * pairs)
    body, count = _processes(scene, processes, cells, room - of_curves, cursor)
    first, second = (curves(scene, names[side::2], half, of_curves, pairs) for side in (0, 1))
    return body + (beside(first, second, half) if names else first), count


def rows_of(scene: Scene) -> list[ProcessNow]:
    """Return the processes in the order of the rows."""
    found = [one for one in scene.present.processes if _is_wanted(scene, one)]
    return sorted(found, key=_waits_since) if scene.is_sorted else found


def _waits_since(process: ProcessNow) -> tuple[bool, int]:
    if process.outcome is not None:
        return True, process.last_unix_nano
    return False, process.phases[-1].started_unix_nano if process.phases else process.last_unix_nano


def _is_wanted(scene: Scene, process: ProcessNow) -> bool:
    phases = [phase.name for phase in process.phases]
    return not scene.pattern or scene.matches(label(process), f"rank {process.rank}", process.host, *phases)


def _names(scene: Scene) -> list[str]:
    """Return the names of the metrics to show: the main ones, or those that match."""
    main = [one.name for one in scene.present.progress.curves]
    if not scene.pattern:
        return main
    every = dict.fromkeys((*main, *scene.names))
    return [name for name in every if scene.matches(name)] or main


def _processes(
    scene: Scene, processes: Sequence[ProcessNow], cells: int, room: int, cursor: int | None
) -> tuple[list[Line], int]:
    """Draw the table of processes; return it with how many rows it has."""
    step = scene.step
    longest = max([len(label(one)) for one in processes[:2000]] + [4])
    of_label = min(longest, 12)
    hosts = {one.host for one in processes}
    of_host = min(max([len(host) for host in hosts] + [4]), 14 if cells >= 90 else 10) if len(hosts) > 1 else 0
    bar = max(8, min(24, cells - of_label - of_host - 52))
    head = f" {'RANK':>{of_label}}  " + (f"{'HOST':{of_host}}  " if of_host else "")
    head += f"{'PHASE' if step is None else 'LONGEST PHASE':20} {'AGE' if step is None else 'TOOK':>9}  "
    head += f"{'LAST STEP' if step is None else f'STEP {step:,}'}"
    count = max(1, min(len(processes), room))
    at = window(len(processes), cursor or 0, count)
    more = _groups(processes) if len(processes) > count else ""
    rows = [both_ends((Span(head, "dim"),), (Span(more + " ", "dim"),), cells)]
    of_step = _by_process(scene)
    for number, process in enumerate(processes[at : at + count], at):
        phases = process.last if step is None else of_step.get((process.role, process.rank), ())
        what, since = _doing(scene, process) if step is None else _took(phases, is_read=step in scene.of_step)
        row = [Span(f" {right(safe(label(process)), of_label)}  ")]
        if of_host:
            row.append(Span(f"{fit(safe(process.host), of_host)}  ", "dim"))
        row += [what, Span(f" {right(since, 9)}  "), *words.stacked(phases, bar)]
        row.append(Span(f" {words.shares(phases, cells - of_label - of_host - bar - 37)}", "dim"))
        rows.append(marked(tuple(row), cells) if number == cursor else fit_line(row, cells))
    if not processes:
        rows.append(line((" no process matches" if scene.pattern else " no process has recorded anything yet", "dim")))
    return rows, count


def _groups(processes: Sequence[ProcessNow]) -> str:
    """Return how many processes are in which phase, where there are too many to show."""
    found = Counter(one.phases[-1].name if one.phases else "no phase" for one in processes)
    named = ", ".join(f"{count:,} in {safe(name)}" for name, count in found.most_common(3))
    return f"{len(processes):,} processes: {named}"


def _doing(scene: Scene, process: ProcessNow) -> tuple[Span, str]:
    """Return what a process does, and since when."""
    at = scene.present.at
    if process.outcome is not None:
        style: Style = "dim" if process.outcome == "finished" else "bad"
        return Span(fit(process.outcome, 20), style), wording.clock(process.last_unix_nano)
    if process.phases:
        phase = process.phases[-1]
        name = f"{phase.name} {phase.part}" if phase.part else phase.name
        return Span(fit(safe(name), 20), _category(scene, phase.name)), words.age(phase.started_unix_nano, at)
    if process.step is not None and process.step_started_unix_nano is not None:
        return Span(fit("not in any phase", 20), "dim"), words.age(process.step_started_unix_nano, at)
    where = "not in any phase" if process.role else "outside of steps"
    return Span(fit(where, 20), "dim"), words.age(process.last_unix_nano, at)


def _category(scene: Scene, phase: str) -> Style:
    known = {one.name: one.category for one in scene.present.progress.shares}
    known |= {one.name: one.category for process in scene.present.processes[:64] for one in process.last}
    if phase not in known:
        from otel_rl.semconv.phase_categories import category_of

        return category_of(phase)
    return known[phase]


def _took(phases: Sequence[PhaseTime], *, is_read: bool) -> tuple[Span, str]:
    if not phases:
        return Span(fit("nothing recorded" if is_read else "reading …", 20), "dim"), ""
    total = sum(one.seconds for one in phases)
    return Span(fit(safe(phases[0].name), 20), phases[0].category), words.time_of(total)


def _by_process(scene: Scene) -> dict[tuple[str, int], list[PhaseTime]]:
    phases = scene.of_step.get(-1 if scene.step is None else scene.step, [])
    found: dict[tuple[str, int], list[Phase]] = {}
    for phase in phases:
        found.setdefault((phase.role, phase.rank), []).append(phase)
    return {who: exclusive(of_who) for who, of_who in found.items()}


def _shares(scene: Scene, cells: int, most: int) -> list[Line]:
    """Draw where the time of the last steps went, as one bar with a legend of at most so many lines."""
    shares = scene.present.progress.shares
    total = sum(one.seconds for one in shares)
    if total <= 0:
        return []
    legend: list[list[Span]] = [[Span(" ")]]
    for one in shares:
        if one.seconds < _LEAST_SHARE * total:
            break
        text = f"{words.phase(one.name)} {wording.percent(one.seconds / total)}   "
        parts = Span(f"{drawing.fill(one.category)} ", one.category), Span(text)
        if width((*legend[-1], *parts)) > cells + 3 and len(legend) < most:
            legend.append([Span(" ")])
        legend[-1] += parts
    bar = words.stacked(shares, cells - 2)
    head = rule("where the time of the last steps went", cells)
    return [head, (Span(" "), *bar), *(fit_line(row, cells) for row in legend)]


def points_of(scene: Scene, name: str) -> Points:
    """Return the points of a metric: all of them once they are read, and those that came since."""
    recent: Points = next((list(one.points) for one in scene.present.progress.curves if one.name == name), [])
    whole = scene.curves.get(name, [])
    return [*whole, *(one for one in recent if not whole or one[0] > whole[-1][0])]


def _value_at(scene: Scene, name: str, points: Points) -> float | None:
    if scene.step is not None:
        return next((value for step, value in reversed(points) if step <= scene.step), None)
    return points[-1][1]


def _small(scene: Scene, name: str, cells: int) -> Line:
    """Draw a metric in one row: name, curve, last value."""
    points = points_of(scene, name)
    of_name = min(18, cells // 3)
    if not points:
        return fit_line((Span(f" {fit(safe(name), of_name)}"), Span(" reading …", "dim")), cells)
    of_curve = cells - of_name - 12
    thin = drawing.extremes(points, of_curve)
    text = drawing.sparkline([value for _, value in thin], of_curve)
    value = words.number(_value_at(scene, name, points))
    return (
        Span(f" {fit(words.tail(name, of_name), of_name)} "),
        Span(fit(text, of_curve), "first"),
        Span(right(value, 9), "bold"),
    )


def curves(scene: Scene, names: Sequence[str], cells: int, height: int, slots: int = 0) -> list[Line]:
    """Draw metrics below each other, the first ones large if there is no room for all to be.

    Args:
        scene: The run.
        names: Names of metrics.
        cells: The width.
        height: The height.
        slots: The number of metrics that the height is shared by; by default that of these.
    """
    slots = slots or len(names)
    if not slots:
        return [line((" no metric has been recorded", "dim"))]
    each, left = divmod(height, slots)
    if each >= _HIGH:
        each, left = _HIGH, 0
    elif each < _LARGE:
        each, left = 1, 0 if height <= slots else (height - slots) // (_LARGE - 1)
    found: list[Line] = []
    for number, name in enumerate(names[:height]):
        rows = each + (number < left) * (_LARGE - 1 if each == 1 else 1)
        found += [_small(scene, name, cells)] if rows == 1 else _curve(scene, name, cells, rows - 1)
    return found


def _curve(scene: Scene, name: str, cells: int, rows: int) -> list[Line]:
    points = points_of(scene, name)
    known = [value for _, value in points if value is not None]
    if not points:
        return [line(f" {safe(name)}", (" reading …", "dim")), *[line()] * rows]
    low, high = min(known, default=0.0), max(known, default=0.0)
    first, last = points[0][0], points[-1][0]
    axis = [right(words.number(high), 9), *[" " * 9] * (rows - 2), *([right(words.number(low), 9)] if rows > 1 else [])]
    of_curve = cells - 11
    drawn = drawing.curve(drawing.extremes(points, of_curve), of_curve, rows, (first, last), (low, high))
    if scene.step is not None and first <= scene.step <= last and last > first:
        column = min(of_curve - 1, int((scene.step - first) / (last - first) * of_curve))
        drawn = [f"{row[:column]}│{row[column + 1 :]}" for row in drawn]
    value = Span(words.number(_value_at(scene, name, points)), "bold")
    if cells < _NARROW:
        head = both_ends((Span(f" {words.tail(name, cells - 12)}"),), (value,), cells)
    else:
        steps = Span(f"steps {first:,.0f} to {last:,.0f} ", "dim")
        head = both_ends((Span(f" {safe(name)}  "), value), (steps,), cells)
    return [head, *((Span(of_axis + " ", "dim"), Span(row, "first")) for of_axis, row in zip(axis, drawn, strict=True))]


def _exporters(scene: Scene, cells: int) -> list[Line]:
    """Draw which exporters are behind or fail."""
    is_said = scene.facts is not None and any(one.kind == "recording" for one in scene.facts.findings)
    late = [one for one in scene.present.exporters if not is_said and (one.waiting or one.last_error)]
    found = []
    for one in late[:2]:
        text = f" {safe(one.name)} has {one.waiting:,} items waiting" if one.waiting else f" {safe(one.name)}"
        style: Style = "warning" if one.last_error else "dim"
        failed = f", {one.failures:,} failures: {safe(one.last_error)}" if one.last_error else ""
        found.append(fit_line((Span(text + failed, style),), cells))
    if scene.present.lost:
        lost = ", ".join(f"{count:,} {safe(reason)}" for reason, count in scene.present.lost.items())
        found.append(fit_line((Span(f" lost: {lost}", "bad"),), cells))
    return found


def _events(scene: Scene, cells: int) -> list[Line]:
    found = []
    for event in scene.present.progress.events:
        where = "" if event.step is None else f" step {event.step:,}"
        where += "" if event.rank is None else f" {safe(event.role) or 'rank'} {event.rank}"
        parts = (
            Span(f" {wording.clock(event.time_unix_nano)} ", "dim"),
            Span(safe(event.name)),
            Span(where, "note"),
            Span(f" {safe(event.text)}", "dim"),
        )
        found.append(fit_line(parts, cells))
    return found
