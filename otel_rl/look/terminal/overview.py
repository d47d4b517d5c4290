"""The first screen of a run: verdict, processes, where the time goes, curves, devices, events."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from otel_rl.cli.lines import StyledText, beside, fit_line, line, safe, width
from otel_rl.look.terminal import drawing, gauges, words
from otel_rl.look.terminal.curves import HIGH, curves, head_of, names_of
from otel_rl.look.terminal.headline import SENTENCES, title, verdict
from otel_rl.look.terminal.phase_names import cut
from otel_rl.look.terminal.processes import rows_of, table
from otel_rl.look.terminal.scene import Drawn, window
from otel_rl.recorder.convert.cells import right
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.step_time import RECENT_STEPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.cli.lines import Line, Style
    from otel_rl.look.terminal.scene import Scene
    from otel_rl.recorder.archive.now import PhaseTime

_WIDE, _WIDEST = 110, 150
"""Cells from which on curves are to the right of the processes, or have three columns."""
_LEAST_SHARE = 0.005
"""The least share of time that a legend names: one that is not 0 % when it is rounded."""
_HEADS, _FULL = 4, 0.6
"""Heads of the parts to the left of curves, and the share of the height that these parts have to fill."""
_EVENTS = 3
"""Events that are shown if there is little room."""


def draw(scene: Scene, cells: int, height: int, cursor: int | None) -> Drawn:
    """Draw the screen of a run; `cursor` is the row of a process, `None` where nobody can move it."""
    top = [title(scene, cells), *verdict(scene, cells, SENTENCES)]
    devices = [*gauges.draw(scene.present, cells, 3 if height < 40 else 8), *_exporters(scene, cells)]
    processes, names = rows_of(scene), names_of(scene)
    room = height - len(top) - len(devices)
    of_left = len(processes) + len(scene.present.progress.recent_shares) + len(scene.present.progress.events) + _HEADS
    is_beside = cells >= _WIDE and bool(names) and of_left >= room * _FULL
    of_table = max(58, cells * 11 // 20) if is_beside else cells
    columns = 1 if is_beside else _columns(len(names), 3 if cells >= _WIDEST else 2, room)
    slots, of_each = math.ceil(len(names) / columns), cells - of_table - 2 if is_beside else cells // columns - 1
    phases, events = _shares(scene, of_table, 1 if height < 28 else 3), _events(scene, of_table)
    shown = min(len(events), _EVENTS)
    spare = room - 1 - len(phases) - (shown + 1 if shown else 0)  # without the head of the table
    of_curves, head = 0, head_of(scene, names, of_each)
    if not is_beside:
        spare -= len(head)
        of_curves = min(max(min(slots, spare // 2), spare - max(1, len(processes))), HIGH * slots or 1)
    body, count = table(scene, processes, of_table, max(1, spare - of_curves), cursor)
    spare -= of_curves + count
    if len(by_phase := _by_phase(scene, of_table)) <= spare + len(phases[2:]):
        phases, spare = [*phases[:2], *by_phase], spare + len(phases[2:]) - len(by_phase)
    shown += min(max(0, spare), len(events) - shown)
    if not is_beside and of_curves:
        drawn = [curves(scene, names[side::columns], of_each, of_curves, slots) for side in range(columns)]
        body += [rule(text, cells) for text in head]
        body += _in_columns(drawn, of_each) if names else drawn[0]
    left = [*body, *phases, *([rule("events", of_table), *events[-shown:]] if shown else [])]
    if is_beside:
        right_of_it = [rule(text, of_each) for text in head] + curves(scene, names, of_each, room - len(head))
        left = beside(left, right_of_it, of_table)
    at = window(len(processes), cursor or 0, count)
    lines = [fit_line(row, cells) for row in (*top, *left, *devices)]
    return Drawn(lines, len(top) + 1, at, len(processes), count)


def _columns(count: int, most: int, room: int) -> int:
    """Return how many columns of curves there are: so few that they fill the height."""
    fitting = (
        columns for columns in range(min(most, count), 1, -1) if HIGH * math.ceil(count / columns) >= room * _FULL
    )
    return next(fitting, 1)


def _in_columns(blocks: Sequence[Sequence[Line]], cells: int) -> list[Line]:
    rows = [*blocks[0]]
    for number, block in enumerate(blocks[1:], 1):
        rows = beside(rows, block, number * (cells + 1) - 1, 1)
    return rows


def rule(text: str, cells: int) -> Line:
    """Draw the head of a section."""
    return line((f" {text} " + "─" * max(0, cells - len(text) - 3), "dim"))


def _shares(scene: Scene, cells: int, most: int) -> list[Line]:
    """Draw where the time of the last steps went, as one bar with a legend of at most so many lines."""
    shares = _named(scene)
    if not shares:
        return []
    legend: list[list[StyledText]] = [[]]
    for share, text in shares:
        parts = line("   ", (f"{drawing.fill(share.category)} ", share.category), f"{words.phase(share.name)} {text}")
        if width((*legend[-1], *parts)) > cells and len(legend) < most:
            legend.append([])
        legend[-1] += parts if legend[-1] else (StyledText(" "), *parts[1:])
    bar = words.stacked(scene.present.progress.recent_shares, cells - 2)
    head = rule(f"where the time of the last {RECENT_STEPS} steps went", cells)
    return [head, (StyledText(" "), *bar), *(fit_line(row, cells) for row in legend)]


def _by_phase(scene: Scene, cells: int) -> list[Line]:
    """Draw the share of each phase as a bar of its own."""
    shares = _named(scene)
    of_name = min(max([len(share.name) for share, _ in shares] + [16]), cells // 3)
    of_bar = cells - of_name - 12
    most = max([share.seconds for share, _ in shares], default=1.0)
    return [
        (
            StyledText(f" {cut(words.phase(share.name), of_name):{of_name}} {right(text, 8)} "),
            StyledText(drawing.fill(share.category) * round(of_bar * share.seconds / most), share.category),
        )
        for share, text in shares
    ]


def _named(scene: Scene) -> list[tuple[PhaseTime, str]]:
    """Return the phases that are not too short to be named, with their shares in words."""
    shares = scene.present.progress.recent_shares
    total = sum(share.seconds for share in shares)
    return [(share, wording.percent(share.seconds / total)) for share in shares if share.seconds > _LEAST_SHARE * total]


def _exporters(scene: Scene, cells: int) -> list[Line]:
    """Draw which exporters are behind or fail."""
    is_said = scene.facts is not None and any(finding.kind == "recording" for finding in scene.facts.findings)
    late = [
        exporter for exporter in scene.present.exporters if not is_said and (exporter.waiting or exporter.last_error)
    ]
    rows = []
    for exporter in late[:2]:
        text = (
            f" {safe(exporter.name)} has {exporter.waiting:,} items waiting"
            if exporter.waiting
            else f" {safe(exporter.name)}"
        )
        style: Style = "warning" if exporter.last_error else "dim"
        failed = f", {exporter.failures:,} failures: {safe(exporter.last_error)}" if exporter.last_error else ""
        rows.append(fit_line((StyledText(text + failed, style),), cells))
    if scene.present.lost:
        lost = ", ".join(f"{count:,} {safe(reason)}" for reason, count in scene.present.lost.items())
        rows.append(fit_line((StyledText(f" lost: {lost}", "bad"),), cells))
    return rows


def _events(scene: Scene, cells: int) -> list[Line]:
    rows = []
    for event in scene.present.progress.events:
        where = "" if event.step is None else f" step {event.step:,}"
        where += "" if event.rank is None else f" {safe(event.role) or 'rank'} {event.rank}"
        parts = (
            StyledText(f" {wording.clock(event.time_unix_nano)} ", "dim"),
            StyledText(safe(event.name)),
            StyledText(where, "note"),
            StyledText(f" {safe(event.text)}", "dim"),
        )
        rows.append(fit_line(parts, cells))
    return rows
