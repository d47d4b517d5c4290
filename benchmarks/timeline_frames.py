"""The timeline of a report with a million spans: the time to make it, its size, and frame times in a browser."""

from __future__ import annotations

import json
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import otel_rl
from benchmarks.tables import Cell, Table
from otel_rl import semconv
from otel_rl.export import Process, Span
from otel_rl.look.page.timeline import timeline_of
from otel_rl.recorder.archive.writer import ArchiveWriter
from tests.look.browser import chromium
from tests.look.timeline.page import written

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession

SPANS = 1_000_000
_ROWS = (8, 64)
_WIDTHS = (1280, 1900)
_PHASES = {
    "generate": 4.0,
    "reward": 0.3,
    "wait_for_rollouts": 0.5,
    "log_prob": 0.6,
    "advantage": 0.1,
    "update_actor": 2.0,
    "sync_weights": 0.3,
    "evaluate": 0.2,
    "save_checkpoint": 0.05,
    "log": 0.05,
}
"""Phases of a step with their usual seconds."""
_PLACES, _ROUNDS = 60, 5
_START = """() => {
  const canvas = document.querySelector(".timeline-canvas");
  const context = canvas.getContext("2d");
  const ask = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (draw) => ask((at) => {
    draw(at);
    context.getImageData(0, 0, 1, 1); // waits until the pixels are there
  });
  const stage = document.querySelector(".timeline-stage");
  stage.focus();
  const box = canvas.getBoundingClientRect();
  const place = { clientX: box.left + box.width * 0.6, clientY: box.top + 100 };
  const frame = () => new Promise((resume) => ask(() => setTimeout(resume)));
  window.zoom = () => {
    canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -120, ...place, cancelable: true }));
    return frame();
  };
  window.frames_of = async (rounds) => {
    for (let n = 0; n < rounds; n++) {
      stage.dispatchEvent(new Event("focus"));
      await frame();
    }
  };
}"""


def measure(spans: int = SPANS) -> list[Table]:
    """Return the cost of a timeline with so many spans, in rows of 8 and of 64 ranks."""
    made: list[list[Cell]] = []
    drawn: list[list[Cell]] = []
    with tempfile.TemporaryDirectory(prefix="otel-rl-benchmark-") as name, chromium() as browser:
        for rows in _ROWS:
            run = _recorded(Path(name, str(rows)), rows, spans)
            began, cpu = time.perf_counter(), time.process_time()
            data = timeline_of(otel_rl.open_run(run))
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            size = len(json.dumps(data))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            page = written(run / "page.html", data)
            made.append([f"{rows} ranks", data["count"], seconds, cpu, peak, size / 2**20, size / data["count"]])
            drawn += [_frames(browser, page, rows, width) for width in _WIDTHS]
    return [
        Table(
            "Made", ["spans of", "spans", "seconds", "CPU, s", "peak of the process, MiB", "MiB", "bytes a span"], made
        ),
        Table(
            "Drawn, zooming in by a factor of 100,000",
            ["rows", "width, px", "read, ms", "p50, CPU ms", "p95, CPU ms", "worst, CPU ms"],
            drawn,
            f"{_PLACES} zooms, {_ROUNDS} frames each. No GPU. 60 frames a second leave 16.7 ms for one.",
        ),
    ]


def _recorded(directory: Path, ranks: int, spans: int) -> Path:
    """Write an archive with phases of all ranks, and return the directory of the run."""
    directory.mkdir()
    (directory / "run.json").write_text(json.dumps({"id": "timeline", "project": "benchmark", "name": "timeline"}))
    writer, dice, origin = ArchiveWriter(directory / "archive" / "node1", 1 << 60), np.random.default_rng(0), 10**18
    for rank in range(ranks):
        writer.add(Process(0, "", rank, ranks, f"node{rank // 8 + 1}", rank, origin, ()))
    usual = np.array(list(_PHASES.values())) * 1e9
    number, now = 0, origin
    for step in range(spans // ranks // len(_PHASES)):
        took = (usual * dice.uniform(0.6, 1.4, (ranks, len(usual)))).astype(np.int64)
        ends = now + np.cumsum(took + dice.integers(0, 3_000_000, took.shape), axis=1)
        trace = f"{step:032x}"
        for rank in range(ranks):
            for name, end, duration in zip(_PHASES, ends[rank].tolist(), took[rank].tolist(), strict=True):
                number += 1
                own = {semconv.RANK: rank, semconv.LOOP_ITERATION: step, semconv.PHASE: name}
                writer.add(Span(name, trace, f"{number:016x}", "", end - duration, end, {**own}))
        now = int(ends.max()) + 1_000_000
        if step % 200 == 0:
            writer.save()
    writer.save(seals=True)
    return directory


def _frames(browser: Browser, page: Path, rows: int, width: int) -> list[Cell]:
    with browser.new_context(viewport={"width": width, "height": 900}) as context:
        opened = context.new_page()
        opened.goto(page.as_uri())
        opened.locator("html[data-ready]").wait_for(state="attached")
        read = opened.evaluate("Number(document.documentElement.dataset.ready)")
        opened.evaluate(_START)
        browser_says = context.new_cdp_session(opened)
        browser_says.send("Performance.enable", {"timeDomain": "threadTicks"})
        times = []
        for _ in range(_PLACES):
            opened.evaluate("zoom()")
            before = _script_seconds(browser_says)
            opened.evaluate("rounds => frames_of(rounds)", _ROUNDS)
            times.append(1e3 * (_script_seconds(browser_says) - before) / _ROUNDS)
    return [f"{rows}", width, read, *(float(np.quantile(times, share)) for share in (0.5, 0.95, 1))]


def _script_seconds(session: CDPSession) -> float:
    """Return the CPU time of scripts, which other programs on the machine hardly change."""
    found = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in found if one["name"] == "ScriptDuration"))
