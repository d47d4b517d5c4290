"""Every test has an environment and a directory of its own, and leaves no run behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis.database import DirectoryBasedExampleDatabase

import otel_rl
from otel_rl.recorder.files import modes
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Record
from tests.installed import differing
from tests.processes import journal_of
from tests.samples import IS_FRESH

_LAUNCHERS = ("OTEL_", "SLURM_", "OMPI_", "PMIX_", "TORCHELASTIC_")
_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TRACEPARENT")

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads of torch spin while they wait: on busy cores, 3 times the work
# Many images forbid it; then each process that a test starts compiles all that it imports, half of what it costs.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.pop("XDG_RUNTIME_DIR", None)  # the ids that trainings of the user have are not those of the tests

# A busy machine is not a failure. Everybody gets the same examples; `.ci/run` draws fresh ones, and keeps those that
# failed, so that a test that it runs again fails again.
_KEPT = DirectoryBasedExampleDatabase(Path(__file__).parents[1] / ".hypothesis" / "examples")
hypothesis.settings.register_profile(
    "otel-rl", deadline=None, derandomize=not IS_FRESH, database=_KEPT if IS_FRESH else None, print_blob=True
)
hypothesis.settings.load_profile("otel-rl")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Say, below failed tests, that entry points are not installed: what they name is then silently absent."""
    if exitstatus and (names := differing()):
        text = f"Not installed as pyproject.toml has them: {', '.join(names)}. Run: pip install -e ."
        terminalreporter.write_line(text, red=True)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run each test in its own directory, without the launcher's or the user's settings."""
    for name in list(os.environ):
        if name.startswith(_LAUNCHERS) or name in _RANKS:
            monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_RL_AUTOPSY", "0")  # the tests of it switch it on
    monkeypatch.setenv("XDG_RUNTIME_DIR", f"{tmp_path}.ids")  # which ids are taken; it is made if it is needed
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(modes._Chosen, "owns_process", False)  # a command of otel-rl in this process sets the umask
    # An agent in this process takes SIGTERM; a forked child would have its handler, and outlive `Pool.terminate`.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    umask = os.umask(0o022)
    yield
    os.umask(umask)
    run = otel_rl.current()
    if run is not None:
        run.finish(0)


@pytest.fixture
def recording(tmp_path: Path) -> otel_rl.Run:
    """Return a run that records into `tmp_path`, without an agent."""
    return otel_rl.init(agent="off", exporters=[], dir=tmp_path, quiet=True, project="test")


@pytest.fixture
def records_of() -> Callable[..., list[Record]]:
    """Return the function that reads back everything in the journal of a run."""

    def read_back(run: otel_rl.Run, who: str = "rank0") -> list[Record]:
        reader = Reader(journal_of(run.dir, who, run.attempt), AnyRecord)
        records: list[Record] = []
        while more := reader.read():
            records += more
        reader.close()
        assert (reader.skipped_bytes, reader.lost_segments, reader.undecodable) == (0, 0, 0)
        return records

    return read_back
