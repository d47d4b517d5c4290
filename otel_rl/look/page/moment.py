"""A run at one moment: the parts of its page, each of which is read when somebody asks for it first."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_rl.look.insight.conclude import facts_of_recorded
from otel_rl.look.insight.recorded import RecordedRun
from otel_rl.look.page import about
from otel_rl.look.page.curves import curves_of
from otel_rl.look.page.engines import engines_of
from otel_rl.look.page.markup import json_of
from otel_rl.look.page.measured import machines_of, memory_of
from otel_rl.look.page.phases import phases_of, waiting_of
from otel_rl.look.page.samples import samples_of
from otel_rl.look.page.steps import drawn, steps_of
from otel_rl.look.page.timeline import MOST_SPANS, timeline_of
from otel_rl.look.page.trajectories import trajectories_of
from otel_rl.look.reader.runs import open_run

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from otel_rl.look.insight import Facts
    from otel_rl.look.page.steps import StepAxis

TIMELINE = "timeline"
"""The largest part, which gets the room that the others leave."""
_MOST_BYTES = 14_000_000
"""Bytes of the data of a page. Trackers of issues take files of 25 MB, and a page of 15 MB opens at once."""
_BYTES_OF_SPAN = 6
_LEAST_SPANS = 200_000


class RunMoment:
    """A run as it is now.

    Attributes:
        run: Its reader.
        recorded: What was read of it for its facts.
        path: The run directory.
        made: The moment, in Unix nanoseconds.
        facts: What it says.
        steps: The axis of all parts.
        origin: The time that all times of the page count from, in Unix nanoseconds.
        events: The table of its events.

    Args:
        path: The run directory.
        facts: What it says, if that is known already.

    Raises:
        FileNotFoundError: `path` is not a run directory.
    """

    def __init__(self, path: str | os.PathLike[str], facts: Facts | None = None) -> None:
        self.run, self.path, self.made = open_run(path), Path(path).absolute(), time.time_ns()
        self.recorded = RecordedRun(self.run, self.made)
        self.facts = facts or facts_of_recorded(self.recorded)
        self.steps = steps_of(self.run)
        self.origin = _origin(self.facts, self.steps)
        self.events, self._marks = about.events_of(self.run, self.origin)
        self._texts: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of its page."""
        return f"{self.facts.summary.project} · {self.facts.summary.name} · otel-rl"

    def part(self, name: str) -> str:
        """Return the data of a part as JSON.

        Raises:
            KeyError: There is no such part.
        """
        if name not in self._texts:
            self._texts[name] = json_of(_PARTS[name](self))
        return self._texts[name]

    @property
    def end(self) -> int:
        """The time at which the page ends, in Unix nanoseconds."""
        summary, ended = self.facts.summary, self.steps.ended
        until = summary.started_unix_nano + round(summary.duration_s * 1e9)
        return max(until, self.origin, int(ended.max()) if len(ended) else 0)

    def as_a_whole(self) -> dict[str, Any]:
        """Return what all parts need of the run itself."""
        summary = self.facts.summary
        return {
            # A text: nanoseconds since 1970 have more than the 53 bits of a number in JavaScript.
            "origin": str(self.origin),
            "end": (self.end - self.origin) / 1e9,
            "state": summary.state,
            "events": self._marks,
            "evidence": _names(self.facts),
            "title": f"{summary.project} {summary.name}",
        }

    def most_spans(self) -> int:
        """Return how many spans a timeline may have, so that all parts together stay small enough to send."""
        left = _MOST_BYTES - sum(len(self.part(name)) for name in PARTS if name != TIMELINE)
        return min(MOST_SPANS, max(_LEAST_SPANS, left // _BYTES_OF_SPAN))


_PARTS: Mapping[str, Callable[[RunMoment], Any]] = {
    "run": RunMoment.as_a_whole,
    "steps": lambda now: drawn(now.steps, now.origin),
    "curves": lambda now: curves_of(now.run, now.steps, now.facts.metrics),
    "phases": lambda now: phases_of(now.run, now.steps, now.made),
    "waiting": lambda now: waiting_of(now.run, now.steps),
    "memory": lambda now: memory_of(now.run, now.steps),
    "engines": lambda now: engines_of(now.run, now.origin, now.end),
    "machines": lambda now: machines_of(now.run, now.origin, now.end),
    "trajectories": lambda now: trajectories_of(now.run, now.steps),
    "samples": lambda now: samples_of(now.run, _marked(now.facts)),
    TIMELINE: lambda now: timeline_of(now.run, most_spans=now.most_spans()),
}
PARTS = tuple(_PARTS)
"""The parts of the data of a page."""


def _names(facts: Facts) -> dict[str, list[str]]:
    """Return the metrics that are the evidence of findings, by the part of the page that shows them."""
    names_of_kind: dict[str, list[str]] = {}
    for finding in facts.findings:
        names = names_of_kind.setdefault(finding.evidence.panel, [])
        names += [name for name in finding.evidence.names if name not in names]
    return names_of_kind


def _marked(facts: Facts) -> list[int]:
    """Return the first step of each finding about samples."""
    return [
        finding.evidence.steps[0]
        for finding in facts.findings
        if finding.evidence.panel == "data" and finding.evidence.steps
    ]


def _origin(facts: Facts, steps: StepAxis) -> int:
    """Return the time that all times of the page count from, in Unix nanoseconds."""
    times = [facts.summary.started_unix_nano, *steps.begun.compressed()[:1].tolist(), *steps.ended[:1].tolist()]
    return min((time for time in times if time > 0), default=0)
