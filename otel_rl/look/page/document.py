"""The file: its parts in their order, and the policy that lets a browser run nothing else and load nothing."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from otel_rl.look.page.markup import Markup, data_block, joined, tag
from otel_rl.look.page.moment import TIMELINE
from otel_rl.look.page.scripts import asset, script

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_STYLES = ("uplot.css", "page.css", "parts.css", "timeline.css")


def document(title: str, body: Markup, data: Mapping[str, str]) -> Iterator[str]:
    """Yield the text of the page.

    Args:
        title: Its title.
        body: What is readable without scripts.
        data: What the scripts draw, by part, as JSON. The timeline, the largest one, comes last: all others are shown
            before it is read.
    """
    text = _scripts("main")
    yield _begin(title, body, text)
    for part, value in data.items():
        if part != TIMELINE:
            yield data_block(f"data-{part}", value)
    yield f"<script>{text}</script>\n"  # with any other character between the tags, the policy would refuse it
    if TIMELINE in data:
        yield data_block(f"data-{TIMELINE}", data[TIMELINE])
    yield "</body>\n</html>\n"


def still(title: str, body: Markup) -> str:
    """Return the text of a page without scripts."""
    return f"{_begin(title, body)}</body>\n</html>\n"


def shell(title: str, body: Markup) -> str:
    """Return the text of the page over all runs, which asks its server for what it shows, and nobody else."""
    text = _scripts("app")
    return f"{_begin(title, body, text, is_served=True)}<script>{text}</script>\n</body>\n</html>\n"


def _scripts(module: str) -> str:
    return f"/*! uPlot:\n{asset('uplot.license.txt')}*/\n{asset('uplot.js')}\n{script(module)}"


def _begin(title: str, body: Markup, scripts: str = "", *, is_served: bool = False) -> str:
    """Return the head of a page, whose policy allows its own style, script and server alone, and its body."""
    style = "\n".join(map(asset, (*_STYLES, "screens.css") if is_served else _STYLES))
    policy = "; ".join(
        (
            "default-src 'none'",
            *([f"script-src '{_hash(scripts)}'"] if scripts else []),
            *(["connect-src 'self'"] if is_served else []),
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


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
