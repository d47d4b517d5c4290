"""Random programs of a tracker's runs and writers, and the tracker's own files as the oracle of what is recorded.

`python -m tests.frameworks.hooks.tracker_programs TRACKER COUNT [TRAIT]` runs them in a process of its own; trackers
keep their directories and their threads as long as a process lives. It ends with the smallest program that differs, if
one does; with a trait, with the number of the first one.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import msgspec
from hypothesis import strategies as st

import otel_rl
from otel_rl.frameworks.instrument import capture, instrument
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Configured, Logged
from tests.frameworks.hooks.program_trackers import KINDS, OWN, PLACES, TRACKERS, Op, Point, Program, parameter
from tests.samples import IS_FRESH

NAMES = ("x", "y", "val/x")
_AT_ONCE = 3
"""How many threads log at once: each another name in one run, or the same name of another run."""
_LOST = ("could not be persisted", "Could not flush all logs", "may be dropped")
"""Parts of warnings of trackio, when a thread of its own has not written a value."""
_HAS_LOST = 3
"""The exit status of a child in which it has not."""
Drawn = tuple[Sequence[str], Sequence[Op], bool]
"""The names of the runs, the calls, and whether a thread of the tracker's own logs too."""


def drawn(
    runs: Sequence[int] = (0, 1, 2),
    names: Sequence[str] = (*NAMES, ""),
    where: Sequence[str] = ("here", "here", "here", "thread", "threads", "runs", "child"),
    *,
    kinds: Sequence[int] = range(len(KINDS)),
    axes: Sequence[int] = range(6),
) -> st.SearchStrategy[Op]:
    """Draw a call."""
    chosen = (st.sampled_from(each) for each in (runs, names, range(4), axes, kinds, where))
    return st.builds(Op, *chosen)


def programs(
    calls: st.SearchStrategy[Op], least: int = 2, most: int = 12, *, own: Sequence[bool] = (False,)
) -> st.SearchStrategy[Drawn]:
    """Draw a program."""
    places = st.permutations(PLACES).map(lambda order: order[:3])
    return st.tuples(places, st.lists(calls, min_size=least, max_size=most), st.sampled_from(own))


_PLAIN = partial(drawn, (0,), NAMES, axes=(0, 1, 2))
_FIRST, _LATER = _PLAIN(("here",), kinds=(0,)), _PLAIN(("child",), kinds=(0,))
TRAITS: dict[str, st.SearchStrategy[Drawn]] = {
    "": programs(drawn(), own=(False, False, True)),
    "kept": programs(_FIRST, 1, 2),
    "threads": programs(_PLAIN(("threads",), kinds=(0,)), 1, 3),
    "runs": programs(_PLAIN(("runs",), kinds=(0,)), 1, 3),
    "own": programs(_FIRST, 1, 3, own=(True,)),
    "child": programs(_LATER, 1, 3).flatmap(
        lambda later: _FIRST.map(lambda first: (later[0], [first, *later[1]], later[2]))
    ),
    "child first": programs(_LATER, 1, 3).flatmap(
        lambda later: _FIRST.map(lambda first: (later[0], [*later[1], first], later[2]))
    ),
    "kinds": programs(_PLAIN(("here",), kinds=range(1, len(KINDS))), 1, 4),
}
"""Programs with all traits, and those of one trait."""


class Session(NamedTuple):
    """A run of a program from its beginning to its end, in one process: its values are in one run."""

    number: int  # which is the parameter of the run
    name: str


class Play:
    """A program while it runs.

    Attributes:
        sessions: The session of each value.
    """

    def __init__(self, program: Program, places: Sequence[str]) -> None:
        self._program, self._places = program, places
        self._runs: dict[int, Any] = {}
        self._open: dict[int, Session] = {}
        self._steps = dict.fromkeys(range(_AT_ONCE), 0)
        self._numbers = itertools.count()
        self._values = itertools.count(1)
        self._child_has_lost = False
        self.sessions: dict[float, Session] = {}

    @property
    def has_lost(self) -> bool:
        """Whether the tracker itself has lost a value."""
        return self._child_has_lost or any(part in str(each.message) for each in self._warned for part in _LOST)

    def play(self, ops: Iterable[Op]) -> None:
        """Make the calls."""
        with warnings.catch_warnings(record=True) as self._warned:
            warnings.simplefilter("always")
            for op in ops:
                self._make(op)
            for run in self._runs.values():
                self._program.end(run)

    def _make(self, op: Op) -> None:
        # A step may be below the last one, as trackers allow.
        self._steps[op.run] = max(0, self._steps[op.run] + (op.ahead - 1 if op.name else 0))
        if not op.name:
            if op.run in self._runs:
                self._program.end(self._runs.pop(op.run))
                del self._open[op.run]
        elif op.where == "child":
            self._fork(op)
        elif op.where == "threads":
            self._begin(op.run)
            each = [msgspec.structs.replace(op, name=f"{op.name}{n}") for n in range(_AT_ONCE)]
            self._at_once([self._call(one) for one in each])
        elif op.where == "runs":
            others = [(op.run + n) % _AT_ONCE for n in range(_AT_ONCE)]
            self._at_once([self._call(msgspec.structs.replace(op, run=run)) for run in others])
        elif op.where == "thread":
            self._at_once([self._call(op)])
        else:
            self._call(op)()

    def _begin(self, run: int) -> None:
        if run not in self._runs:
            number, place = next(self._numbers), self._places[run]
            self._open[run] = Session(number, self._program.named(place, number))
            self._runs[run] = self._program.begin(place, number)

    def _call(self, op: Op) -> Callable[[], None]:
        value = float(next(self._values))

        def call() -> None:
            self._begin(op.run)
            self.sessions[value] = self._open[op.run]
            self._program.log(self._runs[op.run], op, value, self._steps[op.run])

        return call

    def _at_once(self, calls: Sequence[Callable[[], None]]) -> None:
        barrier = threading.Barrier(len(calls))

        def call(one: Callable[[], None]) -> None:
            barrier.wait()
            one()

        threads = [threading.Thread(target=call, args=(one,)) for one in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _fork(self, op: Op) -> None:
        """Log in children that run at once: to the run of their parent, or to one of their own."""
        place, program = self._places[op.run], self._program
        if program.is_shared(place) or (program.has_directories and op.ahead % 2):
            self._begin(op.run)
        begun = self._open.get(op.run) if program.is_shared(place) or program.has_directories else None
        children = []
        for _ in range(1 + op.axis % 2):
            number, value = next(self._numbers), float(next(self._values))
            self.sessions[value] = begun or Session(number, program.named(place, number))
            child = multiprocessing.get_context("fork").Process(target=self._in_child, args=(op, number, value))
            child.start()
            children.append(child)
        for child in children:
            child.join()
            assert child.exitcode in (0, _HAS_LOST)
            self._child_has_lost |= child.exitcode == _HAS_LOST

    def _in_child(self, op: Op, number: int, value: float) -> None:
        place, program = self._places[op.run], self._program
        run = self._runs[op.run] if program.is_shared(place) else program.begin(place, number)
        program.log(run, op, value, 100 + round(value))  # which of two was last at a step, nobody could say
        if not program.is_shared(place):
            program.end(run)
        if self.has_lost:
            raise SystemExit(_HAS_LOST)


def settled(program: Program, ops: Iterable[Op]) -> Iterator[Op]:
    """Yield the calls as a tracker can make them."""
    ops = [*ops]
    has_children = any(op.where == "child" for op in ops)
    for op in ops:
        # One with a directory in it may be that of a directory's value in a process that does not know the name.
        name = op.name.replace("/", "-") if program.has_directories and has_children else op.name
        # A child would have the locks of a tracker's own thread.
        where = "here" if program.has_own_thread and op.where == "child" else op.where
        yield msgspec.structs.replace(op, name=name, where=where, kind=op.kind % program.kinds)


class Recorded(NamedTuple):
    """The runs of otel-rl in a directory.

    Attributes:
        points: All points, in the order in which their processes wrote them.
        names: The name of each run.
        params: The parameters of each run.
    """

    points: list[Point]
    names: dict[str, str]
    params: dict[str, dict[str, object]]


def recorded(place: Path) -> Recorded:
    """Read all journals of a directory of runs."""
    found = Recorded([], {}, {})
    for journal in sorted(place.rglob("journals/*.attempt*"), key=lambda path: path.name):
        directory = next(parent for parent in journal.parents if (parent / "run.json").exists())
        run = str(directory)
        found.names[run] = json.loads((directory / "run.json").read_bytes())["name"]
        reader = Reader(journal, AnyRecord)
        while records := reader.read():
            for record in records:
                if isinstance(record, Configured):
                    found.params.setdefault(run, {}).update(record.values)
                elif isinstance(record, Logged):
                    points = ((run, name, float(value), record.step) for name, value in record.values.items())
                    found.points.extend(points)
        reader.close()
    return found


def by_curve(points: Iterable[Point]) -> dict[tuple[str, str, str, float], Point]:
    """Return the last point of each step of each curve; a point without a step is alone at its value."""
    return {
        (run, name, *(("value", value) if step is None else ("step", step))): (run, name, value, step)
        for run, name, value, step in points
    }


def by_value(points: Iterable[Point]) -> dict[float, Point]:
    """Return the points by their value, which is different for each."""
    return {point[2]: point for point in points}


def compare(written: Iterable[Point], found: Recorded, sessions: dict[float, Session], *, kept: bool) -> None:
    """Fail if a value is lost, doubled, at another step, under another name, or in the curve of another run.

    Args:
        written: All points of the tracker, in their order.
        found: What is recorded.
        sessions: The session of each value.
        kept: If true, each run also has the name and the parameter that its tracker has.
    """
    written = [*written]
    compare_own(written, found.points)
    written = [point for point in written if OWN not in point[1]]
    # Those that a later one replaced in the same run are gone.
    last = by_curve(point for point in found.points if OWN not in point[1] and not point[1].endswith("env"))
    numbers, curves = by_value(last.values()), by_curve(written)
    shown = by_value(curves.values())
    # A tracker's run that goes on after its run here has ended may write a step again: each run here keeps its value.
    replaced = {
        value
        for run, name, value, step in written
        if value in numbers and step is not None and (later := numbers.get(curves[run, name, "step", step][2]))
        if later[0] != numbers[value][0]
    }
    lost, added = shown.keys() - numbers.keys(), numbers.keys() - replaced - shown.keys()
    assert not lost, f"lost {lost}"
    assert not added, f"added {added}"
    owner: dict[tuple[str, str], tuple[str, str]] = {}
    home: dict[Session, str] = {}
    for value, (run, name, _, step) in shown.items():
        in_run, in_name, _, at = numbers[value]
        session = sessions[value]
        assert step is None or at == step, f"{name} of {run} is at {at} and not at {step}"
        assert f"/{in_name}".endswith(f"/{name}"), f"{name} of {run} is called {in_name}"
        assert owner.setdefault((in_run, in_name), (run, name)) == (run, name), f"{in_name} is of two runs"
        assert home.setdefault(session, in_run) == in_run, f"{name} of {run} is in two runs"
        if kept:
            assert found.names[in_run] == session.name or not session.name, f"{in_run} is {found.names[in_run]}"
            params = {key.rpartition("/")[2]: value for key, value in found.params.get(in_run, {}).items()}
            assert parameter(session.number).items() <= params.items(), f"{run} has the parameters {params}"


def compare_own(written: Iterable[Point], found: Iterable[Point]) -> None:
    """Fail if the values of a tracker's own thread differ, which are 0 more than once."""
    (theirs, ours) = (
        {
            run: sorted((name, step, value) for _, name, value, step in points if OWN in name)
            for run, points in itertools.groupby(sorted(each, key=lambda point: point[0]), key=lambda point: point[0])
        }
        for each in (written, found)
    )
    assert sorted(filter(None, theirs.values())) == sorted(filter(None, ours.values())), "the own thread's differ"


def main(tracker: str, count: int, trait: str = "") -> None:
    """Draw programs and compare."""
    base, keys = Path(tempfile.mkdtemp()), itertools.count(1)
    differs: list[str] = []
    lossy: list[str] = []
    off = {"AGENT": "off", "QUIET": "1", "EXPORTERS": "", "HARDWARE": "0"}
    os.environ.update({f"OTEL_RL_{name}": value for name, value in off.items()})
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_ERROR_REPORTING="false")
    os.environ.update(WANDB_X_DISABLE_STATS="true", WANDB_X_DISABLE_META="true", WANDB_CONSOLE="off")
    os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", MLFLOW_LOGGING_LEVEL="WARNING")
    os.environ.update(TRACKIO_DIR=str(base / "trackio"))
    if framework := TRACKERS[tracker].framework:
        instrument(framework)
    else:
        capture(tracker)

    @hypothesis.settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=not IS_FRESH and not trait,
        phases=[hypothesis.Phase.generate] if trait else [*hypothesis.Phase],
        suppress_health_check=[*hypothesis.HealthCheck],
    )
    @hypothesis.given(TRAITS[trait])
    def check(drawn: Drawn) -> None:
        key = f"p{next(keys)}"
        place = base / key
        place.mkdir()
        os.environ["OTEL_RL_DIR"] = str(place / "runs")
        places, ops, own = drawn
        program = TRACKERS[tracker](place, key, has_own_thread=own and TRACKERS[tracker].can_have_own_thread)
        play = Play(program, places)
        play.play(settled(program, ops))
        if play.has_lost:
            lossy.append(key)
            hypothesis.reject()
        while (left := otel_rl.current()) is not None:
            left.finish(0)
        found = recorded(place / "runs")
        shutil.rmtree(place / "runs", ignore_errors=True)
        try:
            compare(program.points(), found, play.sessions, kept=trait in ("", "kept"))
        except AssertionError as error:
            differs.append(f"{key}: {error}")
            raise

    try:
        hypothesis.seed(0)(check)() if trait else check()
    finally:
        drawn = f"{next(keys) - 1} programs; the tracker itself lost values in {len(lossy)}"
        print(differs[0] if differs else drawn)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:4])
