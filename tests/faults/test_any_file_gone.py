"""Any one file of a run directory is removed, at any time: nothing raises, and what `finish` says is true.

Rows are read back from files outside of the run directory. A result is true if it says that everything was delivered
and each row is there once, or that something is missing and a loss was counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

import otel_rl
from otel_rl.cli.late.once import LateDelivery
from otel_rl.export import Row
from otel_rl.recorder.agent.process import StartError
from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.tables import KINDS
from otel_rl.recorder.archive.writer import read
from otel_rl.recorder.directory import agent_start
from otel_rl.recorder.directory import directory as directories
from otel_rl.recorder.journal.claim import Noted, mark_delivered
from tests.collector import wait_for
from tests.processes import local_of, remove

pytestmark = pytest.mark.slow
ATTEMPTS = ("attempts", "attempts/attempt0", "attempts/attempt0.HOST", "attempts/rank0.attempt0")
ARCHIVE = ("archive", "archive/HOST", "archive/HOST/now.json")
RUN = ("agent.log", *ARCHIVE, *ATTEMPTS, "local", "run.json")
PART = (
    "agent.json",
    "cursors",
    "cursors/archive.json",
    "cursors/jsonl.json",
    "cursors/tensorboard.json",
    "journals",
    "journals/rank0.attempt0",
    "journals/rank0.attempt0/00000001.seg",
    "journals/rank0.attempt0/owner.json",
    "journals/rank0.attempt0/questions",
    "machine.json",
    "outbox",
    "outbox/00000001.seg",
    "outbox/id",
)
FILES = (*RUN, "local/HOST", *(f"local/HOST/{name}" for name in PART))
"""Everything that there is in a run directory while a run goes on."""
TABLES = tuple(f"archive/HOST/{name}" for name in ("attempts", "ends", "environment", "rows", "spans", "steps"))
AFTER = (*FILES, *TABLES, "archive/HOST/written.json", "run.end.json")
"""Everything that there is when its agent has ended."""
HALF, STEPS = 20, 40


def begin(tmp_path: Path, **given: object) -> otel_rl.Run:
    """Begin a run whose rows go to files outside of its directory."""
    out = tmp_path / "out"
    exporters = [
        {"jsonl": {"path": str(out / "rows.jsonl"), "machine_path": str(out / "machine.jsonl")}},
        {"tensorboard": {"log_dir": str(out / "tensorboard")}},
    ]
    out.mkdir(exist_ok=True)
    return otel_rl.init(  # type: ignore[arg-type]
        dir=tmp_path / "runs", project="p", id="r", quiet=True, hardware=False, exporters=exporters, **given
    )


def log(run: otel_rl.Run, steps: Iterable[int]) -> None:
    """Record some steps."""
    for n in steps:
        with run.step(n):
            run.log({"loss": float(n)})


def named(run_dir: Path) -> dict[str, Path]:
    """Return everything in a run directory, by its name in `FILES`; the tables of an archive only as a whole."""
    host = re.escape(local_of(run_dir).name)
    found = {}
    for path in run_dir.rglob("[!.]*"):  # a file is written under another name first
        name = re.sub(rf"^(archive/|local/|attempts/attempt0\.){host}", r"\1HOST", str(path.relative_to(run_dir)))
        found[re.sub(r"(attempt\d+)\.[0-9a-f]{16}", r"\1", name)] = path
    return {name: path for name, path in found.items() if path.suffix != ".parquet" and "/tail" not in name}


def remove_named(run_dir: Path, name: str) -> None:
    """Remove a file or a directory of a run."""
    remove(named(run_dir)[name])


def steps_of(tmp_path: Path) -> dict[str, Counter[int]]:
    """Return how often each step is in each of the outputs."""
    rows = tmp_path / "out" / "rows.jsonl"
    lines = [msgspec.json.decode(line) for line in rows.read_bytes().splitlines()] if rows.exists() else []
    files = sorted((tmp_path / "out" / "tensorboard").glob("*"))
    events = [event for path in files for event in EventFileLoader(str(path)).Load()]
    shown = [event.step for event in events if any(value.tag == "loss" for value in event.summary.value)]
    return {"jsonl": Counter(line["step"] for line in lines), "tensorboard": Counter(shown)}


def archived(run_dir: Path) -> Counter[int]:
    """Return how often each step is in the archive of a run that has ended."""
    tables = KINDS[Row]
    rows = [
        item
        for place in (run_dir / "archive").glob("*")
        for file in files.of_table(place, tables[-1].name)
        for item in read(place, tables, file)
    ]
    return Counter(row.step for row in rows if isinstance(row, Row))


def is_delivered(tmp_path: Path) -> bool:
    """Return whether both outputs have the first half; its last row comes after a pause, or with the next step."""
    return all(steps.total() >= HALF - 1 for steps in steps_of(tmp_path).values())


def check(tmp_path: Path, said: bool, removed: str = "", repeated: int = 0) -> None:
    """Compare what was said with what there is; a second attempt has repeated this many steps of the first one.

    An archive from which something was `removed` while no agent ran is left out: the next agent adds what is new.
    """
    found = steps_of(tmp_path)
    if not removed.startswith("archive"):
        found["archive"] = archived(tmp_path / "runs" / "p" / "r")
    expected = Counter(range(HALF)) + Counter(range(HALF - repeated, STEPS))
    missing = {name: sorted((expected - steps).elements()) for name, steps in found.items() if expected - steps}
    doubled = {name: sorted((steps - expected).elements()) for name, steps in found.items() if steps - expected}
    lost = agent_start.read_status(directories.at(tmp_path / "runs" / "p" / "r")).lost

    assert not doubled
    assert said is (not missing), (said, missing, lost)
    assert said or lost


def wait_for_the_end(run_dir: Path) -> None:
    """Wait until no agent is at work."""
    wait_for(lambda: not agent_start.is_looked_after(directories.at(run_dir)), "the agent does not end")


def test_files_are_known(tmp_path: Path) -> None:
    """The list of files to remove has everything that a run makes."""
    run = begin(tmp_path)
    log(run, range(HALF))
    wait_for(lambda: is_delivered(tmp_path), "nothing is delivered")

    assert sorted(name for name in named(run.dir) if "/SIG" not in name and "/stacks." not in name) == sorted(FILES)
    assert run.finish(30)
    wait_for_the_end(run.dir)
    assert sorted(named(run.dir)) == sorted(AFTER)


@pytest.mark.parametrize("name", FILES)
def test_removed_during_a_run(tmp_path: Path, name: str) -> None:
    """The trainer goes on; `finish` is true only if every row is in both outputs, as it is without the outbox."""
    run = begin(tmp_path)
    log(run, range(HALF))
    wait_for(lambda: is_delivered(tmp_path), "nothing is delivered")
    remove_named(run.dir, name)
    log(run, range(HALF, STEPS))

    said = bool(run.finish(30))
    check(tmp_path, said)
    assert said or name != "local/HOST/outbox"
    assert run.refused == {}


@pytest.mark.parametrize("names", [*AFTER, "attempts local/HOST/journals"])
def test_removed_between_two_attempts(tmp_path: Path, names: str) -> None:
    """The second start is another attempt if any file shows that; its rows arrive, and no row comes twice."""
    run = begin(tmp_path)
    log(run, range(HALF))
    assert run.finish(30)
    wait_for_the_end(run.dir)
    for name in names.split():
        remove_named(run.dir, name)
    again = begin(tmp_path)
    log(again, range(HALF - 2, STEPS))

    check(tmp_path, bool(again.finish(30)), names, repeated=2)
    assert again.attempt == (1 if names in AFTER else 0)


def deliver(run_dir: Path) -> bool | None:
    """Return what `otel-rl agent --once` says; `None` for an error, such as a run directory without its manifest."""
    try:
        return LateDelivery(run_dir, print).deliver()
    except (StartError, OSError, ValueError):
        return None


@pytest.mark.parametrize("name", AFTER)
def test_removed_before_once(tmp_path: Path, name: str) -> None:
    """Half of the rows were not delivered when the file went: all come, or it is known that some do not."""
    run = begin(tmp_path)
    log(run, range(HALF))
    assert run.finish(30)
    wait_for_the_end(run.dir)
    second = begin(tmp_path, agent="off")
    log(second, range(HALF, STEPS))
    second.finish(0)
    names = named(run.dir)
    later = name.replace("attempt0", "attempt1")
    remove_named(run.dir, later if later in names else name)
    said = deliver(run.dir)

    if said is None:
        assert all(steps.total() == HALF for steps in steps_of(tmp_path).values())
    else:
        check(tmp_path, said, name)
        assert deliver(run.dir) is said  # and no loss is counted twice
        check(tmp_path, said, name)


def test_the_part_of_another_machine_is_gone(tmp_path: Path) -> None:
    """Only the note of the attempt still shows that there was something to deliver: a warning reports it."""
    run = begin(tmp_path)
    log(run, range(STEPS))
    assert run.finish(30)
    wait_for_the_end(run.dir)
    note = Noted("rank1.attempt0.0123456789abcdef", "node2")
    (run.dir / "attempts" / note.journal).write_bytes(msgspec.json.encode(note))
    said: list[str] = []

    assert LateDelivery(run.dir, said.append).deliver() is False
    assert said == [f"{run.dir}/local/node2 was removed, with the content of 1 journal(s)"]
    mark_delivered(run.dir / "attempts", [note.journal])
    assert LateDelivery(run.dir, said.append).deliver() is True
