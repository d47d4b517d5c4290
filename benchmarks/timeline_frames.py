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
from otel_rl.archive.writer import Writer
from otel_rl.export import Process, Span
from otel_rl.view.page.timeline import timeline_of
from tests.view.timeline.page import chromium, written

if TYPE_CHECKING:
    from playwright.sync_api import Browser

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
_ZOOM = """async ([places, rounds]) => {
  const stage = document.querySelector(".timeline-stage");
  const canvas = document.querySelector(".timeline-canvas");
  const context = canvas.getContext("2d");
  const ask = window.requestAnimationFrame.bind(window);
  let took = 0;
  window.requestAnimationFrame = (draw) => ask((at) => {
    const began = performance.now();
    draw(at);
    context.getImageData(0, 0, 1, 1); // waits until the pixels are there
    took = performance.now() - began;
  });
  const frame = async (act) => {
    act();
    await new Promise((resume) => ask(() => setTimeout(resume)));
    return took;
  };
  stage.focus();
  const box = canvas.getBoundingClientRect();
  const place = { clientX: box.left + box.width * 0.6, clientY: box.top + 100 };
  const best = [];
  for (let n = 0; n < places; n++) {
    let least = Infinity;
    await frame(() => canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -120, ...place, cancelable: true })));
    for (let k = 0; k < rounds; k++) {
      least = Math.min(least, await frame(() => stage.dispatchEvent(new Event("focus"))));
    }
    best.push(least);
  }
  return best;
}"""
"""Zooms in step by step, and draws each place several times: the quickest is the least disturbed."""


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
            "Drawn, zooming from the whole run to a millionth of it",
            ["rows", "width, px", "read, ms", "p50, ms", "p95, ms", "worst, ms"],
            drawn,
            f"{_PLACES} zooms, the best of {_ROUNDS} frames each. No GPU. 60 frames a second leave 16.7 ms for one.",
        ),
    ]


def _recorded(directory: Path, ranks: int, spans: int) -> Path:
    """Write an archive with phases of all ranks, and return the directory of the run."""
    directory.mkdir()
    (directory / "run.json").write_text(json.dumps({"id": "timeline", "project": "benchmark", "name": "timeline"}))
    writer, dice, origin = Writer(directory / "archive" / "node1", 1 << 60), np.random.default_rng(0), 10**18
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
        opened.wait_for_timeout(500)
        times = opened.evaluate(_ZOOM, [_PLACES, _ROUNDS])
    return [f"{rows}", width, read, *(float(np.quantile(times, share)) for share in (0.5, 0.95, 1))]
