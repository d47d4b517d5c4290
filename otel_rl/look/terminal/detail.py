"""The screens inside of a run: the steps of a process, the phases of a step, one phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.cli.lines import StyledText, fit_line, line, marked, safe
from otel_rl.look.terminal import drawing, words
from otel_rl.look.terminal.activities import name_of
from otel_rl.look.terminal.headline import title
from otel_rl.look.terminal.overview import rule
from otel_rl.look.terminal.phase_names import short_names
from otel_rl.look.terminal.phases import own_seconds
from otel_rl.look.terminal.scene import Drawn, Who, label, window
from otel_rl.recorder.convert.cells import fit, right
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.cli.lines import Line
    from otel_rl.look.terminal.phases import PhaseSpan
    from otel_rl.look.terminal.scene import Scene

_NS = 1e9
_MIB = 1 << 20


class OfStep(NamedTuple):
    """The phases of a process in a step."""

    step: int
    phases: list[PhaseSpan]

    @property
    def seconds(self) -> float:
        """From the start of its first phase to the end of its last one."""
        return (max(phase.end for phase in self.phases) - self.phases[0].start) / _NS


def step_name(phases: Sequence[PhaseSpan], step: int) -> str:
    """Return the name of a step as a place; outside of steps, a place is a time."""
    if step >= 0 or not phases:
        return f"step {step:,}" if step >= 0 else "outside of steps"
    return f"at {wording.clock(phases[0].start)}"


def steps_of(scene: Scene, who: Who) -> list[OfStep]:
    """Return the steps of a process, the last one first; empty while they are read."""
    phases_of_step: dict[int, list[PhaseSpan]] = {}
    for phase in scene.of_rank.get(who, ()):
        phases_of_step.setdefault(phase.step, []).append(phase)
    return [OfStep(step, phases_of_step[step]) for step in sorted(phases_of_step, reverse=True)]


def phases_of(scene: Scene, who: Who, step: int) -> list[PhaseSpan]:
    """Return the phases of a process in a step, of those that match."""
    every = scene.of_step.get(step) or scene.of_rank.get(who, [])
    mine = [phase for phase in every if (phase.role, phase.rank) == who and phase.step == step]
    return [phase for phase in mine if not scene.pattern or scene.matches(phase.name)]


def draw_rank(scene: Scene, who: Who, cells: int, height: int, cursor: int) -> Drawn:
    """Draw the steps of a process."""
    lines = [title(scene, cells, name_of(who)), *_about(scene, who, cells)]
    steps = steps_of(scene, who)
    if not steps:
        reason = safe(scene.note) or "reading …"
        if who in scene.of_rank:
            reason = "no phase of this process was recorded"
        return Drawn([*lines, line((f" {reason}", "dim"))])
    times = [step.seconds for step in reversed(steps)]
    text = f" time of {len(steps):,} {'steps' if steps[0].step >= 0 else 'phases'}  "
    spark = drawing.sparkline([*enumerate(times)], max(10, cells - len(text) - 24))
    between = f"  {wording.seconds(min(times))} to {wording.seconds(max(times))}"
    lines += [line((text, "dim"), (spark, "first"), (between, "dim"))]
    bar = max(10, cells - 60)
    lines.append(line((f" {'STEP':>8}  {'BEGAN':8}  {'TOOK':>11}  {'PHASES':{bar}} SHARES IN PERCENT", "dim")))
    first = len(lines)
    count = max(1, min(len(steps), height - first))
    at = window(len(steps), cursor, count)
    short = short_names(phase.name for step in steps for phase in step.phases)
    for number, step in enumerate(steps[at : at + count], at):
        shares = own_seconds(step.phases)
        row = (
            StyledText(f" {step.step:>8,}  " if step.step >= 0 else " " * 11),
            StyledText(wording.clock(step.phases[0].start), "dim"),
            StyledText(f"  {right(wording.seconds(step.seconds), 11)}  "),
            *words.stacked(shares, bar),
            StyledText(f" {words.shares(shares, short, cells - bar - 38)}", "dim"),
        )
        lines.append(marked(row, cells) if number == cursor else fit_line(row, cells))
    return Drawn(lines, first, at, len(steps), count)


def _about(scene: Scene, who: Who, cells: int) -> list[Line]:
    """Draw what a process is and does."""
    process = next((process for process in scene.present.processes if (process.role, process.rank) == who), None)
    if process is None:
        return [line()]
    at = scene.present.at
    parts = [StyledText(f" {safe(process.host)}, pid {process.pid}", "dim")]
    if process.outcome is not None:
        error = f": {safe(process.error)}" if process.error else ""
        parts.append(StyledText(f"  {process.outcome}{error}", "dim" if process.outcome == "finished" else "bad"))
    elif process.step is not None:
        parts.append(StyledText(f"  in step {process.step:,}"))
        for phase in process.phases:
            parts.append(StyledText(f" › {safe(phase.name)} for {wording.age(phase.started_unix_nano, at)}"))
    if process.outcome is None:
        parts.append(StyledText(f"  last record {wording.age(process.last_unix_nano, at)} ago", "dim"))
    return [fit_line(parts, cells)]


def draw_step(scene: Scene, who: Who, step: int, cells: int, height: int, cursor: int) -> Drawn:
    """Draw the phases of a process in a step along its time, and the longest time of the other ranks."""
    phases = phases_of(scene, who, step)
    lines = [title(scene, cells, name_of(who), step_name(phases, step)), line()]
    if not phases:
        reason = "reading …" if step not in scene.of_step else "no phase of this step was recorded"
        return Drawn([*lines, line((f" {reason}", "dim"))])
    begin, end = min(phase.start for phase in phases), max(phase.end for phase in phases)
    of_bar = max(10, cells - 68)
    lines.append(line((f" {'PHASE':26} {'FROM':>11} {'TOOK':>11} {'OTHERS MAX':>11}  ALONG THE STEP", "dim")))
    first = len(lines)
    count = max(1, min(len(phases), height - first - 8))
    at = window(len(phases), cursor, count)
    for number, phase in enumerate(phases[at : at + count], at):
        name = "  " * phase.depth + safe(phase.name)
        row = (
            StyledText(" "),
            StyledText(f"{drawing.fill(phase.category)} ", phase.category),
            StyledText(fit(name, 24)),
            StyledText(" " + right(wording.seconds((phase.start - begin) / _NS), 11), "dim"),
            StyledText(" " + right(wording.seconds(phase.duration / _NS), 11)),
            StyledText(" " + right(_others(scene, who, phase), 11), "dim"),
            StyledText("  "),
            *_along(phase, begin, end, of_bar),
            StyledText("  failed", "bad") if phase.error else StyledText(""),
        )
        lines.append(marked(row, cells) if number == cursor else fit_line(row, cells))
    if step >= 0:
        lines += [rule("values of the step", cells), *_values(scene, step, cells, height - len(lines) - 1)]
    return Drawn(lines, first, at, len(phases), count)


def _others(scene: Scene, who: Who, phase: PhaseSpan) -> str:
    """Return the longest time of the other ranks in the phase."""
    times = [
        other.duration
        for other in scene.of_step.get(phase.step, ())
        if other.name == phase.name and other.role == who[0] and other.rank != who[1]
    ]
    return wording.seconds(max(times) / _NS) if times else ""


def _along(phase: PhaseSpan, begin: int, end: int, cells: int) -> tuple[StyledText, ...]:
    scale = cells / max(1, end - begin)
    start = min(cells - 1, int((phase.start - begin) * scale))
    length = max(1, min(cells - start, round(phase.duration * scale)))
    mark = drawing.fill(phase.category)
    return (
        StyledText("·" * start, "dim"),
        StyledText(mark * length, phase.category),
        StyledText("·" * (cells - start - length), "dim"),
    )


def _values(scene: Scene, step: int, cells: int, room: int) -> list[Line]:
    if step not in scene.values:
        return [line((" reading …", "dim"))]
    main = [curve.name for curve in scene.present.progress.curves]
    values = scene.values[step]
    names = [name for name in dict.fromkeys((*main, *values)) if name in values]
    names = [name for name in names if not scene.pattern or scene.matches(name)] or names
    size = 38
    in_line = max(1, (cells - 1) // size)
    rows = []
    for n in range(0, len(names), in_line):
        row = [StyledText(" ")]
        for name in names[n : n + in_line]:
            row += [
                StyledText(fit(safe(name), size - 12), "dim"),
                StyledText(right(words.number(values[name]), 10)),
                StyledText("  "),
            ]
        rows.append(fit_line(row, cells))
    if len(rows) > room > 1:
        left = len(names) - (room - 1) * in_line
        return [*rows[: room - 1], line((f" and {left:,} more: / searches", "dim"))]
    return rows[: max(0, room)]


def draw_phase(scene: Scene, who: Who, step: int, number: int, cells: int, height: int) -> Drawn:
    """Draw one phase: what was recorded of it, the other ranks, and the steps before."""
    phases = phases_of(scene, who, step)
    if number >= len(phases):
        return Drawn([title(scene, cells, name_of(who), step_name(phases, step)), line((" reading …", "dim"))])
    phase = phases[number]
    lines = [title(scene, cells, name_of(who), step_name(phases, step), phase.name), line()]
    facts = {
        "began": wording.clock(phase.start),
        "took": wording.seconds(phase.duration / _NS),
        "does": phase.category,
        **{key: _shown(key, value) for key, value in phase.attributes.items()},
    }
    lines += [
        fit_line((StyledText(f" {fit(safe(key), 26)} ", "dim"), StyledText(safe(text))), cells)
        for key, text in facts.items()
    ]
    if phase.error:
        lines.append(fit_line((StyledText(f" {'error':26} ", "dim"), StyledText(safe(phase.error), "bad")), cells))
    lines = lines[: max(6, height - 12)]
    before = [earlier for earlier in scene.of_rank.get(who, ()) if earlier.name == phase.name]
    if len(before) > 1:
        text = f" in the last {len(before):,} steps "
        times = [earlier.duration / _NS for earlier in before]
        spark = drawing.sparkline([*enumerate(times)], max(10, cells - len(text) - 24))
        between = f" {wording.seconds(min(times))} to {wording.seconds(max(times))}"
        lines += [line(), line((text, "dim"), (spark, "first"), (between, "dim"))]
    others = sorted(
        (other for other in scene.of_step.get(step, ()) if other.name == phase.name), key=lambda other: -other.duration
    )
    if len(others) > 1:
        lines += [line(), rule("all processes in this step, the slowest first", cells)]
        lines += _compared(others, who, cells, max(1, height - len(lines)))
    return Drawn(lines)


def _compared(others: Sequence[PhaseSpan], who: Who, cells: int, room: int) -> list[Line]:
    most = max(other.duration for other in others) or 1
    rows = []
    for other in others[:room]:
        is_this = (other.role, other.rank) == who
        bar = round((cells - 40) * other.duration / most)
        row = (
            StyledText(f" {right(label((other.role, other.rank)), 12)} ", "bold" if is_this else ""),
            StyledText(right(wording.seconds(other.duration / _NS), 11) + "  "),
            StyledText(drawing.fill(other.category) * max(1, bar), other.category),
        )
        rows.append(fit_line(row, cells))
    return rows


def _shown(key: str, value: object) -> str:
    if "bytes" in key or "memory" in key:
        return wording.memory(value) if isinstance(value, int | float) else str(value)
    if key == "device seconds" and isinstance(value, int | float):
        return wording.seconds(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
