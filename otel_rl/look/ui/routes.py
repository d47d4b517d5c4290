"""The routes of the page: what answers which path."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from otel_rl.look.ui.site import Content, Query, Route, as_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.ui.index import RunIndex


def routes_of(index: RunIndex) -> Sequence[Route]:
    """Return the routes over the runs of an index."""
    return (Route(re.compile("/runs"), partial(_runs, index)),)


def _runs(index: RunIndex, query: Query) -> Content:
    """Return what has changed in the list since a cursor."""
    return Content("", lambda: as_json(index.since(query.one("cursor"))))
