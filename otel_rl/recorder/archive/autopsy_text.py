"""An autopsy as lines of text with styles: the verdict first, then what says so, then the stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.recorder.errors.sinks import one_line
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.recorder.archive.autopsies import Autopsy

_MOST_NAMED = 8
Styled = tuple[str, str]
"""A style of the terminal and a text of one line."""


def lines_of(autopsy: Autopsy) -> Iterable[Styled]:
    """Yield the lines of an autopsy; recorded texts in them are harmless."""
    for style, text in _lines(autopsy):
        yield style, one_line(text)


def verdict_lines(autopsy: Autopsy) -> Iterable[Styled]:
    """Yield when and where an autopsy was made, its verdict, and what to do; recorded texts are as they are."""
    verdict = autopsy.verdict
    yield "dim", f"{autopsy.run} · {wording.date(autopsy.time_unix_nano)} · {wording.names(autopsy.hosts, _MOST_NAMED)}"
    sure = "" if verdict.sure == "certain" or not verdict.names_cause else f" ({_SURE[verdict.sure]})"
    yield "bad" if verdict.names_cause else "good", f"{verdict.sentence}{sure}"
    if verdict.advice:
        yield "bold", f"→ {verdict.advice}"


def _lines(autopsy: Autopsy) -> Iterable[Styled]:
    yield from verdict_lines(autopsy)
    verdict = autopsy.verdict
    for title, entries in (
        ("EVIDENCE", verdict.evidence),
        ("CONSEQUENCES", verdict.consequences),
        ("NOT SEEN", autopsy.missing),
    ):
        if entries:
            yield "", ""
            yield "dim", title
            yield from (("", f"  {entry}") for entry in entries)
    if autopsy.groups:
        yield "", ""
        yield "dim", "STACKS: equal ones together, the odd one first; the innermost frame comes first"
    for group in autopsy.groups:
        yield "bold", f"  {wording.names(group.who, _MOST_NAMED)}: {group.does}"
        yield from (("", f"    {frame}") for frame in group.stack)


_SURE = {"likely": "likely", "possible": "possible", "unknown": "not sure"}
