"""Beginning to record: settings that are wrong, attempts, ranks and roles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import otel_rl
from otel_rl.errors import SettingsError
from otel_rl.journal.records import Record, Started
from tests.processes import journal_of, local_of, run_python, start_python

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    RecordsOf = Callable[..., list[Record]]


from tests.trainer.reading import NeedsAPackage, NeedsAPartOfAPackage, begin, kinds, started


def test_current(tmp_path: Path) -> None:
    """`current` is the run between `init` and `finish`."""
    before = otel_rl.current()
    run = begin(tmp_path)
    during = otel_rl.current()
    run.finish()

    assert before is otel_rl.current() is None
    assert run is during


def test_same_again(tmp_path: Path) -> None:
    """`init` with the same keywords, or with none, returns the run that is being recorded."""
    keywords = {"config": {"lr": 1}, "reduce": {"a": "max"}}
    run = begin(tmp_path, **keywords)

    assert run is begin(tmp_path, **keywords)
    assert run is otel_rl.init()


def test_other_again(tmp_path: Path) -> None:
    """`init` with other keywords is an error that says what to do."""
    run = begin(tmp_path)
    with pytest.raises(SettingsError, match=rf"run {run.id} is being recorded.*finish\(\) it first"):
        begin(tmp_path, name="other")


def test_again_after_finish(tmp_path: Path, records_of: RecordsOf) -> None:
    """After `finish` another run can begin."""
    first = begin(tmp_path)
    first.finish()
    second = begin(tmp_path)
    second.log({"loss": 1.0}, step=0)

    assert first.id != second.id
    assert kinds(records_of(first)) == ["Started", "Finished"]
    assert kinds(records_of(second)) == ["Started", "Logged"]


def test_attempts(tmp_path: Path, records_of: RecordsOf) -> None:
    """Beginning the same run again is the next attempt: another journal, and other traces of the same steps."""
    traces = set()
    for attempt in range(3):
        run = begin(tmp_path, id="run-7")
        with run.step(0), run.phase("generate"):
            pass
        records = records_of(run)
        run.finish()

        assert isinstance(records[0], Started)
        assert attempt == run.attempt == records[0].attempt

        traces.add(started(records)["generate"].trace_id)

    assert len(traces) == 3


def test_attempts_of_a_process_that_was_killed(tmp_path: Path) -> None:
    """A process that was killed does not keep the next attempt from beginning."""
    script = f"""
import os, otel_rl
otel_rl.init(agent="off", exporters=[], quiet=True, project="test", dir={str(tmp_path)!r}, id="run-7")
os.kill(os.getpid(), 9)
"""
    killed = start_python(script, tmp_path)
    killed.communicate(timeout=60)

    assert killed.returncode == -9
    assert begin(tmp_path, id="run-7").attempt == 1


def test_two_processes_with_one_rank(tmp_path: Path) -> None:
    """A second process that claims the same rank, and is strict, fails with a word on what to do."""
    begin(tmp_path, id="run-7")
    script = f"""
import otel_rl
try:
    otel_rl.init(agent="off", exporters=[], quiet=True, project="test", dir={str(tmp_path)!r}, id="run-7",
                 strict=True)
except otel_rl.SettingsError as error:
    print(error)
"""
    text = run_python(script, tmp_path)

    assert "rank0.attempt0" in text
    assert "being recorded by another process: give each process its own rank=" in text
    assert [*(local_of(tmp_path / "test" / "run-7") / "journals").iterdir()] == [
        journal_of(tmp_path / "test" / "run-7")
    ]


def test_ranks_and_roles(tmp_path: Path) -> None:
    """Every rank and every role has a journal of its own in the same directory."""
    script = f"""
import sys, otel_rl
run = otel_rl.init(agent="off", exporters=[], quiet=True, project="test", dir={str(tmp_path)!r}, id="run-7")
print(run.dir)
"""
    run = begin(tmp_path, id="run-7", world_size=2, rank=0)
    others = [
        run_python(script, tmp_path, OTEL_RL_RANK="1", OTEL_RL_WORLD_SIZE="2"),
        run_python(script, tmp_path, OTEL_RL_ROLE="reward"),
    ]
    journals = {path.name.rpartition(".")[0] for path in (local_of(run.dir) / "journals").iterdir()}

    assert [f"{run.dir}\n"] * 2 == others
    assert journals == {"rank0.attempt0", "rank1.attempt0", "reward.attempt0"}


@pytest.mark.parametrize(
    ("keywords", "expected"),
    [
        (
            {"exporters": ["wandbb"]},
            r"exporters: unknown exporter 'wandbb'; did you mean wandb\?",
        ),
        (
            {"exporters": ["nope"]},
            "known are: archive, console, jsonl, mlflow, otlp, prometheus, sidecar, stdout, swanlab",
        ),
        ({"exporters": [{"tensorboard": {"precision": "half"}}]}, "precision='half' must be one of 'double', 'single'"),
        ({"exporters": [{"wandb": {"mode": "offlin"}}]}, "mode='offlin' must be one of 'online', 'offline', .*None"),
        ({"exporters": [{"jsonl": {"color": "red"}}]}, "exporter 'jsonl': .*'color'.*its options are: path"),
        ({"exporters": [NeedsAPackage]}, "needs the package 'no_such_package'.*pip install 'otel-rl\\[wishes\\]'"),
        ({"exporters": ["tests.trainer.reading:NeedsAPackage"]}, "needs the package 'no_such_package'"),
        ({"exporters": [{"tests.trainer.reading:Colorful": {"hue": "red"}}]}, "'hue'.*its options are: color"),
        pytest.param({"exporters": ["no_such_module:Exporter"]}, "no_such_module"),
        pytest.param({"exporters": ["tests.trainer.reading:NoSuchExporter"]}, "NoSuchExporter"),
        pytest.param({"exporters": [NeedsAPartOfAPackage]}, "needs the package 'no_such_package.part'"),
    ],
)
def test_bad_exporter(tmp_path: Path, keywords: dict[str, object], expected: str) -> None:
    """An exporter that is unknown, lacks its package or has a wrong option fails `init`, which says what to do."""
    with pytest.raises(SettingsError, match=expected):
        begin(tmp_path, **keywords)

    assert otel_rl.current() is None


def test_exporter_with_an_option(tmp_path: Path) -> None:
    """A good exporter is checked without being built."""
    assert begin(tmp_path, exporters=[{"tests.trainer.reading:Colorful": {"color": "blue"}}]).attempt == 0


@pytest.mark.parametrize("strict", [True, False])
def test_an_exporter_whose_module_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strict: bool) -> None:
    """The error names the exporter, and not the directory, whatever its module raises."""
    (tmp_path / "raising_module.py").write_text("raise RuntimeError('a variable is invalid')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SettingsError, match="'raising_module:E' cannot be imported: a variable is invalid"):
        begin(tmp_path, exporters=["raising_module:E"], strict=strict)


def test_unwritable_directory(tmp_path: Path) -> None:
    """A directory that cannot be made fails a strict `init`, which names it."""
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"file/runs.*Not a directory"):
        begin(tmp_path / "file" / "runs", strict=True)
