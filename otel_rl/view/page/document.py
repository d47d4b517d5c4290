"""The file: its parts in their order, and the policy that lets a browser run nothing else and load nothing."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from otel_rl.view.page import timeline
from otel_rl.view.page.markup import Markup, data_block, joined, tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

_STYLES = ("uplot.css", "page.css", "parts.css")
_SCRIPTS = (
    "uplot.js",
    "dom.js",
    "numbers.js",
    "decode.js",
    "state.js",
    "theme.js",
    "canvas.js",
    "tables.js",
    "brush.js",
    "lines.js",
    "lanes.js",
    "curves.js",
    "phases.js",
    "waiting.js",
    "panels.js",
    "samples.js",
    "tokens.js",
    "transcripts.js",
    "keys.js",
    "main.js",
)
"""Names of the assets, in the order in which they follow each other."""
TIMELINE = "timeline"
"""The largest part comes last, so that all others are shown before it is read."""


def document(title: str, body: Markup, data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text of the page.

    Args:
        title: Its title.
        body: What is readable without scripts.
        data: What the scripts draw, by part.
    """
    script = _scripts()
    yield _begin(title, body, script)
    for part, value in data.items():
        if part != TIMELINE:
            yield data_block(f"data-{part}", value)
    yield f"<script>{script}</script>\n"
    if TIMELINE in data:
        yield data_block(f"data-{TIMELINE}", data[TIMELINE])
    yield "</body>\n</html>\n"


def still(title: str, body: Markup) -> str:
    """Return the text of a page without scripts."""
    return f"{_begin(title, body)}</body>\n</html>\n"


def _begin(title: str, body: Markup, script: str = "") -> str:
    """Return the head of a page, whose policy allows its own style and script alone, and its body."""
    style = _styles()
    policy = "; ".join(
        (
            "default-src 'none'",
            *([f"script-src '{_hash(script)}'"] if script else []),
            f"style-src '{_hash(style)}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    head = joined(
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        Markup(f"<style>{style}</style>"),
    )
    return f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{body}\n'


def _styles() -> str:
    return "\n".join(_asset(name) for name in (*_STYLES, timeline.STYLE))


def _scripts() -> str:
    """Return all scripts. Names inside of the timeline's stay its own."""
    inside = "\n".join(_asset(name) for name in timeline.SCRIPTS)
    *before, last = (_asset(name) for name in _SCRIPTS)
    before.insert(0, f"/*! uPlot:\n{_asset('uplot.license.txt')}*/")
    apart = f"globalThis.mountTimeline = (() => {{\n{inside}\nreturn mountTimeline;\n}})();"
    return "\n".join((*before, apart, last))


def _asset(name: str) -> str:
    return _assets().joinpath(name).read_text("utf-8")


def _assets() -> Traversable:
    return files("otel_rl.view.page").joinpath("assets")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
