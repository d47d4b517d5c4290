"""Run directories that processes of an earlier version recorded can be read, and what is left in them is delivered.

`python -m tests.look.checked_in_runs` records them again.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import otel_rl
from otel_rl.recorder.archive.autopsies import read_autopsies
from otel_rl.recorder.directory import parts
from otel_rl.recorder.directory.parts import Pointer
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Logged, Record
from tests.look.checked_in_runs import DATA, KEPT_ZEROS
from tests.processes import rows_of, run_python

SEGMENT_BYTES = 4 << 20
"""The size of a segment that nobody has closed; only the used bytes are checked in."""
_CLI = [sys.executable, "-m", "otel_rl.cli"]
_SILENT = "no end was recorded, and the agent has written nothing for"
KINDS = {
    "finished": ("finished", ""),
    "crashed": ("lost", "rank 0 was killed or disappeared"),
    "resumed": ("finished", ""),
    "failed": ("failed", "rank 0 failed with ValueError: no prompt"),
    "live": ("lost", _SILENT),
    "killed": ("lost", _SILENT),
    "head/node1": ("finished", ""),
    "unsent/run": ("finished", ""),
    "without-archive": ("lost", "no end was recorded"),
    "hung": ("lost", "rank 1 was killed or disappeared, then 1 other"),
    "thinned": ("finished", ""),
}
"""The runs, with their state and the beginning of its reason."""


def copied(kind: str, directory: Path) -> Path:
    """Copy a directory, with the modes and the sizes that its files had: git does not keep them."""
    place = directory / "recorded" / kind
    shutil.copytree(DATA / kind, place)
    for path in (place, *place.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
        if path.suffix == ".seg" and path.read_bytes().endswith(bytes(KEPT_ZEROS)):
            os.truncate(path, SEGMENT_BYTES)
    return place


def lines(result: Any, *names: str) -> list[tuple[Any, ...]]:
    """Return some columns of a result."""
    return [tuple(line[name] for name in names) for line in result.to_arrow().to_pylist()]


def losses(run: Path, **options: Any) -> list[tuple[Any, ...]]:
    """Return the attempt, the step and the value of each loss in the archive."""
    return lines(otel_rl.open_run(run, **options).rows("loss"), "attempt", "step", "value")


def delivered(run: Path, name: str = "loss") -> list[tuple[Any, ...]]:
    """Return the attempt, the step and a value of each row in `rows.jsonl`."""
    return [(row["attempt"], row["step"], row["values"][name]) for row in rows_of(run)]  # type: ignore[index]


def processes(run: Path) -> list[tuple[Any, ...]]:
    """Return how each process of each attempt has ended."""
    return lines(otel_rl.open_run(run).attempts, "attempt", "role", "rank", "outcome", "error")


def phases(run: Path) -> list[tuple[Any, ...]]:
    """Return the step, the rank, the name and the error of each phase."""
    query = "SELECT step, rank, phase, error FROM spans WHERE phase IS NOT NULL ORDER BY ALL"
    return lines(otel_rl.open_run(run).sql(query), "step", "rank", "phase", "error")


def once(run: Path) -> tuple[int, str]:
    """Run `otel-rl agent RUN --once`; return its exit code, and what it said."""
    command = [*_CLI, "agent", str(run), "--once"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_damaged_or_missing(tmp_path: Path, kind: str) -> None:
    """All files of the archive are intact, and none is missing."""
    run = otel_rl.open_run(copied(kind, tmp_path))

    assert (run.damaged, run.holes) == ([], [])


def test_ls_lists_all_of_them(tmp_path: Path) -> None:
    """Each with its state, and the reason of it."""
    for kind in KINDS:
        copied(kind, tmp_path)
    listed = subprocess.run([*_CLI, "ls", str(tmp_path)], capture_output=True, text=True, check=True).stdout
    runs = {run["path"]: (run["state"], run["reason"]) for run in json.loads(listed)["runs"]}

    for kind, (state, reason) in KINDS.items():
        assert runs[str(tmp_path / "recorded" / kind)][0] == state
        assert runs[str(tmp_path / "recorded" / kind)][1].startswith(reason)
    assert len(runs) == len(KINDS)


def test_values_of_two_ranks(tmp_path: Path) -> None:
    """Exact, also one that is too large for a double, and one that is not a number."""
    run = otel_rl.open_run(copied("finished", tmp_path))
    found = lines(run.rows(["loss", "reward/sum", "reward/count", "tokens"]), "step", "name", "value", "exact")
    values = ("loss", 1.0, None), ("tokens", float(2**60), str(2**60 + 1)), ("reward/sum", 1.0, None)
    (kl,) = lines(run.rows("kl"), "step", "value")

    assert found[:4] == [(0, *one) for one in (*values, ("reward/count", 4.0, None))]
    assert [value for _, name, value, _ in found if name == "loss"] == [1.0, 0.5, 1 / 3, 0.25]
    assert [value for _, name, value, _ in found if name == "reward/sum"] == [1.0, 3.0, 5.0, 7.0]
    assert kl[0] == 3
    assert math.isnan(kl[1])


def test_rows_of_two_ranks(tmp_path: Path) -> None:
    """`rows.jsonl` has the values of the archive."""
    run = copied("finished", tmp_path)

    assert [value for *_, value in delivered(run)] == [value for *_, value in losses(run)]


def test_processes_and_parameters(tmp_path: Path) -> None:
    """Two ranks and a rollout worker have finished; parameters of two calls are joined."""
    run = otel_rl.open_run(place := copied("finished", tmp_path))

    assert [one[1:4] for one in processes(place)] == [
        ("", 0, "finished"),
        ("", 1, "finished"),
        ("rollout", 0, "finished"),
    ]
    assert run.parameters == {"lr": 1e-6, "total_steps": 4, "beta": 0.04}
    assert run.environment["launcher"] == "torchrun"
    assert len(run.measurements()) > 0


def test_phases_of_two_ranks(tmp_path: Path) -> None:
    """Two of each rank in each of four steps, and the parts of trajectories."""
    run = copied("finished", tmp_path)
    names = otel_rl.open_run(run).spans()["name"].tolist()

    assert phases(run) == [
        (step, rank, phase, None) for step in range(4) for rank in range(2) for phase in ("generate", "update_actor")
    ]
    assert [names.count(name) for name in ("rl.loop", "rl.trajectory", "rl.trajectory.tool")] == [4, 4, 4]


def test_trajectories(tmp_path: Path) -> None:
    """Three were trained on, and one was dropped."""
    run = otel_rl.open_run(copied("finished", tmp_path))
    found = lines(run.trajectories(), "step", "outcome", "reward", "group_id", "row", "tokens", "versions")

    assert found == [(n, "trained" if n < 3 else "stale", n / 4, f"g-{n}", str(n), 2, "[[0,2]]") for n in range(4)]


def test_messages(tmp_path: Path) -> None:
    """Texts, tokens, and log-probabilities of both sides."""
    run = otel_rl.open_run(copied("finished", tmp_path))
    texts = lines(run.messages(), "step", "role", "number", "author", "name", "text")
    tokens = lines(run.messages(1), "tokens", "logprobs", "trainer_logprobs", "mask", "pieces")

    assert texts == [
        (n, "rollout", number, author, name, text)
        for n in range(4)
        for number, (author, name, text) in enumerate(
            [("user", "", f"{n} + 2 = ?"), ("tool", "python", str(n + 2)), ("assistant", "", f"It is {n + 2}")]
        )
    ]
    assert tokens == [*[(None,) * 5] * 2, ([19, 1], [-0.25, -1.0], [-0.5, -1.5], [True, False], ["It is", " 3"])]


def test_tables_and_events(tmp_path: Path) -> None:
    """Completions, a table, a checkpoint, and the weights that an engine did not load."""
    run = otel_rl.open_run(copied("finished", tmp_path))
    tables = lines(run.sql("FROM texts ORDER BY step"), "step", "name", "cells")
    events = {name: json.loads(attributes) for name, attributes in lines(run.events(), "name", "attributes")}

    assert [table[:2] for table in tables] == [(1, "completions"), (2, "failures")]
    assert [[*cell[5:8]] for cell in json.loads(tables[0][2])] == [["2+2=", "4", 1.0], ["2+2=", "5", 0.0]]
    assert json.loads(tables[1][2]) == [["9+9=", "99"]]
    assert events["checkpoint"]["path"] == "ckpt/2"
    assert events["rl.policy.diverged"]["rl.weights.held_version"] == 0


def test_a_trainer_that_was_killed(tmp_path: Path) -> None:
    """The step in which it died is there, and the phase that was open."""
    run = copied("crashed", tmp_path)
    (event,) = lines(otel_rl.open_run(run).events(), "name", "attributes")

    assert losses(run) == [(0, n, float(n)) for n in range(4)]
    assert processes(run) == [(0, "", 0, "lost", "lost (SIGKILL)")]
    assert [one[:3] for one in phases(run)] == [(n, 0, name) for n in range(4) for name in ("generate", "update_actor")]
    assert (event[0], json.loads(event[1])["rl.phase"]) == ("rl.process.lost", "update_actor")


def test_a_run_that_was_resumed(tmp_path: Path) -> None:
    """The valid history has the later attempt from its first step on; all attempts are there too."""
    run = copied("resumed", tmp_path)
    first, second = [(0, n, float(n)) for n in range(4)], [(1, n, n + 0.5) for n in range(2, 6)]

    assert losses(run) == first[:2] + second
    assert sorted(losses(run, attempts="all")) == first + second
    assert [one[3] for one in processes(run)] == ["lost", "finished"]
    assert delivered(run) == first + second


def test_a_run_that_failed(tmp_path: Path) -> None:
    """The exception is the error of the process and of the phase."""
    run = copied("failed", tmp_path)

    assert losses(run) == [(0, n, float(n)) for n in range(3)]
    assert processes(run) == [(0, "", 0, "failed", "ValueError: no prompt")]
    assert phases(run) == [
        (0, 0, "generate", None),
        (1, 0, "generate", None),
        (2, 0, "generate", "ValueError: no prompt"),
    ]


@pytest.mark.parametrize(("kind", "rows"), [("live", 6), ("killed", 3)])
def test_young_files(tmp_path: Path, kind: str, rows: int) -> None:
    """The archive of a run that goes on has two steps; `rows.jsonl` has what the agent has delivered."""
    run = copied(kind, tmp_path)

    assert not [*run.glob("archive/*/*.parquet"), *run.glob("archive/*/rows/*.parquet")]
    assert losses(run) == [(0, 0, 0.0), (0, 1, 1.0)]
    assert lines(otel_rl.open_run(run).messages(), "step", "text") == [(0, "answer 0"), (1, "answer 1")]
    assert delivered(run) == [(0, n, float(n)) for n in range(rows)]


@pytest.mark.parametrize("kind", ["live", "killed"])
def test_what_the_journals_have_is_delivered(tmp_path: Path, kind: str) -> None:
    """A new agent brings each value that the trainer logged into `rows.jsonl`, and into the archive."""
    run = copied(kind, tmp_path)
    (journal,) = run.glob("local/*/journals/*")
    records: list[Record] = Reader(journal, AnyRecord).read()  # type: ignore[arg-type]
    logged = [(0, one.step, one.values["loss"]) for one in records if isinstance(one, Logged)]
    said = once(run)

    assert logged == [(0, n, float(n)) for n in range(7)]
    assert said == (0, "")
    assert delivered(run) == logged
    assert losses(run) == logged
    assert [text for (text,) in lines(otel_rl.open_run(run).messages(), "text")] == [f"answer {n}" for n in range(6)]


@pytest.mark.parametrize("kind", ["finished", "resumed"])
def test_what_was_delivered_is_not_delivered_again(tmp_path: Path, kind: str) -> None:
    """A new agent continues at the cursors of the old one."""
    run = copied(kind, tmp_path)
    before = (run / "rows.jsonl").read_bytes(), losses(run, attempts="all")
    said = once(run)

    assert said == (0, "")
    assert ((run / "rows.jsonl").read_bytes(), losses(run, attempts="all")) == before


def test_another_attempt(tmp_path: Path) -> None:
    """A trainer of this version resumes the run, as its third attempt."""
    run = copied("resumed", tmp_path)
    begin = (
        f"otel_rl.init(dir={str(tmp_path)!r}, project='recorded', id='resumed', exporters=['jsonl'], hardware=False)"
    )
    script = (
        f"import otel_rl\nrun = {begin}\nprint(run.attempt)\nrun.log({{'loss': 9.0}}, step=5)\nassert run.finish(60)"
    )
    said = run_python(script, tmp_path, OTEL_RL_QUIET="true")

    assert said.strip() == "2"
    assert losses(run) == [(0, 0, 0.0), (0, 1, 1.0), *((1, n, n + 0.5) for n in range(2, 5)), (2, 5, 9.0)]


def test_a_run_with_a_head(tmp_path: Path) -> None:
    """The head has the values of both machines, and the machine that sends has none."""
    run, other = copied("head/node1", tmp_path), copied("head/node2", tmp_path)

    assert delivered(run, "reward/sum") == [(0, n, 2 * n + 1) for n in range(4)]
    assert lines(otel_rl.open_run(run).attempts, "rank", "host") == [(0, "node1"), (1, "node2")]
    assert rows_of(other) == []


def test_what_a_machine_could_not_send(tmp_path: Path) -> None:
    """The machine of the head delivers it, with what is in its own directory."""
    run, place = copied("unsent/run", tmp_path), copied("unsent/node1", tmp_path)
    pointer = Pointer(place=str(place), machine=parts.this_machine())  # this machine plays that of the head
    (run / "local" / "node1").write_bytes(msgspec.json.encode(pointer))
    before = rows_of(run)
    said = once(run)

    assert before == []
    assert said == (0, "")
    assert delivered(run, "reward/sum") == [(0, n, 2 * n + 1) for n in range(4)]


def test_a_run_without_an_archive(tmp_path: Path) -> None:
    """It is read from `rows.jsonl` and `machine.jsonl`."""
    run = copied("without-archive", tmp_path)

    assert losses(run) == [(0, n, float(n)) for n in range(4)]
    assert len(otel_rl.open_run(run).measurements()) > 0


def test_the_autopsy_of_a_run_that_hung(tmp_path: Path) -> None:
    """It names the rank that was stopped."""
    run = copied("hung", tmp_path)
    found = next(one for one in read_autopsies(run) if one.verdict.names_cause)

    assert (found.cause, found.hosts, found.verdict.kind, found.verdict.sure) == (
        "hangs",
        ("node1",),
        "stopped",
        "certain",
    )
    assert found.verdict.who == ("rank 1",)
    assert [group.who for group in found.groups] == [("rank 1",), ("rank 0",)]
    assert [one[:3] for one in phases(run)[-2:]] == [(3, 0, "update_actor"), (3, 1, "update_actor")]


def test_a_thinned_archive(tmp_path: Path) -> None:
    """All rows and trajectories are there, and steps; of other spans and of messages, only a part."""
    run = otel_rl.open_run(place := copied("thinned", tmp_path))
    names = run.spans()["name"].tolist()

    assert losses(place) == [(0, n, float(n)) for n in range(40)]
    assert len(run.trajectories()) == names.count("rl.loop") == 40
    assert 32 <= names.count("rl.sample") < 200
    assert 0 < len(run.messages()) < 40
