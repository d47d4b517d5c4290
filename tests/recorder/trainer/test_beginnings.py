"""To begin a run is atomic in a process: one run for all of its threads, or an error."""

from __future__ import annotations

import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

import otel_rl
from tests.processes import run_python
from tests.recorder.trainer.reading import at_once, begin, runs_in

if TYPE_CHECKING:
    from pathlib import Path

_THREADS = 8


def test_equal_inits_at_once(tmp_path: Path) -> None:
    """Threads that begin the same run at once all get it."""
    found = at_once(*[partial(begin, tmp_path)] * _THREADS)

    assert found == [otel_rl.current()] * _THREADS
    assert len(runs_in(tmp_path)) == 1


def test_different_inits_at_once(tmp_path: Path) -> None:
    """Of threads that begin a run each, as trials with `n_jobs=2` do, one has it; the others get an error."""
    found = at_once(*(partial(begin, tmp_path, name=f"trial{number}") for number in range(_THREADS)))
    errors = [str(error) for error in found if isinstance(error, otel_rl.SettingsError)]
    run = otel_rl.current()

    assert run is not None
    assert found.count(run) == 1
    assert errors == [
        f"run {run.id} is being recorded in this process; finish() it first, or record runs that go on at once in a "
        "process each"
    ] * (_THREADS - 1)
    assert runs_in(tmp_path) == [run.dir]


def test_current_in_threads_and_contexts(tmp_path: Path) -> None:
    """`current` is the run of the process in every thread and context, also in those that began before it."""
    context, ready = contextvars.copy_context(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(lambda: ready.wait() and otel_rl.current())
        run = begin(tmp_path)
        ready.set()

        assert early.result() is run
        assert context.run(otel_rl.current) is run


_FORK_WHILE_A_THREAD_BEGINS = """
import os, threading, otel_rl
from otel_rl.recorder.trainer.current import turn
begins, ends = threading.Event(), threading.Event()
def begin():
    with turn():
        begins.set()
        ends.wait()
threading.Thread(target=begin).start()
begins.wait()
if (child := os.fork()) == 0:
    run = otel_rl.init(agent="off", exporters=[], quiet=True, project="p", id="of-child")
    print(run.id, flush=True)
    os._exit(0)
os.waitpid(child, 0)
ends.set()
"""


def test_a_fork_while_a_thread_begins(tmp_path: Path) -> None:
    """A child that was forked while another thread began a run can begin one."""
    assert run_python(_FORK_WHILE_A_THREAD_BEGINS, tmp_path) == "of-child\n"


def test_an_init_from_the_module_of_an_exporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that `init` imports, and that calls `init` itself, leaves one run; the outer call says so."""
    (tmp_path / "begins_too.py").write_text(
        "import otel_rl\notel_rl.init(agent='off', exporters=[], quiet=True, project='inner')\n"
        "class Exporter:\n    def __init__(self, run): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(otel_rl.SettingsError, match="began while init"):
        begin(tmp_path, exporters=["begins_too:Exporter"])
    run = otel_rl.current()

    assert run is not None
    assert run.dir.parent.name == "inner"
    assert [*tmp_path.glob("test/*/local/*/journals/*")] == []


def test_init_again_after_steps(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`init` with the keywords of a run that has steps, as in a cell that runs again, says that the run goes on."""
    run = begin(tmp_path, id="cell")
    begin(tmp_path, id="cell")
    before = [*caplog.messages]
    run.log({"loss": 1.0}, step=0)
    otel_rl.init()
    begin(tmp_path, id="cell")

    assert before == []
    assert caplog.messages == [
        "init() again: run cell has steps, and goes on; finish() it first to begin another run, or another attempt of "
        "it (1 so far)"
    ]
