"""The first lines of every screen: which run this is, how far it is, and what is to say of it first."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from otel_rl.cli.lines import StyledText, both_ends, fit_line, folded, line, safe, width
from otel_rl.look.insight.owed import in_vain
from otel_rl.look.terminal import words
from otel_rl.recorder.convert.cells import cell_len, fit
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.states import goes_on
from otel_rl.recorder.facts.step_time import RECENT_STEPS, place

if TYPE_CHECKING:
    from otel_rl.cli.lines import Line, Style
    from otel_rl.look.insight import Finding
    from otel_rl.look.terminal.scene import Scene
    from otel_rl.recorder.archive.now import Progress
    from otel_rl.recorder.archive.present import RunPresent

SENTENCES = 3
"""Findings that every screen of a run begins with."""
_LEAST_NAME = 8
"""Cells of the name of a run, below which it is not cut."""
_SIGNS: dict[str, tuple[str, Style]] = {
    "bad": ("●", "bad"),
    "warning": ("●", "warning"),
    "note": ("○", "note"),
    "good": ("○", "good"),
}


def title(scene: Scene, cells: int, *places: str) -> Line:
    """Draw the line that says which run this is, where in it the reader is, and how far it is."""
    present = scene.present
    where = " › ".join((safe(present.title), *map(safe, places)))
    severity = "note" if scene.facts is None else scene.facts.severity
    state = [StyledText(" "), words.state(present.state, severity=severity), StyledText(" ")]
    if scene.is_paused:
        state.insert(1, StyledText("paused  ", "warning"))
    if present.is_over and present.last_unix_nano:
        state.insert(-1, StyledText(f" {words.last_seen(present.last_unix_nano, time.time_ns())} ago", "dim"))
    more: list[StyledText] = []
    if scene.step is not None:
        more.append(StyledText(f" looking at step {scene.step:,} ", "warning"))
    elif not places:
        first, *others = _progress(scene)
        more.append(first)
        for part in others:
            more += [part] if width((*more, part, *state)) + cell_len(where) + 2 <= cells else []
    room = cells - width((*more, *state)) - 2
    name = f"{fit(where, room)}" if cell_len(where) > room > _LEAST_NAME else where
    return both_ends([StyledText(f" {name} ", "title"), *more], state, cells)


def _progress(scene: Scene) -> list[StyledText]:
    """Return how far a run is, the most important part first."""
    progress = scene.present.progress
    parts = [StyledText(f" {steps_of(progress)}")]
    seconds = progress.recent_step_seconds
    if seconds is not None:
        parts.append(StyledText(f"  {wording.seconds(seconds)} a step (last {RECENT_STEPS})"))
    if scene.facts is not None and scene.facts.summary.changed_at_step is not None:
        before, since = scene.facts.summary.step_seconds_before or 0.0, scene.facts.summary.changed_at_step
        style: Style = "warning" if seconds is not None and seconds > before else "good"
        parts.append(StyledText(f", {wording.seconds(before)} before {since:,}", style))
    to_come = progress.seconds_left
    if to_come and scene.present.state == "live":
        parts.append(StyledText(f"  ETA {wording.in_seconds(max(1, to_come))}"))
    return parts


def steps_of(progress: Progress) -> str:
    """Return at which step a run is, or how many of all steps are done, with how many were recorded."""
    first, last, total = progress.first_step, progress.last_step, progress.total_steps
    if first is None or last is None:
        return "no step yet"
    at = f"{place(last, total):,} of {total:,} steps" if total else f"step {last:,}"
    count = wording.count(progress.steps, "step")
    if progress.steps <= last - first:
        return f"{at} ({count} recorded)"
    return f"{at} ({count}, from {first:,} on)" if first > 1 else at


def verdict(scene: Scene, cells: int, lines: int) -> list[Line]:
    """Draw the first findings, what is wrong whole, in so many lines, or more if something is wrong."""
    if scene.news:
        return [*_of_news(scene.news, cells), *_findings(scene, cells, lines - 1)]
    return _findings(scene, cells, lines)


def _of_news(news: str, cells: int) -> list[Line]:
    return [fit_line((StyledText(f" ▸ {safe(news)} ", "note"),), cells)]


def _findings(scene: Scene, cells: int, lines: int) -> list[Line]:
    facts = scene.facts
    if facts is None:
        drawn = [fit_line(row, cells) for row in _at_once(scene.present)][:lines]
        note = scene.note or "reading what was found …"
    else:
        drawn, note = [], scene.note
        shown = facts.findings[: max(lines, SENTENCES)]
        for number, finding in enumerate(shown):
            # The first one is whole, with what to do: nothing on the screen matters more.
            room = 2 * lines - (len(drawn) + len(shown) - number - 1 if number else 0)
            may_fold = not number or finding.severity in ("bad", "warning")
            drawn += _cut(finding, cells - 1, max(1, room) if may_fold else 1)
    drawn += [fit_line((StyledText(f" {safe(note)}", "dim"),), cells)] if note and len(drawn) < lines else []
    return drawn + [line()] * (lines - len(drawn))


def _cut(finding: Finding, cells: int, lines: int) -> list[Line]:
    """Return a finding in at most so many lines; what to do is left out before the sentence is cut."""
    for advice in (finding.advice, ""):
        rows = lines_of(finding, advice, cells, is_apart=finding.severity == "bad")
        if len(rows) <= lines:
            return rows
    kept = rows[:lines]
    return [*kept[:-1], fit_line((*kept[-1], StyledText(" …")), cells)]


def lines_of(finding: Finding, advice: str, cells: int, *, is_apart: bool) -> list[Line]:
    """Return a finding with what to do, which has lines of its own if it is apart."""
    sign, style = _SIGNS[finding.severity]
    sentence = line((f" {sign} ", style), (safe(finding.sentence), style if finding.severity == "bad" else ""))
    if not advice:
        return folded(sentence, cells)
    if is_apart:
        return [*folded(sentence, cells), *folded(line("   → ", safe(advice)), cells)]
    return folded((*sentence, *line("  → ", safe(advice))), cells)


def _at_once(present: RunPresent) -> list[Line]:
    """Return what is known before the findings are read: what can never end, and how the run stands."""
    said = [*in_vain(present.waits)] if goes_on(present.state) else []
    lines = [line((" ● ", "bad"), (safe(text), "bad")) for text in said]
    sign = words.state(present.state, lacks=present.lacks == "process")
    return [*lines, line((f" {sign.text[0]} ", sign.style), safe(present.sentence))] if present.sentence else lines
