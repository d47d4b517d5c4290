"""The routes of the page: what answers which path."""

from __future__ import annotations

import re
import time
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from otel_rl.look.insight.run_groups import groups_of
from otel_rl.look.insight.run_values import RunValues
from otel_rl.look.ui.choice import RunChoice
from otel_rl.look.ui.compared import compared
from otel_rl.look.ui.mark_changes import MarkedPlace, changed, removal_of
from otel_rl.look.ui.overlay import OverlaidRun, overlay, tag_of
from otel_rl.look.ui.seeds import of_same_seeds
from otel_rl.look.ui.site import Content, Query, Route, as_json
from otel_rl.recorder.archive.runs import is_run_directory, place_of
from otel_rl.recorder.otlp.answers import MALFORMED, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.ui.index import RunIndex
    from otel_rl.look.ui.range_cache import RangeCache
    from otel_rl.look.ui.run_page import RunPages
    from otel_rl.recorder.archive.runs import Place


_RUN = "/run/([0-9a-f]+)"
_MOST_DIGITS = 9


def routes_of(index: RunIndex, pages: RunPages, ranges: RangeCache) -> Sequence[Route]:
    """Return the routes over the runs of an index, their pages, and what is known of their values."""
    return (
        Route(re.compile("/runs"), partial(_runs, index)),
        Route(re.compile(_RUN), partial(_run, index, pages)),
        Route(re.compile(f"{_RUN}/part/([a-z]+)"), partial(_part, index, pages)),
        Route(re.compile(f"{_RUN}/tail"), partial(_tail, index, pages)),
        Route(re.compile(f"{_RUN}/marks"), partial(_marks, index)),
        Route(re.compile(f"{_RUN}/marks"), partial(_change, index), "POST"),
        Route(re.compile(f"{_RUN}/content"), partial(_content, index)),
        Route(re.compile("/found"), partial(_found, index, RunChoice())),
        Route(re.compile("/curves"), partial(_curves, index, ranges)),
        Route(re.compile("/compared"), partial(_compared, index)),
    )


def _runs(index: RunIndex, query: Query) -> Content:
    """Return what has changed in the list since a cursor."""
    return Content("", lambda: as_json(index.since(query.one("cursor"))))


def _found(index: RunIndex, choice: RunChoice, query: Query) -> Content:
    """Return which runs a search finds, in which order."""
    found = choice.found(
        index.presents(),
        time.time_ns(),
        query.one("find"),
        sort=query.one("sort"),
        reverse=query.one("reverse") == "1",
        columns=query.whole("columns"),
        group=query.one("group"),
        with_archived=query.one("all") == "1",
    )
    return Content("", lambda: as_json(found))


def _run(index: RunIndex, pages: RunPages, key: str, query: Query) -> Content:
    """Return the page of a run, without what the browser knows."""
    return Content("", lambda: as_json(pages.page(place_of(_place(index, key).path), set(query.every("known")))))


def _tail(index: RunIndex, pages: RunPages, key: str, query: Query) -> Content:
    """Return the steps that a run has recorded since its parts were read, from a place on."""
    first = query.one("from", "0")
    if not first.isdecimal() or len(first) > _MOST_DIGITS:
        raise Refusal(MALFORMED, "from is the place of a step in the tail")
    return Content("", lambda: as_json(pages.tail(_place(index, key), int(first))))


def _part(index: RunIndex, pages: RunPages, key: str, name: str, _: Query) -> Content:
    """Return the data of a part of a run."""
    digest, data = pages.part(_place(index, key), name)
    return Content(digest, lambda: data)


def _marks(index: RunIndex, key: str, _: Query) -> Content:
    """Return the marks of a run, which differ from those of the list once somebody else has changed them."""
    place = place_of(_place(index, key).path)
    return Content("", lambda: as_json(MarkedPlace(name=place.name, first_name=place.first_name, marks=place.marks)))


def _content(index: RunIndex, key: str, _: Query) -> Content:
    """Return what somebody is asked before a run is deleted."""
    return Content("", lambda: as_json(removal_of(_place(index, key).path)))


def _change(index: RunIndex, key: str, body: bytes) -> Content:
    """Change the marks of a run, or delete it."""
    marks = changed(_place(index, key).path, body)
    index.look_again(key)
    return Content("", lambda: as_json(marks))


def _place(index: RunIndex, key: str) -> Place:
    place = index.place(key)
    if place is None or not is_run_directory(place.path):
        raise LookupError("this run is there no more")
    return place


def _curves(index: RunIndex, ranges: RangeCache, query: Query) -> Content:
    """Return lines of several runs."""
    runs, asked = _overlaid(index, query), (query.whole("names"), query.one("x", "step"), query.one("find"))
    verdicts = {run.key: index.verdict(run.path) for run in runs} if query.one("seeds") == "1" else {}
    bands = of_same_seeds({key: verdict.parameters if verdict else {} for key, verdict in verdicts.items()})
    return Content(tag_of(runs, asked, bands), lambda: as_json(overlay(ranges, runs, *asked, bands)))


def _compared(index: RunIndex, query: Query) -> Content:
    """Return how several runs differ."""
    runs, baseline = _overlaid(index, query), query.one("baseline")
    known, at = index.presents(), time.time_ns()
    values = [
        RunValues(present, at, facts=facts) for run in runs if run.key in known for present, facts in [known[run.key]]
    ]
    groups = groups_of(values, None, attrgetter("known_facts"))
    best = tuple(sentence for group in groups for sentence in group.sentences)
    return Content(tag_of(runs, baseline, best), lambda: as_json(compared(runs, baseline, best)))


def _overlaid(index: RunIndex, query: Query) -> list[OverlaidRun]:
    """Return the runs of a query, without those that were removed."""
    places = {key: index.place(key) for key in query.every("runs")}
    return [OverlaidRun(key, place.path) for key, place in places.items() if place is not None]
