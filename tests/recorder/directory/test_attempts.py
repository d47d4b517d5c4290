"""The attempt of a start: random histories against the oracle, with real files and locks, and cases by name."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otel_rl
from otel_rl.recorder.delivery.left_behind import left_behind
from otel_rl.recorder.directory import attempt_entries, attempts, parts
from otel_rl.recorder.directory.attempt_entries import Start, renew
from otel_rl.recorder.directory.directory import RunDirectory
from otel_rl.recorder.files.modes import make_directory
from otel_rl.recorder.journal.claim import Claim, HeldError, claim_journal
from otel_rl.recorder.journal.records import Finished
from otel_rl.recorder.settings.launcher import Launch
from tests import samples
from tests.collector import wait_for
from tests.recorder.directory.attempt_oracle import Oracle, Started


class Machines:
    """Machines that share a run directory, but not the locks of their journals."""

    def __init__(self, place: Path) -> None:
        self._run = place / "run"
        self.claims: dict[str, tuple[int, Claim]] = {}
        self._count = 0

    def directory(self, machine: int) -> RunDirectory:
        """Return the run directory, as a machine sees it."""
        local = self._run.with_name(f"disk{machine}")
        found = RunDirectory(self._run, local, f"node{machine}")
        make_directory(found.attempts)
        parts.remake(local)
        return found

    def start(self, new: Started) -> int:
        """Start a process; return its attempt."""
        self._count += 1
        supervisor = "" if new.supervised is None else f"torchrun{new.machine}"
        own = Start(
            launch=Launch(restarts=new.requeues, supervisor=supervisor, supervised=new.supervised or 0),
            who=new.who,
            world_size=new.world,
            label="p/",
            host=f"node{new.machine}",
            process=f"{self._count}/0",
            command="0" * 16,
            time=float(self._count),
        )
        place = self.directory(new.machine)
        attempts_ = place.attempts if own.is_rank else None
        decide = partial(attempts.join, place, own, new.requeues)
        claim = claim_journal(place.journals, new.who, attempts_, entry=own.noted(place.host), decide=decide)
        self.claims[new.who] = new.machine, claim
        return claim.attempt

    def end(self, who: str, *, in_order: bool) -> None:
        """End a process; the agent of its machine notices it."""
        machine, claim = self.claims.pop(who)
        if in_order:
            raw = msgspec.msgpack.encode(Finished(1))
            (claim.path / "end").write_bytes(len(raw).to_bytes(4, "big") + raw)
        claim.release()
        renew(self.directory(machine))

    def switch_off(self, machine: int) -> None:
        """End everything on a machine, of which its agent says nothing; its disk is gone too."""
        for who in [who for who, (place, _) in self.claims.items() if place == machine]:
            self.claims.pop(who)[1].release()
        shutil.rmtree(self.directory(machine).local)
        for lease in self.directory(machine).attempts.glob(f"attempt*.node{machine}"):
            os.utime(lease, (0, 0))

    def close(self) -> None:
        """End all processes."""
        for _, claim in self.claims.values():
            claim.release()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """Return two machines that share a run directory."""
    found = Machines(tmp_path)
    yield found
    found.close()


def test_a_start_without_one_of_the_ranks(machines: Machines) -> None:
    """Two ranks, one, and two again: rank 1 has one start less behind it, and is in the same attempt."""
    for world in (2, 1):
        for rank in range(world):
            machines.start(Started(f"rank{rank}", rank, world=world))
        for rank in range(world):
            machines.end(f"rank{rank}", in_order=True)

    assert [machines.start(Started("rank1", 1)), machines.start(Started("rank0", 0))] == [2, 2]


@pytest.mark.parametrize(("count", "in_order", "attempt"), [(0, False, 0), (1, True, 1)])
def test_a_launcher_that_counts(machines: Machines, count: int, *, in_order: bool, attempt: int) -> None:
    """Once no rank runs, the same count of restarts is the same start, and another count another one."""
    machines.start(Started("rank0", 0, supervised=0))
    machines.end("rank0", in_order=in_order)

    assert machines.start(Started("rank1", 0, supervised=count)) == attempt


def test_a_rank_that_moves(machines: Machines) -> None:
    """Its former machine is gone, though its agent said a moment ago that a rank runs there."""
    machines.start(Started("rank0", 0, world=1))
    machines.claims["rank0"][1].release()

    assert machines.start(Started("rank0", 1, world=1)) == 1


def test_what_a_rank_that_moved_left_behind(machines: Machines) -> None:
    """A start names the machine whose records may not be delivered, though they are of the same attempt."""
    for who, machine in (("rank0", 0), ("rank1", 1)):
        machines.start(Started(who, machine))
    machines.end("rank1", in_order=False)
    machines.start(Started("rank1", 0))

    (warning,) = left_behind(machines.directory(0), {})
    assert warning.startswith("attempt 0 of the run was recorded on node1")


def test_a_machine_that_says_nothing_more(machines: Machines) -> None:
    """It counts as running for 20 s."""
    machines.start(Started("rank0", 0))
    machines.start(Started("rank1", 1))
    machines.claims["rank1"][1].release()
    soon = machines.start(Started("rank1", 1))
    machines.switch_off(0)
    machines.end("rank1", in_order=False)

    assert (soon, machines.start(Started("rank1", 1))) == (0, 1)


def test_a_rank_that_runs_already(machines: Machines) -> None:
    """Two processes are not one rank at a time."""
    machines.start(Started("rank0", 0))
    with pytest.raises(HeldError, match="give each process its own rank="):
        machines.start(Started("rank0", 0))


@pytest.mark.parametrize(("in_order", "attempt"), [(True, 0), (False, 1)])
def test_a_late_rank(machines: Machines, *, in_order: bool, attempt: int) -> None:
    """The last rank is awaited, also if the others have ended already; but not once one of them has failed."""
    machines.start(Started("rank0", 0))
    machines.end("rank0", in_order=in_order)

    assert machines.start(Started("rank1", 1)) == attempt


def test_the_agent_notes_who_runs(tmp_path: Path) -> None:
    """Other machines read there that the ranks of this one run, and later how they ended."""
    run = otel_rl.init(dir=tmp_path, project="p", id="r", exporters=[], quiet=True, hardware=False)
    (lease,) = (run.dir / "attempts").glob("attempt0.*")

    assert lease.read_bytes() == b"running"
    assert run.finish(30)
    wait_for(lambda: lease.read_bytes() == b"finished", "the agent says nothing")


class Event(NamedTuple):
    """An event of a history: a process or two, or the machine of a process."""

    kind: str
    who: str
    other: str


_WHO = st.sampled_from(["rank0", "rank1", "rank2", "reward", "driver"])
_KINDS = ["start"] * 6 + [
    "race",
    "race",
    "finish",
    "finish",
    "die",
    "die",
    "off",
    "requeue",
    "supervised",
    "all",
    "world",
]
_EVENTS = st.builds(Event, st.sampled_from(_KINDS), _WHO, _WHO)


class History:
    """Plays events to real files and locks, and to the oracle, and leaves out those that are impossible."""

    def __init__(self, place: Path, count: int, *, supervised: bool) -> None:
        self.machines, self._count = Machines(place), count
        self._oracle = Oracle()
        self._requeues, self._world = 0, 3
        self._supervised = dict.fromkeys(range(count), 0) if supervised else {}
        self.actual: list[int] = []
        self.expected: list[int] = []

    def play(self, event: Event) -> None:
        """Let something happen."""
        running = self._oracle.running()
        machine = self._machine_of(event.who)
        if event.kind == "start":
            self._start(event.who)
        elif event.kind == "race" and self._machine_of(event.other) != machine:
            self._race(event.who, event.other)
        elif event.kind in ("finish", "die"):
            self._end([event.who], "finished" if event.kind == "finish" else "failed")
        elif event.kind == "off" and machine > 0:  # what is only on machine 0 is known there
            self.machines.switch_off(machine)
            for who in [who for who, one in running.items() if one.machine == machine]:
                self._oracle.end(who, "gone")
        elif event.kind == "requeue":
            self._end(list(running), "failed")
            self._requeues += 1
        elif event.kind == "supervised" and machine in self._supervised:
            self._end([who for who, one in running.items() if one.machine == machine and one.is_rank], "failed")
            self._supervised[machine] += 1
        elif event.kind == "all":
            self._end(list(running), "failed")
        elif event.kind == "world":
            self._end(list(running), "failed")
            self._world = 5 - self._world

    def _machine_of(self, who: str) -> int:
        return int(who[-1]) % self._count if who[-1].isdigit() else 0

    def _new(self, who: str) -> Started | None:
        if who in self._oracle.running() or (who[-1].isdigit() and int(who[-1]) >= self._world):
            return None
        machine = self._machine_of(who)
        supervised = self._supervised.get(machine) if who.startswith("rank") else None
        return Started(who, machine, self._requeues, supervised, self._world)

    def _start(self, who: str) -> None:
        if (new := self._new(who)) is not None:
            self.actual.append(self.machines.start(new))
            self.expected.append(self._oracle.start(new))

    def _race(self, slower: str, faster: str) -> None:
        """Let two processes on two machines decide at the same moment that they begin an attempt."""
        renew_lease = attempt_entries.renew_lease
        new, other = self._new(slower), self._new(faster)
        if new is None or other is None or not (self._oracle.begins(new) and self._oracle.begins(other)):
            return

        def interrupted(directory: RunDirectory, number: int) -> None:
            with patch.object(attempts, "renew_lease", renew_lease):
                self._start(faster)
            renew_lease(directory, number)

        with patch.object(attempts, "renew_lease", interrupted):  # only a process that begins an attempt calls it
            self.actual.append(self.machines.start(new))
        self.expected.append(self._oracle.start(new))

    def _end(self, names: list[str], state: str) -> None:
        for who in names:
            if who in self._oracle.running():
                self.machines.end(who, in_order=state == "finished")
                self._oracle.end(who, state)


@pytest.mark.parametrize(
    "count",
    [200, pytest.param(samples.of(1_000, 3_000), marks=[pytest.mark.slow, pytest.mark.timeout(900)], id="many")],
)
def test_random_histories(count: int) -> None:
    """Starts, ends, requeues, races and machines that are switched off, on one to three machines."""

    @settings(max_examples=count, deadline=None)
    @given(st.lists(_EVENTS, max_size=25), st.integers(1, 3), st.booleans())
    def check(events: list[Event], machines: int, supervised: bool) -> None:
        with tempfile.TemporaryDirectory() as place:
            history = History(Path(place), machines, supervised=supervised)
            try:
                for event in events:
                    history.play(event)
                    assert history.actual == history.expected
            finally:
                history.machines.close()

    check()
