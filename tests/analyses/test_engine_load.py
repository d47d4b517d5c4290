"""The load of inference servers, as columns of rows."""

from __future__ import annotations

import math
from pathlib import Path

import otel_rl
from otel_rl import semconv
from otel_rl.analyses.engines import EngineLoad
from otel_rl.cli.late import plain
from otel_rl.recorder.agent.input.engine_pages import Load
from otel_rl.semconv.vocabulary import Vocabulary
from tests.collector import wait_for
from tests.recorder.agent.hardware.engine_pages import Vllm, serving
from tests.recorder.agent.reducing import S, feed, logged, reducing, rows, started, step

USAGE, PREEMPTIONS = semconv.METRIC_ENGINE_KV_CACHE_UTILIZATION, semconv.METRIC_ENGINE_PREEMPTIONS


def hear(load: EngineLoad, time: int, quantity: str, *values: float) -> None:
    """Give it a value of each engine of one server."""
    load.hear(time, [Load(quantity, "s", f"s/{n}", value) for n, value in enumerate(values)])


def test_mean_and_maximum() -> None:
    """Over the measurements in the step and over the engines; those outside of it count in no step."""
    load = EngineLoad()
    for time, values in ((1, (0.9, 0.9)), (2, (0.0, 0.25)), (3, (0.25, 0.5)), (5, (1.0, 1.0))):
        hear(load, time, USAGE, *values)
    found = load.during(2, 4)

    assert found == {"engine/kv_cache_utilization/mean": 0.25, "engine/kv_cache_utilization/max": 0.5}
    assert load.during(4, 6)["engine/kv_cache_utilization/mean"] == 1
    assert load.during(0, 9) == {}


def test_counters_count_by_how_much_they_rose() -> None:
    """Since the measurement before, over all engines; a server that restarted begins at 0."""
    load = EngineLoad()
    for time, values in ((1, (10, 20)), (2, (12, 20)), (3, (1, 25))):
        hear(load, time, PREEMPTIONS, *values)

    assert load.during(1, 2) == {"engine/preemptions": 2}
    assert load.during(3, 3) == {"engine/preemptions": 6}


def test_a_series_that_appears_later_began_at_zero() -> None:
    """SGLang has no series of retractions before the first one."""
    load = EngineLoad()
    hear(load, 1, USAGE, 0.5)
    hear(load, 2, PREEMPTIONS, 4)

    assert load.during(2, 2) == {"engine/preemptions": 4}


def test_the_hit_rate_is_that_of_the_step() -> None:
    """Without look-ups there is none."""
    load = EngineLoad()
    for time, queries, hits in ((1, 1000, 900), (2, 1100, 925), (3, 1100, 925)):
        hear(load, time, "prefix_queries", queries)
        hear(load, time, "prefix_hits", hits)

    assert load.during(2, 2) == {"engine/prefix_cache_hit_rate": 0.25}
    assert load.during(3, 3) == {}


def test_values_that_are_not_finite_are_left_out() -> None:
    """A gauge that was never set may be NaN."""
    load = EngineLoad()
    hear(load, 1, USAGE, math.nan, 0.5)

    assert load.during(0, 1)["engine/kv_cache_utilization/mean"] == 0.5


def test_the_columns_have_a_metric_of_the_registry() -> None:
    """Each one in its unit; mean and maximum are one metric with a statistic."""
    readings = [
        Vocabulary("auto").read(f"engine/{name}")
        for name in ("requests_running/max", "requests_waiting/mean", "preemptions", "prefix_cache_hit_rate")
    ]

    assert [reading and (reading.metric, reading.attributes, reading.factor) for reading in readings] == [
        ("rl.engine.requests.running", (("rl.statistic", "max"),), 1),
        ("rl.engine.requests.waiting", (("rl.statistic", "mean"),), 1),
        ("rl.engine.preemptions", (), 1),
        ("rl.engine.prefix_cache.hit.fraction", (), 1),
    ]


def test_a_value_of_the_trainer_wins() -> None:
    """As for everything that otel-rl measures."""
    reducer = reducing()
    hear(reducer.analyses.by_name["engines"].load, S, PREEMPTIONS, 0)
    hear(reducer.analyses.by_name["engines"].load, S + 1, PREEMPTIONS, 5)
    hear(reducer.analyses.by_name["engines"].load, S + 2, USAGE, 0.5)
    feed(reducer, "a", started(), *step(0, S, logged(engine__preemptions=7)))
    items = feed(reducer, "a", *step(1, 3 * S))
    values = rows(items)[0].values

    assert values["engine/preemptions"] == 7
    assert values["engine/kv_cache_utilization/max"] == 0.5


def test_rows_of_a_run_have_them(tmp_path: Path) -> None:
    """A real endpoint, a real agent: the columns are in the row of the step in which they were measured."""
    server, reads = Vllm(), list[int]()
    (engine,) = server.engines
    server.usage.labels(*engine).set_function(lambda: reads.append(1) or 0.25)  # type: ignore[func-returns-value]
    hardware = {"enabled": False, "interval": 0.05}

    def wait_for_two_reads() -> None:  # the agent has heard the first one when it begins the second
        seen = len(reads)
        wait_for(lambda: len(reads) > seen + 2, "the agent does not read the server", 60)

    with serving(server.registry) as url:
        run = otel_rl.init(dir=tmp_path, exporters=["jsonl"], quiet=True, hardware=hardware | {"engines": [url]})
        wait_for_two_reads()
        with run.step(0):
            run.log({"loss": 1.0})
            server.running.labels(*engine).set(3)
            server.preemptions.labels(*engine).inc(2)
            server.queries.labels(*engine).inc(100)
            server.hits.labels(*engine).inc(25)
            wait_for_two_reads()
        assert run.finish(60)
    (row,) = plain.rows(run.dir)

    assert {name: value for name, value in row.values.items() if name.startswith("engine/")} == {
        "engine/kv_cache_utilization/mean": 0.25,
        "engine/kv_cache_utilization/max": 0.25,
        "engine/requests_running/mean": row.values["engine/requests_running/mean"],
        "engine/requests_running/max": 3,
        "engine/requests_waiting/mean": 0,
        "engine/requests_waiting/max": 0,
        "engine/preemptions": 2,
        "engine/prefix_cache_hit_rate": 0.25,
    }
    assert 0 < row.values["engine/requests_running/mean"] <= 3
