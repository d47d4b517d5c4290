"""The screens inside of a run: the steps of a process, the phases of a step, one phase."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.insight import wording
from otel_rl.view.terminal import drawing, words
from otel_rl.view.terminal.lines import Span, both_ends, fit, fit_line, line, marked, right, safe
from otel_rl.view.terminal.overview import rule, title
from otel_rl.view.terminal.phases import exclusive
from otel_rl.view.terminal.scene import Drawn, Who, label, window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.view.terminal.lines import Line
    from otel_rl.view.terminal.phases import Phase
    from otel_rl.view.terminal.scene import Scene

_NS = 1e9
_MIB = 1 << 20


class OfStep(NamedTuple):
    """The phases of a process in a step."""

    step: int
    phases: list[Phase]

    @property
    def seconds(self) -> float:
        """From the start of its first phase to the end of its last one."""
        return (max(one.end for one in self.phases) - self.phases[0].start) / _NS


def name_of(who: Who) -> str:
    """Return the name of a process as a place: `rank 3`, `rollout 0`."""
    return label(who) if who[0] else f"rank {who[1]}"


def step_name(phases: Sequence[Phase], step: int) -> str:
    """Return the name of a step as a place; outside of steps, a place is a time."""
    if step >= 0 or not phases:
        return f"step {step:,}" if step >= 0 else "outside of steps"
    return f"at {wording.clock(phases[0].start)}"


def steps_of(scene: Scene, who: Who) -> list[OfStep]:
    """Return the steps of a process, the last one first; empty while they are read."""
    found: dict[int, list[Phase]] = {}
    for phase in scene.of_rank.get(who, ()):
        found.setdefault(phase.step, []).append(phase)
    return [OfStep(step, found[step]) for step in sorted(found, reverse=True)]


def phases_of(scene: Scene, who: Who, step: int) -> list[Phase]:
    """Return the phases of a process in a step, of those that match."""
    every = scene.of_step.get(step) or scene.of_rank.get(who, [])
    mine = [one for one in every if (one.role, one.rank) == who and one.step == step]
    return [one for one in mine if not scene.pattern or scene.matches(one.name)]


def draw_rank(scene: Scene, who: Who, cells: int, height: int, cursor: int) -> Drawn:
    """Draw the steps of a process."""
    lines = [title(scene, cells, name_of(who)), *_about(scene, who, cells)]
    steps = steps_of(scene, who)
    if not steps:
        reason = safe(scene.note) or "reading …"
        if who in scene.of_rank:
            reason = "no phase of this process was recorded"
        return Drawn([*lines, line((f" {reason}", "dim"))])
    times = [one.seconds for one in reversed(steps)]
    text = f" time of {len(steps):,} {'steps' if steps[0].step >= 0 else 'phases'}  "
    spark = drawing.sparkline(times, max(10, cells - len(text) - 24))
    between = f"  {words.time_of(min(times))} to {words.time_of(max(times))}"
    lines += [line((text, "dim"), (spark, "first"), (between, "dim"))]
    bar = max(10, cells - 58)
    lines.append(line((f" {'STEP':>8}  {'BEGAN':8}  {'TOOK':>9}  {'PHASES':{bar}} SHARES IN PERCENT", "dim")))
    first = len(lines)
    count = max(1, min(len(steps), height - first))
    at = window(len(steps), cursor, count)
    for number, one in enumerate(steps[at : at + count], at):
        shares = exclusive(one.phases)
        row = (
            Span(f" {one.step:>8,}  " if one.step >= 0 else " " * 11),
            Span(wording.clock(one.phases[0].start), "dim"),
            Span(f"  {right(words.time_of(one.seconds), 9)}  "),
            *words.stacked(shares, bar),
            Span(f" {words.shares(shares, cells - bar - 36)}", "dim"),
        )
        lines.append(marked(row, cells) if number == cursor else fit_line(row, cells))
    return Drawn(lines, first, at, len(steps), count)


def _about(scene: Scene, who: Who, cells: int) -> list[Line]:
    """Draw what a process is and does."""
    process = next((one for one in scene.present.processes if (one.role, one.rank) == who), None)
    if process is None:
        return [line()]
    at = scene.present.at
    parts = [Span(f" {safe(process.host)}, pid {process.pid}", "dim")]
    if process.outcome is not None:
        error = f": {safe(process.error)}" if process.error else ""
        parts.append(Span(f"  {process.outcome}{error}", "dim" if process.outcome == "finished" else "bad"))
    elif process.step is not None:
        parts.append(Span(f"  in step {process.step:,}"))
        for phase in process.phases:
            parts.append(Span(f" › {safe(phase.name)} for {words.age(phase.started_unix_nano, at)}"))
    if process.outcome is None:
        parts.append(Span(f"  last record {words.age(process.last_unix_nano, at)} ago", "dim"))
    return [fit_line(parts, cells)]


def draw_step(scene: Scene, who: Who, step: int, cells: int, height: int, cursor: int) -> Drawn:
    """Draw the phases of a process in a step along its time, and the usual time of the other ranks."""
    phases = phases_of(scene, who, step)
    lines = [title(scene, cells, name_of(who), step_name(phases, step)), line()]
    if not phases:
        reason = "reading …" if step not in scene.of_step else "no phase of this step was recorded"
        return Drawn([*lines, line((f" {reason}", "dim"))])
    begin, end = min(one.start for one in phases), max(one.end for one in phases)
    of_bar = max(12, cells - 62)
    lines.append(line((f" {'PHASE':26} {'FROM':>9} {'TOOK':>9} {'OTHERS':>9}  ALONG THE STEP", "dim")))
    first = len(lines)
    count = max(1, min(len(phases), height - first - 8))
    at = window(len(phases), cursor, count)
    for number, one in enumerate(phases[at : at + count], at):
        name = "  " * one.depth + safe(one.name)
        row = (
            Span(" "),
            Span(f"{drawing.fill(one.category)} ", one.category),
            Span(fit(name, 24)),
            Span(" " + right(words.time_of((one.start - begin) / _NS), 9), "dim"),
            Span(" " + right(words.time_of(one.duration / _NS), 9)),
            Span(" " + right(_others(scene, who, one), 9), "dim"),
            Span("  "),
            *_along(one, begin, end, of_bar),
            Span("  failed", "bad") if one.error else Span(""),
        )
        lines.append(marked(row, cells) if number == cursor else fit_line(row, cells))
    if step >= 0:
        lines += [rule("values of the step", cells), *_values(scene, step, cells, height - len(lines) - 1)]
    return Drawn(lines, first, at, len(phases), count)


def _others(scene: Scene, who: Who, phase: Phase) -> str:
    """Return the usual time of the other ranks in the phase."""
    times = [
        one.duration
        for one in scene.of_step.get(phase.step, ())
        if one.name == phase.name and one.role == who[0] and one.rank != who[1]
    ]
    return words.time_of(median(times) / _NS) if times else ""


def _along(phase: Phase, begin: int, end: int, cells: int) -> tuple[Span, ...]:
    scale = cells / max(1, end - begin)
    start = min(cells - 1, int((phase.start - begin) * scale))
    length = max(1, min(cells - start, round(phase.duration * scale)))
    mark = drawing.fill(phase.category)
    return (
        Span("·" * start, "dim"),
        Span(mark * length, phase.category),
        Span("·" * (cells - start - length), "dim"),
    )


def _values(scene: Scene, step: int, cells: int, room: int) -> list[Line]:
    if step not in scene.values:
        return [line((" reading …", "dim"))]
    main = [one.name for one in scene.present.progress.curves]
    values = scene.values[step]
    names = [name for name in dict.fromkeys((*main, *values)) if name in values]
    names = [name for name in names if not scene.pattern or scene.matches(name)] or names
    size = 38
    in_line = max(1, (cells - 1) // size)
    found = []
    for n in range(0, len(names), in_line):
        row = [Span(" ")]
        for name in names[n : n + in_line]:
            row += [Span(fit(safe(name), size - 12), "dim"), Span(right(words.number(values[name]), 10)), Span("  ")]
        found.append(fit_line(row, cells))
    if len(found) > room > 1:
        left = len(names) - (room - 1) * in_line
        return [*found[: room - 1], line((f" and {left:,} more: / searches", "dim"))]
    return found[: max(0, room)]


def draw_phase(scene: Scene, who: Who, step: int, number: int, cells: int, height: int) -> Drawn:
    """Draw one phase: what was recorded of it, the other ranks, and the steps before."""
    phases = phases_of(scene, who, step)
    if number >= len(phases):
        return Drawn([title(scene, cells, name_of(who), step_name(phases, step)), line((" reading …", "dim"))])
    phase = phases[number]
    lines = [title(scene, cells, name_of(who), step_name(phases, step), phase.name), line()]
    facts = {
        "began": wording.clock(phase.start),
        "took": words.time_of(phase.duration / _NS),
        "does": phase.category,
        **{key: _shown(key, value) for key, value in phase.attributes.items()},
    }
    lines += [
        fit_line((Span(f" {fit(safe(key), 26)} ", "dim"), Span(safe(text))), cells) for key, text in facts.items()
    ]
    if phase.error:
        lines.append(fit_line((Span(f" {'error':26} ", "dim"), Span(safe(phase.error), "bad")), cells))
    lines = lines[: max(6, height - 12)]
    before = [one for one in scene.of_rank.get(who, ()) if one.name == phase.name]
    if len(before) > 1:
        text = f" in the last {len(before):,} steps "
        times = [one.duration / _NS for one in before]
        spark = drawing.sparkline(times, max(10, cells - len(text) - 24))
        between = f" {words.time_of(min(times))} to {words.time_of(max(times))}"
        lines += [line(), line((text, "dim"), (spark, "first"), (between, "dim"))]
    others = sorted(
        (one for one in scene.of_step.get(step, ()) if one.name == phase.name), key=lambda one: -one.duration
    )
    if len(others) > 1:
        lines += [line(), rule("all processes in this step, the slowest first", cells)]
        lines += _compared(others, who, cells, max(1, height - len(lines)))
    return Drawn(lines)


def _compared(others: Sequence[Phase], who: Who, cells: int, room: int) -> list[Line]:
    most = max(one.duration for one in others) or 1
    found = []
    for one in others[:room]:
        is_this = (one.role, one.rank) == who
        bar = round((cells - 40) * one.duration / most)
        row = (
            Span(f" {right(label((one.role, one.rank)), 12)} ", "bold" if is_this else ""),
            Span(right(words.time_of(one.duration / _NS), 10) + "  "),
            Span(drawing.fill(one.category) * max(1, bar), one.category),
        )
        found.append(fit_line(row, cells))
    return found


def _shown(key: str, value: object) -> str:
    if "bytes" in key or "memory" in key:
        return wording.memory(value) if isinstance(value, int | float) else str(value)
    if key == "device seconds" and isinstance(value, int | float):
        return words.time_of(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def keys(scene: Scene, cells: int, *, deep: bool) -> Line:
    """Draw the keys that do something here."""
    known = [
        ("/", "search"),
        ("↵", "into"),
        ("esc", "out"),
        ("← →", "step"),
        ("space", "pause"),
        ("?", "keys"),
        ("q", "quit"),
    ]
    parts: list[Span] = [Span(" ")]
    for key, what in known:
        if deep and key == "← →":
            continue
        parts += [Span(key, "key"), Span(f" {what}   ", "dim")]
    end = (Span(f"/{safe(scene.pattern)} ", "warning"),) if scene.pattern else ()
    return both_ends(parts, end, cells)


def few_keys(cells: int) -> Line:
    """Draw the keys of the screen of several runs."""
    known = (("↑ ↓", "choose"), ("↵", "open"), ("q", "quit"))
    return fit_line(
        [Span(" "), *(span for key, what in known for span in (Span(key, "key"), Span(f" {what}   ", "dim")))], cells
    )


HELP = (
    ("↑ ↓", "choose a process, a step, a phase; also k and j, Page Up and Page Down"),
    ("Enter", "go in: run, rank, step, phase"),
    ("Esc", "go out, end the search, return to the present"),
    ("← →", "look at the step before or after; with Shift, ten at once"),
    ("Home End", "look at the first step, at the present"),
    ("/", "search names of metrics, phases, ranks and hosts"),
    ("f", "show all findings"),
    ("Space", "let the screen stand still; again to go on"),
    ("s", "put the processes that wait longest first"),
    ("?", "show or hide this page"),
    ("q", "quit"),
)
"""Keys and what they do."""


def draw_help(scene: Scene, cells: int) -> Drawn:
    """Draw the page of the keys."""
    lines = [title(scene, cells, "keys"), line()]
    lines += [line((f" {key:>10}  ", "key"), what) for key, what in HELP]
    lines += [line(), line((" Colors and marks of phases", "dim"))]
    legend = (
        ("rollout", "rollout"),
        ("training", "training"),
        ("reward", "reward, environment"),
        ("sync", "weight sync"),
        ("evaluation", "evaluation, checkpoint"),
        ("waiting", "waiting"),
        ("other", "other"),
        ("none", "not in any phase"),
    )
    for style, what in legend:
        lines.append(line("   ", *drawing.bar([(1.0, style)], 6), f"  {what}"))
    return Drawn([fit_line(one, cells) for one in lines])


def draw_findings(scene: Scene, cells: int, height: int) -> Drawn:
    """Draw all findings, with what to do."""
    lines = [title(scene, cells, "findings"), line()]
    facts = scene.facts
    if facts is None:
        return Drawn([*lines, line((" reading what the run recorded …", "dim"))])
    if not facts.findings:
        lines.append(line((" nothing was found that needs attention", "good")))
    signs = {"bad": "●", "warning": "●", "note": "○", "good": "○"}
    for finding in facts.findings:
        lines += _wrapped(f"{signs[finding.severity]} ", safe(finding.sentence), finding.severity, cells)
        if finding.advice:
            lines += _wrapped("  → ", safe(finding.advice), "dim", cells)
    return Drawn(lines[:height])


def _wrapped(sign: str, text: str, style: str, cells: int) -> list[Line]:
    import textwrap

    rows = textwrap.wrap(text, max(20, cells - len(sign) - 2)) or [""]
    head = (Span(f" {sign}", style), Span(rows[0], "dim" if style == "dim" else ""))
    return [head, *((Span(" " * (len(sign) + 1) + row, "dim" if style == "dim" else ""),) for row in rows[1:])]
