"""The table of the processes of a run: what each does, or waits for and who owes it, or how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.cli.lines import StyledText, both_ends, fit_line, line, marked, safe
from otel_rl.look.terminal import words
from otel_rl.look.terminal.activities import Activities, ProcessActivity, groups_of, troubled_first
from otel_rl.look.terminal.phase_names import cut, short_names
from otel_rl.look.terminal.scene import label, window
from otel_rl.recorder.convert.cells import fit, right
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.cli.lines import Line
    from otel_rl.look.terminal.scene import Scene
    from otel_rl.recorder.archive.now import PhaseTime, ProcessNow

_LABEL, _HOST, _AGE = 12, 14, 11
_LEAST_PHASE, _MOST_PHASE = 20, 32
_LEAST_BAR, _MOST_BAR = 8, 24
_SAMPLE = 2_000
"""Processes by which the columns are measured."""


class _ProcessColumns(NamedTuple):
    """Cells of the columns; 0 for one that is not shown."""

    label: int
    host: int
    phase: int
    bar: int
    shares: int


def rows_of(scene: Scene) -> list[ProcessNow]:
    """Return the processes in the order of the rows."""
    shown = [process for process in scene.present.processes if _is_wanted(scene, process)]
    return troubled_first(scene.present, sorted(shown, key=_waits_since) if scene.is_sorted else shown)


def _waits_since(process: ProcessNow) -> tuple[bool, int]:
    if process.outcome is not None:
        return True, process.last_unix_nano
    return False, process.phases[-1].started_unix_nano if process.phases else process.last_unix_nano


def _is_wanted(scene: Scene, process: ProcessNow) -> bool:
    phases = [phase.name for phase in process.phases]
    return not scene.pattern or scene.matches(label(process), f"rank {process.rank}", process.host, *phases)


def table(
    scene: Scene, processes: Sequence[ProcessNow], cells: int, room: int, cursor: int | None
) -> tuple[list[Line], int]:
    """Draw the table of processes; return it with how many rows it has."""
    step = scene.step
    of_step = scene.shares_of_step()
    names = {phase.name for process in processes[:_SAMPLE] for phase in process.phases}
    names |= {
        phase.name
        for phases in (*(process.last for process in processes[:_SAMPLE]), *of_step.values())
        for phase in phases
    }
    short = short_names(names)
    columns = _columns(processes, names, cells)
    count = max(1, min(len(processes), room))
    at = window(len(processes), cursor or 0, count)
    more = f"{safe(groups_of(processes))} " if len(processes) > count else ""
    rows = [both_ends((StyledText(_head(columns, step), "dim"),), (StyledText(more, "dim"),), cells)]
    doing_now = Activities(scene.present)
    for number, process in enumerate(processes[at : at + count], at):
        who = process.role, process.rank
        phases: Sequence[PhaseTime] = process.last if step is None else of_step.get(who, ())
        doing = doing_now.of(process) if step is None else _took(phases, is_read=step in scene.of_step)
        row = [StyledText(f" {right(safe(label(process)), columns.label)}  ")]
        if columns.host:
            row.append(StyledText(f"{fit(safe(process.host), columns.host)}  ", "dim"))
        row.append(StyledText(f"{right(doing.when, _AGE)}  "))
        if doing.is_sentence:
            row.append(
                StyledText(fit(safe(doing.what), columns.phase + 1 + columns.bar + 1 + columns.shares), doing.style)
            )
        else:
            row += [StyledText(f"{fit(cut(doing.what, columns.phase), columns.phase)} ", doing.style)]
            row += words.stacked(phases, columns.bar)
            row.append(StyledText(f" {words.shares(phases, short, columns.shares)}", "dim"))
        rows.append(marked(tuple(row), cells) if number == cursor else fit_line(row, cells))
    if not processes:
        rows.append(line((" no process matches" if scene.pattern else " no process has recorded anything yet", "dim")))
    return rows, count


def _columns(processes: Sequence[ProcessNow], names: Iterable[str], cells: int) -> _ProcessColumns:
    of_label = min(max([len(label(process)) for process in processes[:_SAMPLE]] + [4]), _LABEL)
    hosts = {process.host for process in processes}
    of_host = min(max(map(len, hosts)), _HOST if cells >= 90 else 10) if len(hosts) > 1 else 0
    left = cells - of_label - (max(4, of_host) + 2 if of_host else 0) - _AGE - 7
    longest = max([_LEAST_PHASE, *map(len, names)])
    of_phase = max(_LEAST_PHASE, min(longest, _MOST_PHASE, 2 * left // 5))
    of_bar = max(_LEAST_BAR, min(_MOST_BAR, (left - of_phase) // 2))
    return _ProcessColumns(
        of_label, max(4, of_host) if of_host else 0, of_phase, of_bar, max(0, left - of_phase - of_bar)
    )


def _head(columns: _ProcessColumns, step: int | None) -> str:
    head = f" {'RANK':>{columns.label}}  " + (f"{'HOST':{columns.host}}  " if columns.host else "")
    what, when, of_step = (
        ("PHASE", "SINCE", "LAST STEP") if step is None else ("LONGEST PHASE", "TOOK", f"STEP {step:,}")
    )
    return f"{head}{when:>{_AGE}}  {what:{columns.phase}} {of_step}"


def _took(phases: Sequence[PhaseTime], *, is_read: bool) -> ProcessActivity:
    if not phases:
        return ProcessActivity("nothing recorded" if is_read else "reading …", "dim", "")
    return ProcessActivity(phases[0].name, phases[0].category, wording.seconds(sum(phase.seconds for phase in phases)))
