"""Names in rows: everything that was logged is there, whatever the names are."""

from __future__ import annotations

from array import array

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_rl.export import Ended, Item, Row, Table, values_of
from otel_rl.recorder.agent.steps.state import State
from otel_rl.recorder.agent.steps.trackers import TrackerRows
from otel_rl.recorder.journal.records import Logged, Observed, Record, StepStarted, Tabled
from otel_rl.recorder.settings.settings import Rows
from tests.recorder.agent.reducing import S, feed, reducing, row_of, rows, started, step

NAMES = ("x", "x_", "x/mean", "x/mean_", "x_/mean", "x@sum", "x@max", "x/nonfinite", "x:last")
logging = st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), max_size=6, unique=True)


def observed(n: int, name: str, *values: float) -> Record:
    return Observed(n, 1, {name: array("d", values).tobytes()})


@settings(max_examples=40)
@given(st.lists(logging, min_size=1, max_size=4))
def test_nothing_is_overwritten(steps: list[list[tuple[str, bool]]]) -> None:
    """Each value, and the mean of each list, is in the row of its step, under one name in all rows."""
    reducer = reducing({"x*": "mean"})
    feed(reducer, "a", started())
    names: dict[tuple[str, bool], str] = {}
    for n, logged in enumerate([*steps, *steps]):
        values = {source: float(place + 1) for place, source in enumerate(logged)}
        records = [
            observed(n, name, value) if is_list else Logged(n, 1, {name: value})
            for (name, is_list), value in values.items()
        ]
        feed(reducer, "a", *step(n, 2 * n * S, *records))
        (row,) = rows(feed(reducer, "a", StepStarted(n + 1, 2 * n * S + S, b"")))
        found = {value: name for name, value in row.values.items() if not name.startswith(("time/", "perf/"))}
        for source, value in values.items():
            assert names.setdefault(source, found[value]) == found[value]
    assert len({*names.values()}) == len(names)


def test_the_next_agent_keeps_the_names() -> None:
    """Also before it has met the value that had the name first, and for a value that is called like the new name."""
    state = State()
    first = row_of(reducing({}, state), [[Logged(0, 1, {"x/mean": 1.0}), observed(0, "x", 2.0)]])
    saved = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=State)
    reducer = reducing({}, saved)
    records = [Logged(1, 1, {"x_/mean": 3.0}), observed(1, "x", 2.0)]
    (row,) = rows(feed(reducer, "rank0", *records, StepStarted(2, 9 * S, b"")))

    assert (first["x_/mean"], row.values["x_/mean"], row.values["x_/mean_"]) == (2.0, 2.0, 3.0)


def test_statistics_beside_scalars_of_their_names() -> None:
    """The names that the trainer logged stay; the list has another one, and so have tags of a name that is taken."""
    scalars = {"x/mean": 100.0, "x/max": 7.0, "w": 3.0, "w@sum": 1.0, "w@max": 2.0}
    row = row_of(reducing(), [[Logged(0, 1, scalars), observed(0, "x", 1.0, 3.0)]])

    assert {name: row[name] for name in scalars} == scalars
    assert (row["x_/mean"], row["x_/max"], row["x_/count"]) == (2.0, 3.0, 2)


def test_over_a_window() -> None:
    """A list and a scalar that are never logged in the same step are two values of a row over several steps."""
    reducer, state = reducing(), State()
    feed(reducer, "a", started())
    trackers = TrackerRows(Rows(every=10), reducer._closed._reductions)
    items: list[Item] = []
    for n, record in enumerate((observed(0, "x", 5.0), Logged(1, 1, {"x/mean": 9.0}), Logged(2, 1, {"y": 0.0}))):
        made = reducer.feed([("a", one) for one in step(n, 2 * n * S, record)])
        items += trackers.of(made.items, state, made.observed)
    items += trackers.of([Ended(1, 0, "finished")], state)
    values = {name: value for row in rows(items) for name, value in row.values.items()}

    assert (values["x/mean"], values["x/mean_"]) == (5.0, 9.0)


def test_a_table_with_the_name_of_a_value() -> None:
    """SwanLab and TensorBoard keep both in one place, so the later one has another name."""
    reducer = reducing()
    feed(reducer, "a", started())
    records = [Logged(0, 1, {"samples": 1.0}), Tabled(0, 1, "samples", ["a"], [(1,)])]
    items = feed(reducer, "a", *step(0, 0, *records), StepStarted(1, 2 * S, b""))

    assert [item.name for item in items if isinstance(item, Table)] == ["samples_"]


@given(
    st.dictionaries(
        st.sampled_from([f"{n}{more}" for n in ("rl/attempt", "rl/part", "y") for more in ("", "_", "__")]),
        st.integers(),
    )
)
def test_names_that_distinguish_rows(values: dict[str, int]) -> None:
    """Values with the names of attempt and part are renamed, and no other value is replaced."""
    found = values_of(Row(0, 0, values, attempt=1, part=2))

    assert (found["rl/attempt"], found["rl/part"]) == (1, 2)
    assert sorted(found.values()) == sorted([*values.values(), 1, 2])


def test_each_clash_is_counted_and_named_once(caplog) -> None:
    """However many steps have it."""
    reducer = reducing()
    feed(reducer, "a", started())
    for n in range(5):
        feed(reducer, "a", *step(n, 2 * n * S, Logged(n, 1, {"x/mean": 1.0}), observed(n, "x", 2.0)))

    assert reducer.names.count == 1
    assert [record.getMessage() for record in caplog.records] == [
        "metric name collision: x/mean exists already; x (observations) is called x_/mean"
    ]
