"""`write_report`: reads a run part by part, and writes the page."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_rl.archive.reader import open_run
from otel_rl.insight import facts_of
from otel_rl.journal.atomic_files import write_atomically
from otel_rl.view.page import about
from otel_rl.view.page.body import body_of
from otel_rl.view.page.curves import curves_of
from otel_rl.view.page.document import TIMELINE, document
from otel_rl.view.page.engines import engines_of
from otel_rl.view.page.measured import machines_of, memory_of
from otel_rl.view.page.phases import phases_of, waiting_of
from otel_rl.view.page.samples import samples_of
from otel_rl.view.page.steps import drawn, steps_of
from otel_rl.view.page.timeline import MOST_SPANS, timeline_of
from otel_rl.view.page.trajectories import trajectories_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from otel_rl.insight import Facts
    from otel_rl.view.page.steps import Steps

    Said = Callable[[int, int, str], object]
    """Receives which part is read: its number, how many there are, and its name; the last one is the writing."""


_MOST_BYTES = 14_000_000
"""Bytes of the data of a page. Trackers of issues take files of 25 MB, and a page of 15 MB opens at once."""
_BYTES_OF_SPAN = 6
_LEAST_SPANS = 200_000


def write_report(path: str | os.PathLike[str], file: str | os.PathLike[str], said: Said = lambda *_: None) -> None:
    """Write the report of a run into a file, which is replaced at once.

    Raises:
        FileNotFoundError: `path` is not a run directory.
        OSError: The file cannot be written.
    """
    write_atomically(Path(file).absolute(), page_of(path, said).encode())


def page_of(path: str | os.PathLike[str], said: Said = lambda *_: None) -> str:
    """Return the report of a run as the text of an HTML file.

    Raises:
        FileNotFoundError: `path` is not a run directory.
    """
    run, directory, made = open_run(path), Path(path).absolute(), time.time_ns()
    said(0, 1, "the findings")
    facts = facts_of(run)
    steps = steps_of(run)
    origin = _origin(facts, steps)
    end = max(facts.summary.last_unix_nano, origin, int(steps.ended.max()) if len(steps.ended) else 0)
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
        TIMELINE: lambda: timeline_of(run, most_spans=_spans_that_fit(data)),
    }
    for number, (name, make) in enumerate(parts.items(), 1):
        said(number, len(parts) + 1, name)
        data[name] = make()
    summary = facts.summary
    data["run"] = {
        "origin": str(origin),
        "end": (end - origin) / 1e9,
        "state": summary.state,
        "events": marks,
        "evidence": _names(facts),
        "title": f"{summary.project} {summary.name}",
    }
    said(len(parts) + 1, len(parts) + 1, "the page")
    body = body_of(run, directory, facts, origin, made, events)
    return "".join(document(f"{summary.project} · {summary.name} · otel-rl", body, data))


def _spans_that_fit(data: Mapping[str, Any]) -> int:
    """Return how many spans a timeline may have, so that the file with all other parts stays small enough to send."""
    left = _MOST_BYTES - sum(len(json.dumps(part)) for part in data.values())
    return min(MOST_SPANS, max(_LEAST_SPANS, left // _BYTES_OF_SPAN))


def _names(facts: Facts) -> dict[str, list[str]]:
    """Return the metrics that are the evidence of findings, by the part of the page that shows them."""
    found: dict[str, list[str]] = {}
    for finding in facts.findings:
        names = found.setdefault(finding.evidence.panel, [])
        names += [name for name in finding.evidence.names if name not in names]
    return found


def _marked(facts: Facts) -> list[int]:
    """Return the first step of each finding about samples."""
    return [one.evidence.steps[0] for one in facts.findings if one.evidence.panel == "data" and one.evidence.steps]


def _origin(facts: Facts, steps: Steps) -> int:
    """Return the time that all times of the page count from, in Unix nanoseconds."""
    times = [facts.summary.started_unix_nano, *steps.begun.compressed()[:1].tolist(), *steps.ended[:1].tolist()]
    return min((time for time in times if time > 0), default=0)
