"""The processes of a run now, as a part of its page: what each does, or waits for and who owes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.look.page.about import table_of
from otel_rl.look.page.body import Piece
from otel_rl.look.page.markup import Markup, joined, tag
from otel_rl.look.page.verdict import section
from otel_rl.look.terminal.activities import Activities, groups_of, name_of, troubled_first
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.states import goes_on
from otel_rl.semconv.phase_categories import CATEGORIES

if TYPE_CHECKING:
    from otel_rl.look.terminal.activities import ProcessActivity
    from otel_rl.recorder.archive.present import RunPresent

_MOST_ROWS = 64
_TITLES = ("process", "host", "since", "does", "step")


def processes_now(present: RunPresent) -> Piece | None:
    """Return the processes of a run that goes on; `None` if no agent says anything of them."""
    if not goes_on(present.state) or not present.processes:
        return None
    activities = Activities(present)
    processes = troubled_first(present, present.processes)
    shown = processes[:_MOST_ROWS]
    lines = [
        (
            name_of((process.role, process.rank)),
            process.host,
            (activity := activities.of(process)).when,
            _doing(activity),
            "" if process.step is None else f"{process.step:,}",
        )
        for process in shown
    ]
    more = f"{wording.count(len(shown), 'process', 'processes')} of {groups_of(processes)}."
    body = joined(
        table_of(_TITLES, lines, "Processes now", numbers=(2, 4)),
        tag("p", more, class_="note") if len(processes) > len(shown) else "",
    )
    return Piece("now", "Now", section("now", "Now", body))


def _doing(activity: ProcessActivity) -> Markup:
    """Return an activity; a phase has the color of its category."""
    if activity.style in CATEGORIES:
        return joined(tag("i", "", class_=f"swatch {activity.style}"), activity.what)
    return tag("span", activity.what, class_="bad" if activity.style == "bad" else None)
