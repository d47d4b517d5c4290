"""`write_report`: reads a run part by part, and writes the page."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_rl.look.insight import facts_of
from otel_rl.look.page import about
from otel_rl.look.page.body import body_of
from otel_rl.look.page.curves import curves_of
from otel_rl.look.page.document import TIMELINE, document
from otel_rl.look.page.engines import engines_of
from otel_rl.look.page.measured import machines_of, memory_of
from otel_rl.look.page.phases import phases_of, waiting_of
from otel_rl.look.page.samples import samples_of
from otel_rl.look.page.steps import drawn, steps_of
from otel_rl.look.page.timeline import MOST_SPANS, timeline_of
from otel_rl.look.page.trajectories import trajectories_of
from otel_rl.look.reader.runs import open_run
from otel_rl.recorder.files.atomic_files import write_atomically

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from otel_rl.look.insight import Facts
    from otel_rl.look.page.steps import StepAxis

    _Progress = Callable[[int, int, str], object]
    """Receives which part is read: its number, how many there are, and its name; the last one is the writing."""


_MOST_BYTES = 14_000_000
"""Bytes of the data of a page. Trackers of issues take files of 25 MB, and a page of 15 MB opens at once."""
_BYTES_OF_SPAN = 6
_LEAST_SPANS = 200_000


def write_report(path: str | os.PathLike[str], file: str | os.PathLike[str], done: _Progress = lambda *_: None) -> None:
    """Write the report of a run into a file, which is replaced at once.

    Raises:
        FileNotFoundError: `path` is not a run directory.
        OSError: The file cannot be written.
    """
    write_atomically(Path(file).absolute(), page_of(path, done).encode())


def page_of(path: str | os.PathLike[str], done: _Progress = lambda *_: None) -> str:
    """Return the report of a run as the text of an HTML file.

    Raises:
        FileNotFoundError: `path` is not a run directory.
    """
    run, directory, made = open_run(path), Path(path).absolute(), time.time_ns()
    done(0, 1, "the findings")
    facts = facts_of(run)
    steps = steps_of(run)
    origin = _origin(facts, steps)
    until = facts.summary.started_unix_nano + round(facts.summary.duration_s * 1e9)
    end = max(until, origin, int(steps.ended.max()) if len(steps.ended) else 0)
    events, marks = about.events_of(run, origin)
    data: dict[str, Any] = {}
    parts: dict[str, Callable[[], Any]] = {
        "steps": lambda: drawn(steps, origin),
        "curves": lambda: curves_of(run, steps, facts.metrics),
        "phases": lambda: phases_of(run, steps),
        "waiting": lambda: waiting_of(run, steps),
        "memory": lambda: memory_of(run, steps),
        "engines": lambda: engines_of(run, origin, end),
        "machines": lambda: machines_of(run, origin, end),
        "trajectories": lambda: trajectories_of(run, steps),
        "samples": lambda: samples_of(run, _marked(facts)),
        # The last part: it gets the room that the others leave.
        TIMELINE: lambda: timeline_of(run, most_spans=_spans_that_fit(data)),
    }
    for number, (name, make) in enumerate(parts.items(), 1):
        done(number, len(parts) + 1, name)
        data[name] = make()
    summary = facts.summary
    data["run"] = {
        # A text: nanoseconds since 1970 have more than the 53 bits of a number in JavaScript.
        "origin": str(origin),
        "end": (end - origin) / 1e9,
        "state": summary.state,
        "events": marks,
        "evidence": _names(facts),
        "title": f"{summary.project} {summary.name}",
    }
    done(len(parts) + 1, len(parts) + 1, "the page")
    body = body_of(run, directory, facts, origin, made, events)
    return "".join(document(f"{summary.project} · {summary.name} · otel-rl", body, data))


def _spans_that_fit(data: Mapping[str, Any]) -> int:
    """Return how many spans a timeline may have, so that the file with all other parts stays small enough to send."""
    left = _MOST_BYTES - sum(len(json.dumps(part)) for part in data.values())
    return min(MOST_SPANS, max(_LEAST_SPANS, left // _BYTES_OF_SPAN))


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
