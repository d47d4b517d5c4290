"""A page with a timeline alone, in a real browser: what it draws, asks for and says is observed."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_rl.look.page.scripts import asset, script

if TYPE_CHECKING:
    from playwright.sync_api import Page

_START = """
const began = performance.now();
window.selected = [];
window.shown = null;
const data = JSON.parse(document.getElementById("data").textContent);
const timeline = mountTimeline(document.getElementById("place"), data, {
  onSelect: (one) => window.selected.push(one),
  onRange: (part) => (window.shown = [Number(part.first_ns) / 1e9, Number(part.last_ns) / 1e9]),
});
timeline.ready.then(() => (document.documentElement.dataset.ready = performance.now() - began));
"""


def written(path: Path, data: Mapping[str, Any]) -> Path:
    """Write a page that holds a timeline, with the policy of a report: nothing is loaded, no other script runs."""
    text = f"{script('timeline')}\nconst {{mountTimeline}} = $timeline;\n{_START}"
    style = "body { margin: 12px; background: light-dark(#fff, #15181d); } html { color-scheme: light dark; }\n"
    style += asset("timeline.css")
    policy = f"default-src 'none'; script-src '{_hash(text)}'; style-src '{_hash(style)}'"
    packed = json.dumps(data).replace("<", "\\u003c")
    path.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A timeline</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>'
        f'<body><main id="place"></main><script type="application/json" id="data">{packed}</script>'
        f"<script>{text}</script></body></html>",
        "utf-8",
    )
    return path


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


class Watched:
    """An open page, with what it wrote to the console, its errors and its requests."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(path.as_uri())
        page.locator("html[data-ready]").wait_for(state="attached")
        self.settle()

    def settle(self) -> None:
        """Wait until the page has drawn, and has said which part of the run is shown."""
        self.page.wait_for_timeout(400)

    def shown(self) -> tuple[float, float]:
        """Return the part of the run that is shown, in seconds since its start."""
        self.settle()
        first, last = self.page.evaluate("window.shown")
        origin = int(self.page.evaluate("JSON.parse(document.getElementById('data').textContent).origin_ns")) / 1e9
        return first - origin, last - origin

    def selected(self) -> Any:
        """Return what the page was last said to be selected."""
        self.settle()
        return self.page.evaluate("window.selected.at(-1)")

    def words(self) -> str:
        """Return the line that says what is selected."""
        return self.page.locator(".timeline-selection").inner_text()
