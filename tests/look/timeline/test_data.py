"""The data of the timeline: it has what was recorded, in lanes without overlaps."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import otel_rl
from otel_rl.look.page.timeline import timeline_of
from otel_rl.look.page.timeline_lanes import lanes_of, slots_of
from otel_rl.recorder.archive.now import Now, PhaseNow, ProcessNow
from tests.look.timeline import made

TICK = 10_000


def columns_of(encoded: dict[str, Any], count: int) -> dict[str, np.ndarray]:
    """Return the columns as the page reads them."""
    raw = gzip.decompress(b"".join(map(base64.b64decode, encoded["pieces"])))
    assert len(raw) == encoded["bytes"]
    columns, at = {}, 0
    for column in encoded["columns"]:
        data = np.frombuffer(raw[at : at + column["bytes"] * count], np.uint8)
        at += len(data)
        if column["bytes"] == 4:
            data = np.ascontiguousarray(data.reshape(4, count).T).view("<u4").ravel().astype(np.int64)
            for place, high in column["high"]:
                data[place] += high << 32
        columns[column["name"]] = data
    return columns


def spans_in(data: dict[str, Any]) -> list[tuple[str, str, int | None, str, int, int, int, bool]]:
    """Return the spans: machine, role, rank, name, start and end in ticks, step, and whether it failed."""
    columns = columns_of(data["spans"], data["count"])
    step = np.cumsum((columns["step"] >> 1) ^ -(columns["step"] & 1)) - 1
    spans, at = [], 0
    for track in data["tracks"]:
        for _, _, count in track["lanes"]:
            own = slice(at, at + count)
            at += count
            start = np.cumsum(columns["start"][own])
            end = start + columns["duration"][own]
            assert (start[1:] >= end[:-1]).all()
            for n, name in enumerate(columns["name"][own].tolist()):
                who = track["machine"], track["role"], track["rank"], data["names"][name][0]
                place = own.start + n
                spans.append((*who, int(start[n]), int(end[n]), int(step[place]), bool(columns["marks"][place] & 1)))
    assert at == data["count"]
    return spans


def test_all_spans_are_there(tmp_path: Path) -> None:
    """Each phase of each rank is there once, with its machine, name, step and times."""
    run = otel_rl.open_run(made.straggler(tmp_path / "run"))
    recorded = run.sql("SELECT * FROM spans WHERE name <> 'rl.loop'")
    expected = []
    for number in range(len(recorded)):
        phase, name, rank = (recorded[column][number] for column in ("phase", "name", "rank"))
        label = f"{phase}.{name.rsplit('.', 1)[1]}" if name.count(".") == 2 else phase
        start = int(recorded["start_unix_nano"][number]) - made.ORIGIN
        end = start + int(recorded["duration_ns"][number])
        failed = recorded["error"][number] is not None
        step = int(recorded["step"][number])
        expected.append((f"node{rank + 1}", "", int(rank), label, start // TICK, end // TICK, step, failed))

    spans = spans_in(timeline_of(run))

    assert sorted(spans) == sorted(expected)


def test_it_is_json_of_five_bytes_a_span(tmp_path: Path) -> None:
    """The text of a span takes less than 12 bytes also in a small run."""
    data = timeline_of(otel_rl.open_run(made.straggler(tmp_path / "run", steps=300)))

    assert len(json.dumps(data["spans"])) < 12 * data["count"]


def test_steps_and_errors_are_there(tmp_path: Path) -> None:
    """The ruler has all steps with their times, and a failed span has its message."""
    data = timeline_of(otel_rl.open_run(made.straggler(tmp_path / "run")))
    steps = columns_of(data["steps"], data["step_count"])
    details = data["details"]

    numbers = np.cumsum((steps["step"] >> 1) ^ -(steps["step"] & 1)).tolist()
    messages = [details["texts"][error] for _, error, _ in details["spans"] if error]

    assert numbers == list(range(60))
    assert steps["start"][0] == 8_000_000_000 // TICK
    assert messages == ["Timeout: the verifier did not answer"] * 3


def test_rows_are_in_the_order_of_machines_roles_and_ranks(tmp_path: Path) -> None:
    """Machines are in natural order; trainers come before rollout workers, and other programs last."""
    many = made.Made(tmp_path / "many", ranks_of_host=1)
    for rank in (11, 2, 1):
        many.process(rank, 0)
        many.span("train", 1, 1, rank, 0)
    workers = timeline_of(otel_rl.open_run(made.with_workers(tmp_path / "workers")))

    machines = [track["machine"] for track in timeline_of(otel_rl.open_run(many.close()))["tracks"]]
    tracks = [(track["kind"], track["role"], track["rank"]) for track in workers["tracks"]]

    assert machines == ["node2", "node3", "node12"]
    assert tracks[:4] == [
        ("process", "", 0),
        ("process", "", 1),
        ("trajectories", "rollout", 0),
        ("trajectories", "rollout", 1),
    ]
    assert tracks[4:] == [("program", "vllm", None)]


def test_trajectories_at_the_same_time_have_slots_with_their_parts_below(tmp_path: Path) -> None:
    """Six trajectories at once are six slots; model and tool calls are one level deeper, tools by name."""
    data = timeline_of(otel_rl.open_run(made.with_workers(tmp_path / "run", workers=1)))
    (track,) = (track for track in data["tracks"] if track["kind"] == "trajectories")

    assert {(slot, level) for slot, level, _ in track["lanes"]} == {
        (slot, level) for slot in range(6) for level in (0, 1)
    }
    assert ["tool: search", "reward"] in [list(name) for name in data["names"]]
    assert track["hidden"] == 0


def test_a_resumed_run_shows_its_attempts(tmp_path: Path) -> None:
    """The start of each attempt is marked; repeated steps are there once."""
    data = timeline_of(otel_rl.open_run(made.resumed(tmp_path / "run")))

    steps = columns_of(data["steps"], data["step_count"])["step"]
    numbers = np.cumsum((steps >> 1) ^ -(steps & 1)).tolist()

    assert [attempt for attempt, _ in data["attempts"]] == [0, 1]
    assert data["attempts"][1][1] > 700_000_000_000 // TICK
    assert numbers == list(range(70))


def test_very_many_spans_are_thinned_honestly(tmp_path: Path) -> None:
    """Of too many spans, those that failed and the longest ones stay, and the data says how many there were."""
    run = made.Made(tmp_path / "run")
    run.process(0, 0)
    for n in range(4000):
        long = 0.5 if n == 1234 else 0.001 + n % 7 / 10_000
        run.span("generate", n, long, 0, n, error="lost" if n == 3210 else None)
    reader = otel_rl.open_run(run.close())

    data = timeline_of(reader, most_spans=400)
    spans = spans_in(data)

    assert data["thinned"]["recorded"] == 4000
    assert data["thinned"]["kept"] == data["count"] <= 400
    assert max(end - start for *_, start, end, _, _ in spans) == 500_000_000 // TICK
    assert [step for *_, step, failed in spans if failed] == [3210]
    in_each = {start * TICK // 10**10 for *_, start, _, _, _ in spans}
    assert len(in_each) > 100  # no part of the run is empty


def test_an_empty_run_has_an_empty_timeline(tmp_path: Path) -> None:
    """A run without spans has no rows."""
    run = made.Made(tmp_path / "run")
    run.process(0, 0)

    data = timeline_of(otel_rl.open_run(run.close()))

    assert (data["count"], data["tracks"], data["step_count"]) == (0, [], 0)


def test_weeks_fit(tmp_path: Path) -> None:
    """Times and durations that need more than 32 bits are exact."""
    run = made.Made(tmp_path / "run")
    run.process(0, 0)
    run.span("train", 1, 2_000_000, 0, 1 << 33)
    run.span("train", 9_000_000, 1, 0, 0)

    spans = spans_in(timeline_of(otel_rl.open_run(run.close())))

    assert [span[4:7] for span in spans] == [(10**5, 200_000_100_000, 1 << 33), (900_000_000_000, 900_000_100_000, 0)]


TIMES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, 4)), max_size=40)


@given(TIMES)
def test_lanes_never_overlap_and_lose_nothing(times: list[tuple[int, int, int]]) -> None:
    """In a lane, spans follow each other; each span is in one lane, or is counted as left out."""
    start = np.array([begun for begun, _, _ in times], np.int64)
    end = start + np.array([ended for _, ended, _ in times], np.int64)
    group = np.array([number for *_, number in times], np.int64)
    numbers = np.lexsort((start - end, start))

    for lanes, hidden in (lanes_of(start, end, numbers), slots_of(start, end, numbers, group[numbers])):
        every = [number for lane in lanes for number in lane.spans.tolist()]
        assert len(set(every)) == len(every) == len(times) - hidden
        for lane in lanes:
            assert (start[lane.spans][1:] >= end[lane.spans][:-1]).all()


def test_phases_that_are_open_are_there_until_they_were_last_seen(tmp_path: Path) -> None:
    """A run that hangs ends with the phase that it hangs in, its part, and its step."""
    run = made.Made(tmp_path / "run")
    run.process(0, 0)
    run.span("generate", 1, 2, 0, 0, name="rl.sample")
    run.step(0, 1, 2)
    path = run.close()
    phases = (
        PhaseNow("update_actor", made.ORIGIN + 4 * 10**9),
        PhaseNow("update_actor", made.ORIGIN + 5 * 10**9, "execute"),
    )
    who = {"attempt": 0, "role": "", "host": "node1", "pid": 1, "outcome": None}
    hangs = ProcessNow(
        **who, rank=0, step=1, step_started_unix_nano=made.ORIGIN + 4 * 10**9, phases=phases, last_unix_nano=0
    )
    now = Now(
        time_unix_nano=made.ORIGIN + 100 * 10**9,
        id="made",
        project="made",
        name="run",
        pid=2,
        state="ready",
        exporters=[],
        processes=[hangs],
    )
    (path / "archive" / "local" / "now.json").write_bytes(msgspec.json.encode(now))

    data = timeline_of(otel_rl.open_run(path))
    lanes = {
        (name, start * TICK // 10**9, end * TICK // 10**9, step) for *_, name, start, end, step, _ in spans_in(data)
    }

    assert lanes == {("generate", 1, 3, 0), ("update_actor", 4, 100, 1), ("update_actor.execute", 5, 100, 1)}
    assert columns_of(data["spans"], 3)["marks"].tolist() == [0, 2, 2]
    assert data["step_count"] == 2


def test_inner_phases_of_a_thinned_run_stay_inner(tmp_path: Path) -> None:
    """A part whose phase was left out is not drawn as a phase, and the shares count all spans."""
    run = made.Made(tmp_path / "run")
    run.process(0, 0)
    for n in range(2000):
        run.span("generate", n, 0.8 + n % 5 / 100, 0, n, name="rl.sample")
        run.span("generate", n + 0.1, 0.2 + n % 3 / 10, 0, n, name="rl.sample.execute")

    data = timeline_of(otel_rl.open_run(run.close()), most_spans=400)
    spans = spans_in(data)
    outer, inner = data["tracks"][0]["lanes"]
    columns = columns_of(data["spans"], data["count"])

    assert {name for *_, name, _, _, _, _ in spans[: outer[2]]} == {"generate"}
    assert {name for *_, name, _, _, _, _ in spans[outer[2] :]} == {"generate.execute"}
    assert (outer[1], inner[1], data["tracks"][0]["hidden"]) == (0, 1, 0)
    seconds = (columns["duration"] + columns["more"])[: outer[2]].sum() * TICK / 1e9
    assert abs(seconds - 0.82 * 2000) < 1
