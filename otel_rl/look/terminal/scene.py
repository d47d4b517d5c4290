"""The input of a screen: the present of a run, what was read of its past, and where the reader looks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from otel_rl.look.terminal.phases import own_seconds

if TYPE_CHECKING:
    from otel_rl.cli.lines import Line
    from otel_rl.look.insight import Facts
    from otel_rl.look.insight.facts import Summary
    from otel_rl.look.insight.why.answer import Why
    from otel_rl.look.terminal.phases import PhaseSpan, Points
    from otel_rl.recorder.archive.autopsies import Autopsy
    from otel_rl.recorder.archive.now import PhaseTime, ProcessNow
    from otel_rl.recorder.archive.present import RunPresent

_MOST_STEPS = 64
"""Steps whose phases and values are kept."""
Who = tuple[str, int]
"""A process: its role, empty for a trainer rank, and its rank."""


@dataclass(kw_only=True)
class Scene:
    """Everything that a screen shows of a run."""

    present: RunPresent  # the run as it is now
    facts: Facts | None = None  # what `insight` says of it; `None` while it is read
    names: list[str] = field(default_factory=list)  # names of all metrics, once they are read
    curves: dict[str, Points] = field(default_factory=dict)  # whole curves, once they are read
    bounds: tuple[int, int] | None = None  # the first and the last step, once they are read
    step: int | None = None  # the step that is looked at; `None` for the present
    of_step: dict[int, list[PhaseSpan]] = field(default_factory=dict)
    """The phases of that step, or of the step of a page."""
    of_rank: dict[Who, list[PhaseSpan]] = field(default_factory=dict)  # the phases of the last steps of a process
    values: dict[int, dict[str, float | None]] = field(default_factory=dict)  # the values of the step
    pattern: str = ""  # what names must contain to be shown
    is_sorted: bool = False  # whether the processes that wait longest come first
    is_paused: bool = False  # whether the screen stands still
    note: str = ""  # what is read just now, or went wrong
    news: str = ""  # that the screen shows another run now; empty after some seconds
    autopsy: Autopsy | None = None  # the autopsy to show; `None` if there is none, or it is not read
    has_looked: bool = False  # whether autopsies were looked for
    answers: dict[Question, Why | str] = field(default_factory=dict)
    """Why steps took their time, by the question; a text if that cannot be said."""

    def renew(self, present: RunPresent) -> None:
        """Take the present."""
        self.present = present
        if self.facts is not None:
            self.facts = as_of(self.facts, present)

    def learn(self, question: tuple[object, ...], reply: Any) -> None:
        """Keep an answer to a question of `otel_rl.look.terminal.reading`."""
        match question:
            case ("present",):
                self.present, self.note = reply, ""
            case ("facts",):
                self.facts = reply
            case ("names",):
                self.names = reply
            case ("bounds",):
                self.bounds = reply
            case ("autopsy",):
                self.autopsy, self.has_looked = reply, True
            case ("why", int() | None as step, str(phase)):
                self.answers = {**self.answers, Question(step, phase): reply}
            case ("curves", *_):
                self.curves = {**self.curves, **reply}
            case ("step", int(number)):
                self.of_step = {**dict(list(self.of_step.items())[-_MOST_STEPS:]), number: reply}
            case ("values", int(number)):
                self.values = {**dict(list(self.values.items())[-_MOST_STEPS:]), number: reply}
            case ("rank", str(role), int(rank)):
                self.of_rank = {**self.of_rank, (role, rank): reply}

    def scrub(self, steps: int) -> None:
        """Look so many steps later, or earlier; behind the last step, at the present."""
        progress, bounds = self.present.progress, self.bounds or (None, None)
        first = bounds[0] if progress.first_step is None else progress.first_step
        last = bounds[1] if progress.last_step is None else progress.last_step
        if first is not None and last is not None:
            wanted = (last + 1 if self.step is None else self.step) + steps
            self.step = max(first, wanted) if wanted <= last else None

    def shares_of_step(self) -> dict[Who, list[PhaseTime]]:
        """Return where each process spent the time of the step that is looked at."""
        phases_of: dict[Who, list[PhaseSpan]] = {}
        for phase in self.of_step.get(-1 if self.step is None else self.step, ()):
            phases_of.setdefault((phase.role, phase.rank), []).append(phase)
        return {who: own_seconds(phases) for who, phases in phases_of.items()}

    def matches(self, *texts: str) -> bool:
        """Return whether one of the texts has what the reader searches for."""
        wanted = self.pattern.lower()
        return any(wanted in text.lower() for text in texts)


class Question(NamedTuple):
    """What `why` is asked: a step, or the run; and a phase, or whole steps."""

    step: int | None = None
    phase: str = ""

    @property
    def places(self) -> tuple[str, ...]:
        """The step and the phase, as places of a title."""
        step = () if self.step is None else (f"step {self.step:,}",)
        return (*step, self.phase) if self.phase else step


class Drawn(NamedTuple):
    """A screen."""

    lines: list[Line]  # its lines
    first: int = 0  # the line of the first row that a cursor can be on
    top: int = 0  # the number of the first such row that is shown
    rows: int = 0  # how many such rows there are in all
    shown: int = 0  # how many of them are shown


def as_of(facts: Facts, present: RunPresent) -> Facts:
    """Return facts in which how the run stands is said for the present, though findings are read less often."""
    facts = replace(facts, summary=replace(facts.summary, name=present.name))  # somebody may have given it another one
    if facts.summary.state != present.state or not present.sentence:
        return facts
    findings = (
        replace(finding, sentence=present.sentence) if finding.kind == "outcome" else finding
        for finding in facts.findings
    )
    return replace(facts, summary=_summary_of(facts.summary, present), findings=tuple(findings))


def _summary_of(summary: Summary, present: RunPresent) -> Summary:
    """Return how far a run is, by what its agents wrote last: a title has the numbers of the sentence below it."""
    if present.is_over or not present.is_complete or not present.progress.steps or not present.started_unix_nano:
        return summary
    return replace(
        summary,
        steps=present.progress.steps,
        duration_s=max(0, present.at - present.started_unix_nano) / 1e9,
        recent_step_seconds=present.progress.recent_step_seconds,
    )


def label(process: ProcessNow | tuple[str, int]) -> str:
    """Return the name of a process: its rank, or its role and number."""
    role, rank = process if isinstance(process, tuple) else (process.role, process.rank)
    return f"{role} {rank}" if role else f"{rank}"


def window(count: int, cursor: int, room: int) -> int:
    """Return the first of many rows that is shown, so that the one of the cursor is."""
    if count <= room:
        return 0
    return min(max(0, cursor - room // 2), count - room)
