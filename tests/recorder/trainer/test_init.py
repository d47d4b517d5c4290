"""Beginning to record: settings that are wrong, attempts, ranks and roles."""

from __future__ import annotations

from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.journal.records import Started
from tests.processes import local_of
from tests.real_parts import needs
from tests.recorder.trainer.reading import NeedsAPackage, NeedsAPartOfAPackage, RecordsOf, begin, kinds, started


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


def test_ranks_and_roles(tmp_path: Path) -> None:
    """Every rank and every role has a journal of its own in the same directory."""
    places = set()
    for place in ({"rank": 0, "world_size": 2}, {"rank": 1, "world_size": 2}, {"role": "reward"}):
        run = begin(tmp_path, id="run-7", **place)
        places.add(run.dir)
        run.finish(0)
    journals = {path.name.rpartition(".")[0] for path in (local_of(run.dir) / "journals").iterdir()}

    assert len(places) == 1
    assert journals == {"rank0.attempt0", "rank1.attempt0", "reward.attempt0"}


@pytest.mark.parametrize(
    ("exporter", "expected"),
    [
        ("wandbb", r"exporters: unknown exporter 'wandbb'; did you mean wandb\?"),
        ("nope", "known are: archive, command, console, jsonl, mlflow, otlp, prometheus, sidecar, stdout, swanlab"),
        ({"tensorboard": {"precision": "half"}}, "precision='half' must be one of 'double', 'single'"),
        pytest.param(
            {"wandb": {"mode": "offlin"}},
            "mode='offlin' must be one of 'online', 'offline', .*None",
            marks=needs("wandb"),
        ),
        ({"jsonl": {"color": "red"}}, "exporter 'jsonl': .*'color'.*its options are: path"),
        (NeedsAPackage, "needs the package 'no_such_package'.*pip install 'otel-rl\\[wishes\\]'"),
        ("tests.recorder.trainer.reading:NeedsAPackage", "needs the package 'no_such_package'"),
        ({"tests.recorder.trainer.reading:Colorful": {"hue": "red"}}, "'hue'.*its options are: color"),
        ("no_such_module:Exporter", "no_such_module"),
        ("tests.recorder.trainer.reading:NoSuchExporter", "NoSuchExporter"),
        (NeedsAPartOfAPackage, "needs the package 'no_such_package.part'"),
    ],
)
def test_bad_exporter(tmp_path: Path, exporter: object, expected: str) -> None:
    """An exporter that is unknown, lacks its package or has a wrong option fails `init`, which says what to do."""
    with pytest.raises(SettingsError, match=expected):
        begin(tmp_path, exporters=[exporter])

    assert otel_rl.current() is None


def test_exporter_with_an_option(tmp_path: Path) -> None:
    """A good exporter is checked without being built."""
    assert begin(tmp_path, exporters=[{"tests.recorder.trainer.reading:Colorful": {"color": "blue"}}]).attempt == 0


@pytest.mark.parametrize("strict", [True, False])
def test_an_exporter_whose_module_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strict: bool) -> None:
    """The error names the exporter, and not the directory, whatever its module raises."""
    (tmp_path / "raising_module.py").write_text("raise RuntimeError('a variable is invalid')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SettingsError, match="'raising_module:E' cannot be imported: a variable is invalid"):
        begin(tmp_path, exporters=["raising_module:E"], strict=strict)
