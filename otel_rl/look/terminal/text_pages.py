"""The pages that are read as texts: findings, why, the autopsy, the keys; and the line of keys below each screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.cli.lines import StyledText, both_ends, fit_line, folded, line, safe, width
from otel_rl.look.terminal import drawing, reasons
from otel_rl.look.terminal.headline import lines_of, title
from otel_rl.look.terminal.scene import Drawn
from otel_rl.recorder.archive.autopsy_text import lines_of as lines_of_autopsy
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.cli.lines import Line
    from otel_rl.look.terminal.scene import Question, Scene

_ENTER, _ESCAPE, _STEPS = ("↵", "into"), ("esc", "out"), ("← →", "step")
_EVERYWHERE = (("a", "autopsy"), ("w", "why"), ("f", "findings"), ("/", "search"), ("?", "keys"), ("q", "quit"))
_KEYS = {
    "run": (_ENTER, _STEPS, *_EVERYWHERE),
    **dict.fromkeys(("rank", "step"), (_ENTER, _ESCAPE, *_EVERYWHERE)),
    "phase": (_ESCAPE, *_EVERYWHERE),
}
"""Keys that do something, by the kind of a page."""
_OF_TEXTS = (("↑ ↓", "scroll"), _ESCAPE, *(key for key in _EVERYWHERE if key[0] != "/"))


def keys(scene: Scene, cells: int, kind: str) -> Line:
    """Draw the keys that do something on a page; those that have no room are on the page of the keys."""
    end = (StyledText(f"/{safe(scene.pattern)} ", "warning"),) if scene.pattern else ()
    return both_ends(_keys(_KEYS.get(kind, _OF_TEXTS)), end, cells)


def _keys(known: Iterable[tuple[str, str]]) -> list[StyledText]:
    parts = [StyledText(" ")]
    for key, what in known:
        parts += [StyledText(key, "key"), StyledText(f" {what}  ", "dim")]
    return parts


HELP = (
    ("↑ ↓", "choose a process, a step, a phase; also k and j, Page Up and Page Down"),
    ("Enter", "go in: run, rank, step, phase"),
    ("Esc", "go out, end the search, return to the present"),
    ("← →", "look at the step before or after; with Shift, ten at once"),
    ("Home End", "look at the first step, at the present"),
    ("a", "show the last autopsy: who waits for whom, and the stacks"),
    ("w", "say why the run, or the step that is chosen, takes its time"),
    ("f", "show all findings"),
    ("/", "search names of metrics, phases, ranks and hosts"),
    ("Space", "let the screen stand still; again to go on"),
    ("s", "put the processes that wait longest first"),
    ("?", "show or hide this page"),
    ("q", "quit"),
)
"""Keys and what they do."""
_LEGEND = (
    ("rollout", "rollout"),
    ("training", "training"),
    ("reward", "reward, environment"),
    ("sync", "weight sync"),
    ("evaluation", "evaluation, checkpoint"),
    ("waiting", "waiting"),
    ("other", "other"),
    ("none", "not in any phase"),
)


def draw_help(scene: Scene, cells: int, height: int, top: int) -> Drawn:
    """Draw the page of the keys."""
    lines = [line((f" {key:>10}  ", "key"), what) for key, what in HELP]
    lines += [line(), line((" Colors and marks of phases", "dim"))]
    lines += [line("   ", *drawing.bar([(1.0, style)], 6), f"  {what}") for style, what in _LEGEND]
    return _text(title(scene, cells, "keys"), lines, cells, height, top)


def draw_findings(scene: Scene, cells: int, height: int, top: int) -> Drawn:
    """Draw all findings, with what to do and what says the same."""
    head, facts = title(scene, cells, "findings"), scene.facts
    if facts is None:
        return _text(head, _reading(scene), cells, height, top)
    lines: list[Line] = []
    for finding in facts.findings:
        lines += lines_of(finding, finding.advice, cells - 1, is_apart=True)
        lines += [row for text in finding.also for row in folded(line("   ", (safe(text), "dim")), cells - 1)]
    return _text(head, lines or [line((" nothing was found that needs attention", "good"))], cells, height, top)


def draw_autopsy(scene: Scene, cells: int, height: int, top: int) -> Drawn:
    """Draw the last autopsy; if there is none, say how to make one."""
    head, present = title(scene, cells, "autopsy"), scene.present
    if scene.autopsy is not None:
        lines = [line(" ", (text, style)) for style, text in lines_of_autopsy(scene.autopsy)]
    elif not scene.has_looked:
        lines = [line((" reading …", "dim"))]
    elif present.is_over:
        lines = [line(" Nobody made an autopsy of this run while its processes lived.")]
    else:
        lines = [
            line(" No autopsy yet. The agent makes one when a process hangs or dies. To make one now:"),
            line(),
            line((f"   otel-rl autopsy {safe(present.path)}", "bold")),
            line(),
            line((" It takes the stacks of all processes on this machine, and stops none of them.", "dim")),
        ]
    return _text(head, lines, cells, height, top)


def draw_why(scene: Scene, question: Question, cells: int, height: int, top: int) -> Drawn:
    """Draw why the steps of a question took their time."""
    answer = scene.answers.get(question)
    head = title(scene, cells, *question.places, "why")
    if answer is None:
        return _text(head, _reading(scene), cells, height, top)
    lines = [line(" ", safe(answer))] if isinstance(answer, str) else reasons.lines(answer, cells - 2)
    return _text(head, [line(" ", *row) for row in lines], cells, height, top)


def _reading(scene: Scene) -> list[Line]:
    return [line((f" {safe(scene.note) or 'reading what the run recorded …'}", "dim"))]


def _text(head: Line, lines: Sequence[Line], cells: int, height: int, top: int) -> Drawn:
    """Draw lines, the ones that are too long folded, from one of them on."""
    rows = [part for row in lines for part in (folded(row, cells - 1) if width(row) >= cells else [row])]
    room = max(1, height - 2)
    last = max(0, len(rows) - room)
    at = min(top, last)
    left = len(rows) - at - room
    more = line((f" {wording.count(left, 'more line')}: ↓", "dim")) if left > 0 else line()
    shown = rows[at : at + room - (left > 0)]
    return Drawn([head, line(), *(fit_line(row, cells) for row in (*shown, more))], rows=last + 1)
