"""The hang watch over the processes of a run: hangs as records, events, lines in the log, a metric, and `now.json`."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from otel_rl import semconv
from otel_rl.analyses.hang_watch.announced import MOST_SHOWN, events_of
from otel_rl.analyses.hang_watch.usual_times import UsualTimes
from otel_rl.analyses.hang_watch.verdicts import HangVerdict, HangWatch, LiveProcess, ProcessPlace
from otel_rl.analyses.hang_watch.work import Work, work_of
from otel_rl.analysis import Analysis, Point, SpanLeft, StepLeft
from otel_rl.export import Hang
from otel_rl.recorder.agent.hardware.recorder_processes import RecorderProcesses
from otel_rl.recorder.agent.steps.state import is_remote, machine_of
from otel_rl.recorder.facts.signs import Stalled
from otel_rl.recorder.journal.records import Logged, Observed
from otel_rl.semconv import registry
from otel_rl.semconv.phase_categories import is_wait

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.analysis import Basis, Handler, LoopTurn
    from otel_rl.export import Item
    from otel_rl.recorder.agent.steps.state import Journal
    from otel_rl.recorder.journal.records import SpanStarted

_NS = 1_000_000_000
_EVERY_S, _AT_ONCE = 1.0, 500
"""Seconds between two looks; with more than 500 processes it is more, because each takes about 10 µs."""
_STARTS_S = 1800.0
"""Seconds that a rank may take to its first step, or to the second one that it names in `log`."""
_MOST_MEASURED = 32
"""Processes whose work is measured in one look: each takes about a millisecond."""


class OpenHangs(msgspec.Struct):
    """The findings of the watch, for the agent after this one."""

    verdicts: list[HangVerdict]  # the verdicts that stand
    hangs: dict[str, Hang]  # the hangs that last, by journal


class HangWatchAnalysis(Analysis):
    """Learns how long phases take, and looks once a second at the processes of the last attempt.

    A new agent continues with the verdicts of the one before it: it neither repeats nor forgets them.
    """

    def __init__(self, basis: Basis) -> None:
        super().__init__(basis)
        self._usual = UsualTimes()
        self._watch = HangWatch(self._usual, basis.settings.stalled_after)
        self._looked_at = -math.inf
        self._hangs: dict[str, Hang] = {}  # those that last, by journal
        self._recorder = RecorderProcesses()
        self._rows: dict[str, int] = {}  # when each rank that marks no steps logged for its step first
        self._generated, self._generated_at = 0.0, 0  # tokens of the engines so far, and when they became more

    def handlers(self) -> Mapping[type, Handler]:
        """Take the ends of phases and steps, and the values of those that mark no steps."""
        return {SpanLeft: self._leave_span, StepLeft: self._leave_step, Logged: self._log, Observed: self._log}

    def now(self) -> Mapping[str, object]:
        """Return the processes that do not go on, and the usual times of the phases or rows that processes are in."""
        usual = {
            name: seconds
            for name, phase, seconds in self._watch.usual
            if phase or (name in self._rows and not self.basis.state.journals[name].uses_steps)
        }
        return {"stalled": self.shown(), "usual": usual}

    def snapshot(self) -> OpenHangs:
        """Return the verdicts that stand, and the hangs that last."""
        return OpenHangs(self._watch.verdicts, self._hangs)

    def restore(self, saved: bytes) -> None:
        """Continue with them."""
        earlier = msgspec.msgpack.decode(saved, type=OpenHangs)
        self._hangs = earlier.hangs
        self._watch.restore(earlier.verdicts)

    def tick(self, turn: LoopTurn) -> list[Item]:
        """Return the hangs that began, changed or ended, and an event for each verdict that is new or withdrawn."""
        journals = self.basis.state.journals
        if turn.steady - self._looked_at < max(_EVERY_S, len(journals) / _AT_ONCE) and not turn.is_last:
            return []
        self._looked_at = turn.steady
        if self.basis.generated_tokens > self._generated:
            self._generated, self._generated_at = self.basis.generated_tokens, turn.now
        journals = self._journals()
        one_logs = any(one.is_rank and one.takes_part and not one.uses_steps for one in journals.values())
        known_places = (self._process(name, journal, one_logs=one_logs) for name, journal in journals.items())
        processes = [process for process in known_places if process is not None]
        suspects = sorted(self._watch.suspects(turn.steady), key=is_remote)[:_MOST_MEASURED]
        works = {name: self._work(name, journals[name]) for name in suspects if name in journals}
        changes = self._watch.look(processes, works, turn.steady)
        known = self._journals(have_ended=True)  # a process can leave its place and end between two looks
        changes = [one for one in changes if one.verdict.name in known]  # a death has an event of its own
        return [*self._news(turn.now), *events_of(changes, known, turn.now)]

    def shown(self) -> tuple[Stalled, ...]:
        """Return the verdicts that stand, the oldest ones first."""
        known = self.basis.state.journals
        verdicts = sorted(self._standing(), key=lambda one: one.place.since)[:MOST_SHOWN]
        return tuple(
            Stalled(
                kind=one.kind,
                scope=one.scope,
                role=known[one.name].started.role,
                rank=known[one.name].started.rank,
                host=known[one.name].started.host,
                phase=one.place.phase,
                part=one.place.part,
                since_unix_nano=one.place.since,
                usual_s=one.usual.seconds,
                deadline_s=one.usual.deadline,
                evidence=one.evidence,
                silent_since_unix_nano=one.silent_since,
            )
            for one in verdicts
        )

    def points(self) -> list[Point]:
        """Return the number of processes that do not go on, by phase, role, kind and scope."""
        known = self.basis.state.journals
        counts: Counter[tuple[tuple[str, str | int], ...]] = Counter()
        for one in self._standing():
            role, phase = known[one.name].started.role, self.basis.vocabulary.phase(one.place.phase)
            said: dict[str, str | int] = {semconv.STALL_KIND: one.kind, semconv.STALL_SCOPE: one.scope}
            said |= ({semconv.ROLE: role} if role else {}) | ({semconv.PHASE: phase} if phase else {})
            counts[tuple(sorted(said.items()))] += 1
        return [Point(semconv.METRIC_STALLED_PROCESSES, count, who) for who, count in counts.items()]

    def _leave_span(self, name: str, journal: Journal, moment: SpanLeft) -> None:
        begun, ended, _ = moment
        # A phase that an exception or a death left says nothing of how long it takes.
        if begun.kind is None and ended.error is None:
            self._usual.learn((journal.started.role, begun.name, begun.part), (ended.time - begun.time) / _NS)

    def _leave_step(self, name: str, journal: Journal, moment: StepLeft) -> None:
        if moment.seconds is not None and moment.record.error is None:
            self._usual.learn((journal.started.role, "", ""), moment.seconds)

    def _log(self, name: str, journal: Journal, record: Logged | Observed) -> None:
        """Learn the time from one step to the next of a rank that only names them in `log`."""
        if journal.uses_steps or journal.started.role or record.step == journal.position:
            return
        if (before := self._rows.get(name)) is not None:
            self._usual.learn(("", "", ""), max(0, record.time - before) / _NS)
        self._rows[name] = record.time

    def _news(self, now: int) -> list[Hang]:
        """Return the hangs that began, changed or ended since the last look."""
        known = self.basis.state.journals
        lasting = {one.name: self._hang(one, known[one.name], now) for one in self._standing() if one.kind != "slow"}
        news: list[Hang] = []
        for name, hang in [*self._hangs.items()]:
            if name not in lasting or lasting[name].of != hang.of:
                del self._hangs[name]
                news.append(_ended(hang, known.get(name), now))
        for name, hang in lasting.items():
            before = self._hangs.get(name)
            # How busy it is differs from look to look: only what somebody would act on is a change.
            if before is None or replace(hang, time_unix_nano=0, evidence="") != replace(
                before, time_unix_nano=0, evidence=""
            ):
                self._hangs[name] = hang
                news.append(hang)
        return news

    def _hang(self, verdict: HangVerdict, journal: Journal, now: int) -> Hang:
        started, step = journal.started, verdict.place.progress[0]
        before = self._hangs.get(verdict.name)
        cause, culprits = self.basis.broken.get(verdict.name, ("", ()))
        if not cause and before is not None:  # a wait that is retried is open again in a moment
            cause, culprits = before.cause, before.culprits
        return Hang(
            attempt=started.attempt,
            role=started.role,
            rank=started.rank,
            host=started.host,
            pid=started.pid,
            step=step if journal.step >= 0 else None,
            phase=verdict.place.phase,
            part=verdict.place.part,
            started_unix_nano=verdict.progressed,
            time_unix_nano=now,
            kind="silent" if verdict.kind == "silent" else "hung",
            scope=verdict.scope,
            evidence=verdict.evidence,
            cause=cause,
            culprits=culprits,
        )

    def _standing(self) -> list[HangVerdict]:
        """Return the verdicts on processes that have not ended since the last look."""
        known = self.basis.state.journals
        return [one for one in self._watch.verdicts if one.name in known and not known[one.name].over]

    def _journals(self, *, have_ended: bool = False) -> dict[str, Journal]:
        """Return the processes of the last attempt that live, or have ended as they should."""
        known, last = self.basis.state.journals, self.basis.state.last_attempt
        return {
            name: one
            for name, one in known.items()
            if one.started.attempt == last and (not one.over or (have_ended and one.outcome == "finished"))
        }

    def _process(self, name: str, journal: Journal, *, one_logs: bool) -> LiveProcess | None:
        """Return where a process is; `None` if it may wait there as long as it likes.

        If a rank only names its steps in `log`, the ranks that leave this to it name none.
        """
        role, step = journal.started.role, journal.step
        progress = (step, 0) if step >= 0 else (journal.position, 1)
        if (span := _phase(journal)) is not None:
            if role and any(map(is_wait, (span.name, span.part, self.basis.vocabulary.phase(span.name)))):
                return None
            place = ProcessPlace(progress, span.name, span.part, span.time)
            progressed = max(journal.last_time, self._generated_at if self._samples(span.name) else 0)
            return LiveProcess(name, role, place, progressed, arrived=self._arrived(name, journal))
        if role or (one_logs and not journal.takes_part):
            return None  # it waits for work, or leaves logging to another rank
        has_begun = (step >= 0 or journal.step_ended_at > 0) if journal.uses_steps else journal.has_moved
        place = ProcessPlace(progress, "", "", journal.last_time)
        deadline = None if has_begun else _STARTS_S
        if (fixed := self.basis.settings.stalled_after) and has_begun and not journal.uses_steps:
            # It is set for phases; who logs every tenth step alone is silent for longer (test_a_rank_that_logs_rarely).
            deadline = self._usual.or_longer(("", "", ""), fixed)
        return LiveProcess(name, role, place, journal.last_time, deadline, self._arrived(name, journal))

    def _arrived(self, name: str, journal: Journal) -> int:
        """Return when the machine of a process sent something last; 0 for this one."""
        return (self.basis.heard(machine_of(name)) or journal.last_time) if is_remote(name) else 0

    def _samples(self, phase: str) -> bool:
        return registry.stages().get(self.basis.vocabulary.phase(phase)) == "sample"

    def _work(self, name: str, journal: Journal) -> Work:
        started = journal.started
        work = (None if is_remote(name) else work_of(started.pid, started.time, self._recorder)) or Work(math.nan)
        used = [self.basis.utilization.get(one.uuid, 0.0) for one in journal.devices.values()]
        return work._replace(gpu=max(used, default=0.0))


def _ended(hang: Hang, journal: Journal | None, now: int) -> Hang:
    """Return a hang with its end: when its process made progress again, or died."""
    is_down = journal is None or (journal.over and journal.outcome != "finished")
    ended = now if journal is None else journal.ended_at if is_down else journal.last_time
    if ended <= hang.started_unix_nano:
        ended = now
    ending: Literal["over", "resumed"] = "over" if is_down else "resumed"
    return replace(hang, time_unix_nano=now, ended_unix_nano=ended, ending=ending)


def _phase(journal: Journal) -> SpanStarted | None:
    """Return the open phase that a process is in: of those of several threads or tasks, the one that began first."""
    phases = [one for one in journal.spans.values() if one.kind is None]
    if len(phases) < 2:
        return phases[0] if phases else None
    parents = {one.parent_id for one in journal.spans.values()}
    return next((one for one in phases if one.span_id not in parents), phases[-1])
