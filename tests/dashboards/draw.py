"""`python -m tests.dashboards.draw`: screenshots of the dashboards, from a real Prometheus that scrapes real agents.

Needs Chromium and, once, `npm install --legacy-peer-deps && npx vite build` in `dashboards/render`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from tests.dashboards import proof
from tests.dashboards.trainers import PLAYS
from tests.processes import start

if TYPE_CHECKING:
    from collections.abc import Mapping

_DASHBOARDS = Path(__file__).parents[2] / "dashboards"
_IMAGES = _DASHBOARDS.parent / "docs" / "images"
_PAGE = _DASHBOARDS / "render" / "dist"
_LASTING = 100.0
_LINE, _TOP, _WIDTH = 38, 64, 1600
_SHOWN = {
    "overview": "demo",
    "anatomy": "demo",
    "policy": "diverged",
    "rollouts": "asynchronous",
    "hardware": "gpu",
    "ranks": "slow",
    "telemetry": "telemetry",
    "explorer": "verl",
}
"""The run that each screenshot shows."""
_DEMO = [sys.executable, "-m", "otel_rl.cli", "demo", "--steps", "400", "--to", "jsonl"]
_CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]


class Page(SimpleHTTPRequestHandler):
    """The page that draws, and the dashboards."""

    def log_message(self, *_: object) -> None:
        pass


def draw(prometheus: str, to: int, ids: Mapping[str, str]) -> None:
    """Write a screenshot of each dashboard up to a time; `ids` maps names of runs to ids where they differ."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Page, directory=str(_PAGE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (_PAGE / "boards").unlink(missing_ok=True)
    (_PAGE / "boards").symlink_to(_DASHBOARDS / "grafana")
    for board, run in _SHOWN.items():
        shown = {"to": to, "seconds": int(_LASTING) - 15, "board": board, "prometheus": prometheus}
        url = urlencode({"run": ids.get(run, run), "name": run, **shown})
        panels = json.loads((_DASHBOARDS / "grafana" / f"{board}.json").read_text())["panels"]
        height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * _LINE + _TOP
        how = [f"--window-size={_WIDTH},{height}", f"--screenshot={_IMAGES / f'{board}.png'}"]
        how += ["--virtual-time-budget=40000", f"http://127.0.0.1:{server.server_port}/index.html?{url}"]
        subprocess.run(_CHROMIUM + how, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    _IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        demo = start(_DEMO, place)
        played = tuple(run for run in PLAYS if run in _SHOWN.values())
        with proof.watched(place, played, lasting=_LASTING) as prometheus:
            (of_demo,) = (place / "runs" / "otel-rl-demo").iterdir()
            now = int(time.time())
            (place / "stop").touch()  # Chromium draws late what it draws on a busy machine
            demo.terminate()
            demo.communicate()
            draw(prometheus.url, now, {"demo": of_demo.name.rpartition("-")[2]})
