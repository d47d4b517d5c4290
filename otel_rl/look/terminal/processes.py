"""The table of the processes of a run: what each does, or waits for and who owes it, or how it ended."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.cli.lines import StyledText, both_ends, fit_line, line, marked, safe
from otel_rl.look.insight.owed import awaited, why_endless
from otel_rl.look.terminal import words
from otel_rl.look.terminal.phase_names import cut, short_names
from otel_rl.look.terminal.scene import label, window
from otel_rl.recorder.convert.cells import fit, right
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.processes import ended_badly, how_it_ended
from otel_rl.semconv.phase_categories import category_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_rl.cli.lines import Line, Style
    from otel_rl.look.terminal.scene import Scene, Who
    from otel_rl.recorder.archive.now import PhaseTime, ProcessNow, Wait
    from otel_rl.recorder.facts.signs import Stalled

_LABEL, _HOST, _AGE = 12, 14, 11
_LEAST_PHASE, _MOST_PHASE = 20, 32
_LEAST_BAR, _MOST_BAR = 8, 24
_SAMPLE = 2_000
"""Processes by which the columns are measured."""


class _Activity(NamedTuple):
    """The activity of a process, and since when, or at what time; a sentence takes the place of the last step too."""

    what: str
    style: Style
    when: str
    is_sentence: bool = False


class _ProcessColumns(NamedTuple):
    """Cells of the columns; 0 for one that is not shown."""

    label: int
    host: int
    phase: int
    bar: int
    shares: int


def rows_of(scene: Scene) -> list[ProcessNow]:
    """Return the processes in the order of the rows: first those that died or do not go on, the earliest first."""
    stalled = {
        (stall.role, stall.rank): stall.since_unix_nano for stall in scene.present.stalled if stall.kind != "slow"
    }
    shown = [process for process in scene.present.processes if _is_wanted(scene, process)]
    shown = sorted(shown, key=_waits_since) if scene.is_sorted else shown
    return sorted(shown, key=lambda process: _trouble_since(process, stalled))


def _trouble_since(process: ProcessNow, stalled: Mapping[Who, int]) -> float:
    """Return since when a process is dead or does not go on; what comes after the first one can be its consequence."""
    if ended_badly(process.outcome):
        return process.ended_unix_nano or process.last_unix_nano
    return stalled.get((process.role, process.rank), math.inf)


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
    more = f"{_groups(processes)} " if len(processes) > count else ""
    rows = [both_ends((StyledText(_head(columns, step), "dim"),), (StyledText(more, "dim"),), cells)]
    waits, stalled = _waits_of(scene), {(stall.role, stall.rank): stall for stall in scene.present.stalled}
    for number, process in enumerate(processes[at : at + count], at):
        who = process.role, process.rank
        phases: Sequence[PhaseTime] = process.last if step is None else of_step.get(who, ())
        if step is None:
            doing = _doing(scene, process, waits.get(name_of(who)), stalled.get(who))
        else:
            doing = _took(phases, is_read=step in scene.of_step)
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


def name_of(who: Who) -> str:
    """Return the name of a process in sentences and places: `rank 3`, `rollout 0`."""
    return label(who) if who[0] else f"rank {who[1]}"


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


def _groups(processes: Sequence[ProcessNow]) -> str:
    """Return how many processes are in which phase, where there are too many to show."""
    counts = Counter(process.phases[-1].name if process.phases else "no phase" for process in processes)
    named = ", ".join(f"{count:,} in {safe(name)}" for name, count in counts.most_common(3))
    return f"{len(processes):,} processes: {named}"


def _waits_of(scene: Scene) -> dict[str, Wait]:
    """Return for each process by name the wait that can never end, else its oldest one."""
    waits: dict[str, Wait] = {}
    for wait in scene.present.waits:
        for name in (wait.waiter, *wait.others):
            waits.setdefault(name, wait)
    return waits


def _doing(scene: Scene, process: ProcessNow, wait: Wait | None, stall: Stalled | None) -> _Activity:
    """Return what a process does and since when, what it waits for, or how and when it ended."""
    at = scene.present.at
    if process.outcome is not None:
        return _ended(process)
    phase = process.phases[-1] if process.phases else None
    inside = f"{phase.name} {phase.part}".rstrip() if phase else ""
    is_waiting = phase is None or category_of(phase.name) == "waiting" or scene.present.state == "hung"
    if wait is not None and (wait.cause or stall is not None or is_waiting):
        where = f"{inside}: " if phase and phase.name != wait.subject else ""
        text = f"{where}waits for {awaited(wait)}{_why_endless(wait)}"
        is_bad = wait.cause or stall is not None
        return _Activity(text, "bad" if is_bad else "", wording.age(wait.since_unix_nano, at), is_sentence=True)
    if stall is not None and stall.kind != "slow":
        where = f"in {stall.phase}" if stall.phase else "outside of any phase"
        usual = f", usually {wording.seconds(stall.usual_s)}" if stall.usual_s is not None else ""
        text = f"{stall.kind} {where}{usual}: {stall.evidence}"
        return _Activity(text, "bad", wording.age(stall.since_unix_nano, at), is_sentence=True)
    if phase is not None:
        return _Activity(inside, _category(process, phase.name), wording.age(phase.started_unix_nano, at))
    is_in_step = process.step is not None and process.step_started_unix_nano is not None
    since_unix_nano = process.step_started_unix_nano if is_in_step else process.last_unix_nano
    between = "between two steps" if process.step is None and not process.role else "in no phase"
    return _Activity(between, "dim", wording.age(since_unix_nano or 0, at))


def _ended(process: ProcessNow) -> _Activity:
    """Return how and when a process ended."""
    assert process.outcome is not None
    when = wording.clock(process.ended_unix_nano or process.last_unix_nano)
    if not ended_badly(process.outcome):
        return _Activity(process.outcome, "dim", when)
    where = f" in {process.ended_phase}" if process.ended_phase else ""
    where += f" of step {process.ended_step:,}" if process.ended_step is not None else ""
    text = f"{how_it_ended(process.outcome, process.error, process.cause)}{where}"
    return _Activity(text, "bad", when, is_sentence=True)


def _why_endless(wait: Wait) -> str:
    """Return why a wait can never end, in as few words as a row has room for."""
    if wait.cause in ("dead", "ended") and {*wait.culprits} <= {*wait.debtors}:
        return f" — {wait.cause}"
    return f" — {why_endless(wait)}" if wait.cause else ""


def _category(process: ProcessNow, phase: str) -> Style:
    return next((span.category for span in process.last if span.name == phase), None) or category_of(phase)


def _took(phases: Sequence[PhaseTime], *, is_read: bool) -> _Activity:
    if not phases:
        return _Activity("nothing recorded" if is_read else "reading …", "dim", "")
    return _Activity(phases[0].name, phases[0].category, wording.seconds(sum(phase.seconds for phase in phases)))
