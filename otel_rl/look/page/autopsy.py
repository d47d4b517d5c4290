"""The newest autopsy of a run that has found a cause: its verdict, evidence, and the stacks, equal ones together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.look.page.markup import Markup, joined, tag
from otel_rl.recorder.archive.autopsies import read_autopsies, telling
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_MOST_NAMED = 8


def autopsy_of(path: Path) -> Markup | None:
    """Return what the newest autopsy found that names a cause, else the newest; `None` if none saw a process."""
    autopsies = [autopsy for autopsy in read_autopsies(path) if autopsy.verdict.kind != "ended"]
    newest = telling(autopsies)
    if newest is None:
        return None
    verdict = newest.verdict
    when = wording.date(newest.time_unix_nano)
    sure = "" if verdict.sure == "certain" else f" ({'likely' if verdict.sure == 'likely' else 'not sure'})"
    others = len(autopsies) - 1
    note = f"Of {when}, on {wording.names(newest.hosts)}."
    if others:
        note += f" {wording.count(others, 'other')} in autopsy/ of the run directory."
    groups = [
        tag(
            "details",
            tag("summary", f"{wording.names(group.who, _MOST_NAMED)}: {group.does}"),
            tag("pre", "\n".join(group.stack), class_="text", tabindex="0"),
        )
        for group in newest.groups
    ]
    return joined(
        tag("p", f"{verdict.sentence}{sure}", class_="finding-line"),
        tag("p", f"→ {verdict.advice}") if verdict.advice else "",
        tag("p", note, class_="note"),
        _list("Evidence", verdict.evidence),
        _list("Consequences", verdict.consequences),
        _list("Not seen", newest.missing),
        tag("h3", "Stacks, the innermost frame first") if groups else "",
        *groups,
    )


def _list(title: str, entries: Sequence[str]) -> Markup:
    return joined(tag("h3", title), tag("ul", *(tag("li", entry) for entry in entries))) if entries else joined()
