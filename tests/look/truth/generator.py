"""Writes a run as its agents would have: the records of its processes go through their pipeline, at chosen times."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from otel_rl.analysis import LoopTurn
from otel_rl.export import Item
from otel_rl.recorder.agent.output.gauges import Gauges
from otel_rl.recorder.agent.output.present import Present
from otel_rl.recorder.agent.steps.pipeline import Pipeline
from otel_rl.recorder.agent.steps.state import Checkpoint, State
from otel_rl.recorder.archive.now import place_of
from otel_rl.recorder.archive.writer import ArchiveWriter
from otel_rl.recorder.delivery.quarantine import Quarantine
from otel_rl.recorder.directory.agent_start import AgentStatus
from otel_rl.recorder.directory.directory import Manifest, RunDirectory
from otel_rl.recorder.directory.parts import ARCHIVE
from otel_rl.recorder.journal.ending import ending_by_status
from otel_rl.recorder.journal.ids import packed_step_ids
from otel_rl.recorder.journal.record_events import Lost
from otel_rl.recorder.journal.records import (
    Configured,
    Finished,
    Logged,
    Record,
    SpanEnded,
    SpanStarted,
    Started,
    StepEnded,
    StepStarted,
)
from otel_rl.recorder.settings.settings import AgentSettings
from tests.look.truth.construction import (
    BEGAN,
    DEADLINE_S,
    TURN_NS,
    UNSAVED_NS,
    WORKER,
    Attempt,
    MadeRun,
    RankStep,
    S,
    Step,
)

RUN = "run"
_FIRST_PID = 1 << 23
"""No process of a machine has such a number: the agent must see nothing of the processes of the test."""
_ERROR = "ValueError", "no prompt"
_SENDS_NS = 10 * S
"""How often another machine sends something, be it only that it is there."""


class Fact(NamedTuple):
    """A record of a process, and when its agent read it."""

    at: int
    journal: str
    record: Record


class _Exporters(NamedTuple):
    threads: tuple[()] = ()


class _Agent:
    """The agent of a machine: its pipeline, its archive, and the file that says what is now."""

    def __init__(self, run: MadeRun, directory: Path, machine: str) -> None:
        self._run, self._machine = directory, machine
        manifest = Manifest(
            id=RUN,
            project="grpo",
            name="baseline",
            exporters=[("archive", {})],
            readers=[],
            resource={},
            dialect="auto",
            agent=AgentSettings(stalled_after=DEADLINE_S),
            receives="localhost:4320" if run.recipe.where == "head" else "",
            idle_timeout=60,
            journal_limit=1 << 30,
        )
        (directory / "run.json").write_bytes(msgspec.json.encode(manifest))
        self._quarantine = Quarantine()
        self._pipeline = Pipeline(manifest, Checkpoint({}, State()), self._quarantine, everything=True)
        silent_since = run.silent_since or run.now
        self._pipeline.analyses.basis.heard = lambda machine: min(self._turn_at, silent_since) // _SENDS_NS * _SENDS_NS
        place = RunDirectory(directory, directory / "local" / machine, machine)
        self._present = Present(place, manifest, self._pipeline, Gauges(machine), of_archive=False)
        self._writer = ArchiveWriter(directory / ARCHIVE / machine, 1 << 60)
        self._turn_at = BEGAN

    def read(self, facts: list[Fact], until: int, saved_until: int) -> None:
        """Read all facts until a moment, in turns; the archive gets what was made until another one."""
        place = 0
        while self._turn_at < until:
            self._turn_at = min(until, self._turn_at + TURN_NS)
            first = place
            while place < len(facts) and facts[place].at <= self._turn_at:
                place += 1
            self._turn(facts[first:place], is_saved=self._turn_at <= saved_until)
        self._writer.save()
        assert self._quarantine.count == 0

    def write(self, at: int) -> None:
        """Write what is now."""
        state = "ended" if self._pipeline.reducer.is_finished else "ready"
        now = self._present.state(_Exporters(), AgentStatus(pid=os.getpid(), state=state))  # type: ignore[arg-type]
        path = place_of(self._run, self._machine)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(now, time_unix_nano=at)))

    def _turn(self, facts: list[Fact], *, is_saved: bool) -> None:
        now, steady = self._turn_at, self._turn_at - BEGAN
        made = self._pipeline.reducer.feed([(fact.journal, fact.record) for fact in facts], steady)
        made.add(self._pipeline.reducer.tick(steady))
        made.items += self._pipeline.analyses.tick(LoopTurn(now, steady / S, made.items, False))
        items: list[Item] = self._pipeline.leaving(made.items, made, now)
        self._present.add(items)
        for item in items if is_saved else ():
            self._writer.add(item)


def write(run: MadeRun, directory: Path) -> None:
    """Write the run directory of a run."""
    directory.mkdir(parents=True)
    recipe = run.recipe
    if recipe.ending == "nothing":
        manifest = {"id": RUN, "project": "grpo", "name": "baseline"}
        (directory / "run.json").write_bytes(msgspec.json.encode(manifest))
        return
    facts = sorted(facts_of(run), key=lambda fact: fact.at)
    machines = sorted({*run.hosts}) if recipe.where == "apart" else ["node1"]
    for machine in machines:
        agent = _Agent(run, directory, machine)
        of_machine = [fact for fact in facts if recipe.where != "apart" or fact.journal.endswith(f"@{machine}")]
        if recipe.where == "apart":
            of_machine = [fact._replace(journal=fact.journal.partition("@")[0]) for fact in of_machine]
        saved = run.written - (UNSAVED_NS if recipe.unsaved else 0)
        agent.read(of_machine, run.written, saved)
        agent.write(run.written)
    if recipe.damaged:
        _damage(directory)


def facts_of(run: MadeRun) -> Iterator[Fact]:
    """Yield the records of all processes, as far as they arrive."""
    for number, attempt in enumerate(run.attempts):
        for worker in range(run.recipe.workers):
            journal = f"rollout{worker}.attempt{number}" + ("@node1" if run.recipe.where == "apart" else "")
            for record in _records_of_worker(run, number, attempt, worker):
                if (at := getattr(record, "time", 0)) <= run.written:
                    yield Fact(at, journal, record)
        for rank in range(run.recipe.ranks):
            journal = f"rank{rank}.attempt{number}"
            if run.recipe.where == "apart":
                journal += f"@{run.hosts[rank]}"
            elif run.hosts[rank] != "node1":
                journal += "@node2"
            for record in _Rank(run, number, attempt, rank).records():
                at = getattr(record, "time", 0)
                if at <= run.written and not (run.silent_since and at > run.silent_since and "@" in journal):
                    yield Fact(at, journal, record)


def _records_of_worker(run: MadeRun, number: int, attempt: Attempt, worker: int) -> Iterator[Record]:
    workers = run.recipe.workers
    pid = _FIRST_PID + run.recipe.ranks + worker
    yield Started(RUN, number, worker, workers, workers, "rollout", pid, "node1", 4096, attempt.started + S)
    own = (trajectory for trajectory in attempt.trajectories if trajectory.worker == worker)
    for place, trajectory in enumerate(own, ((number * 100 + worker) << 20) + 1):
        trace = place.to_bytes(16, "big")
        yield SpanStarted(place, 0, trace, None, "rl.trajectory", trajectory.began, b"", 1)
        if trajectory.ended is not None:
            tokens = {"rl.trajectory.tokens": 50, "rl.policy.version": trajectory.version}
            yield SpanEnded(place, trajectory.ended, b"", tokens)
    yield from _end(attempt, WORKER if worker == 0 else -1)


def _end(attempt: Attempt, rank: int) -> Iterator[Record]:
    """Yield the end of a process, if it has ended; an exception is that of its rank."""
    end = next((end for end in attempt.ends if end.rank == rank), None)
    end = end or next((end for end in attempt.ends if end.rank == -1), None)
    match end.how if end is not None else "":
        case "finished":
            yield Finished(end.at)
        case "failed":
            yield Finished(end.at, "failed", _ERROR, 1)
        case "SIGTERM":
            yield Finished(end.at, *ending_by_status(143))
        case "killed":
            yield Lost(end.at, "signal", 137)


class _Rank:
    """The records of a rank in an attempt."""

    def __init__(self, run: MadeRun, number: int, attempt: Attempt, rank: int) -> None:
        self._run, self._number, self._attempt, self._rank = run, number, attempt, rank
        self._span = (number * 10_000 + rank + 1) << 32

    def records(self) -> Iterator[Record]:
        run, recipe, rank = self._run, self._run.recipe, self._rank
        local = sum(host == run.hosts[rank] for host in run.hosts)
        pid, began = _FIRST_PID + rank, self._attempt.started
        yield Started(RUN, self._number, rank, recipe.ranks, local, "", pid, run.hosts[rank], 4096, began)
        if rank == 0 and recipe.announces:
            yield Configured(began, {"max_steps": recipe.steps + 100})
        failed = next((end.at for end in self._attempt.ends if (end.rank, end.how) == (rank, "failed")), None)
        for step in self._attempt.steps:
            yield from self._log(step) if recipe.only_logs else self._step(step, failed)
        yield from _end(self._attempt, rank)

    def _values(self, step: Step) -> dict[str, float]:
        is_nan = self._run.recipe.nan and step.number == 4
        return {"reward": 0.3 + 0.001 * step.number, "loss": float("nan") if is_nan else 1 / (step.number + 2)}

    def _log(self, step: Step) -> Iterator[Record]:
        if step.is_whole and step.number % 10 == 0:
            yield Logged(step.number, step.ended, self._values(step))

    def _step(self, step: Step, failed: int | None) -> Iterator[Record]:
        of_rank: RankStep = step.ranks[self._rank]
        trace, root = packed_step_ids(RUN, self._number, step.number)
        yield StepStarted(step.number, step.began, b"")
        moments: list[tuple[int, int, Record]] = []
        spans = [self._next_span() for _ in of_rank.phases]
        for place, phase in enumerate(of_rank.phases):
            parent = root if phase.parent < 0 else spans[phase.parent]
            begun = SpanStarted(spans[place], parent, trace, step.number, phase.name, phase.began, b"")
            moments.append((phase.began, place, begun))
            if phase.ended is not None:
                moments.append((phase.ended, -place, SpanEnded(spans[place], phase.ended, b"")))
            elif failed is not None:
                moments.append((failed, -place, SpanEnded(spans[place], failed, b"", error=_ERROR)))
        for _, _, record in sorted(moments, key=lambda moment: moment[:2]):
            yield record
        if of_rank.left is not None:
            yield Logged(step.number, of_rank.left, self._values(step))
            yield StepEnded(step.number, of_rank.left, b"")
        elif failed is not None:
            yield StepEnded(step.number, failed, b"", error=_ERROR)

    def _next_span(self) -> int:
        self._span += 1
        return self._span


def _damage(directory: Path) -> None:
    """Tear the first file of the spans."""
    first = min(path for path in directory.glob(f"{ARCHIVE}/*/**/spans/*.parquet"))
    os.truncate(first, first.stat().st_size // 2)
