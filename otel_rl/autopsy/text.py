"""An autopsy as lines of text with styles: the verdict first, then what says so, then the stacks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from otel_rl.errors.sinks import one_line
from otel_rl.insight import wording

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.archive.autopsies import Autopsy

_MOST_NAMED = 8
Styled = tuple[str, str]
"""A style of the terminal and a text of one line."""


def lines_of(found: Autopsy) -> Iterable[Styled]:
    """Yield the lines of an autopsy; recorded texts in them are harmless."""
    for style, text in _lines(found):
        yield style, one_line(text)


def _lines(found: Autopsy) -> Iterable[Styled]:
    verdict = found.verdict
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(found.time_unix_nano / 1e9))
    yield "dim", f"{found.run} · {when} · {wording.names(found.hosts, _MOST_NAMED)}"
    sure = "" if verdict.sure == "certain" or not verdict.names_cause else f" ({_SURE[verdict.sure]})"
    yield "bad" if verdict.names_cause else "good", f"{verdict.sentence}{sure}"
    if verdict.advice:
        yield "bold", f"→ {verdict.advice}"
    for title, entries in (
        ("EVIDENCE", verdict.evidence),
        ("CONSEQUENCES", verdict.consequences),
        ("NOT SEEN", found.missing),
    ):
        if entries:
            yield "", ""
            yield "dim", title
            yield from (("", f"  {entry}") for entry in entries)
    if found.groups:
        yield "", ""
        yield "dim", "STACKS: equal ones together, the odd one first; the innermost frame comes first"
    for group in found.groups:
        yield "bold", f"  {wording.names(group.who, _MOST_NAMED)}: {group.does}"
        yield from (("", f"    {frame}") for frame in group.stack)


_SURE = {"likely": "likely", "unknown": "not sure"}
