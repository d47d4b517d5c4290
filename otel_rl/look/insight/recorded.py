"""The basis of findings: the tables of a run, each read once, and aggregated in SQL."""

from __future__ import annotations

import math
import shlex
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from otel_rl import semconv
from otel_rl.look.insight.hung_time import hung_intervals
from otel_rl.look.insight.series import EMPTY, Series
from otel_rl.look.insight.step_rows import WHOLE, step_seconds
from otel_rl.look.reader.result import lines_of
from otel_rl.look.reader.runs import RunReader
from otel_rl.look.reader.valid import literal
from otel_rl.recorder.archive import files
from otel_rl.recorder.archive.json_texts import decoded
from otel_rl.recorder.archive.now import read_now
from otel_rl.recorder.archive.runs import machines
from otel_rl.recorder.archive.tables import SPANS
from otel_rl.recorder.directory.parts import ARCHIVE
from otel_rl.recorder.facts.processes import process_name
from otel_rl.recorder.files.atomic_files import read_shown_json
from otel_rl.semconv.main_metrics import STEP_TIME, MainMetrics

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from otel_rl.look.insight.series import Integers
    from otel_rl.recorder.archive.now import Now
    from otel_rl.recorder.facts.goodput import Interval
    from otel_rl.semconv.main_metrics import Topic

_MOST_EVENTS = 10_000
_LEAST_STEPS = 5
RECENT_MEANS = 200
"""Steps that make up the mean of the recent steps."""
TROUBLE = (
    semconv.EVENT_STRAGGLER,
    semconv.EVENT_MEMORY_GROWING,
    semconv.EVENT_MEMORY_EXHAUSTED,
    semconv.EVENT_NUMERICS_NONFINITE,
    semconv.EVENT_POLICY_DIVERGED,
    semconv.EVENT_POLICY_ROUNDED,
    semconv.EVENT_TRAINING_ANOMALY,
    semconv.EVENT_PROCESS_FAILED,
    semconv.EVENT_PROCESS_LOST,
    semconv.EVENT_PROCESS_REVIVED,
)
"""The events of otel-rl that findings are made of."""


_TRAJECTORIES = ", ".join(map(literal, (semconv.SPAN_ROLLOUT, semconv.SPAN_TRAJECTORY)))
_STAGES = ", ".join(literal(f"rl.{stage}") for stage in ("sample", "reward", "train", "sync"))
PHASE = f"(name = phase OR name IN ({_STAGES}))"
"""Whether a span with a phase is the whole phase, not a part of it, in SQL."""


class RunMember(NamedTuple):
    """A process of an attempt."""

    attempt: int
    role: str
    rank: int
    world_size: int
    host: str
    pid: int
    started_unix_nano: int
    ended_unix_nano: int | None
    outcome: str | None
    error: str

    @property
    def label(self) -> str:
        """Its name in sentences: `rank 3`, or its role and its number."""
        return process_name(self.role, self.rank)


class End(NamedTuple):
    """The end of an attempt."""

    attempt: int
    time_unix_nano: int
    outcome: str
    error: str


class RecordedEvent(NamedTuple):
    """An event of otel-rl."""

    name: str
    time_unix_nano: int
    step: int | None
    rank: int | None
    attributes: dict[str, Any]

    @property
    def role(self) -> str:
        """The role of the process; empty for a trainer rank."""
        return str(self.attributes.get(semconv.ROLE, ""))

    @property
    def host(self) -> str:
        """The machine of the process; empty if it is unknown."""
        return str(self.attributes.get(semconv.HOST_NAME, ""))


class SpanTotal(NamedTuple):
    """The spans of a kind of a process: of a phase, of the steps of an attempt, or of trajectories."""

    kind: str
    phase: str | None
    attempt: int | None
    role: str
    rank: int
    number: int
    seconds: float
    longest: float
    began_unix_nano: int


class StepRange(NamedTuple):
    """The steps of the valid history: the first, the last, how many, and when the last one was recorded."""

    first: int
    last: int
    number: int
    last_unix_nano: int


class RecordedRun:
    """A run, as it was recorded up to now. Everything is read when it is first asked for.

    Attributes:
        run: The reader.
        at_unix_nano: The time by which "live" is decided.
    """

    def __init__(self, run: RunReader, at_unix_nano: int | None = None) -> None:
        self.run = run
        self.place = run.place
        self.at_unix_nano = time.time_ns() if at_unix_nano is None else at_unix_nano
        self._series: dict[str, Series] = {}

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The content of `run.json`; empty if there is none."""
        return read_shown_json(self.place.path / "run.json", dict[str, Any], self.place.path) or {}

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The latest hyperparameters."""
        return self.run.parameters

    @cached_property
    def members(self) -> list[RunMember]:
        """The processes of all attempts; those that the agent sees now, while the archive has none yet."""
        query = f"SELECT {', '.join(RunMember._fields)} FROM attempts ORDER BY attempt, role, rank, started_unix_nano"
        members = [RunMember(*line) for line in lines_of(self.run.sql(query))]
        if members or not self.now:
            return members
        began = self.began_unix_nano
        return [
            RunMember(
                process.attempt,
                process.role,
                process.rank,
                1,
                process.host,
                process.pid,
                began,
                None,
                process.outcome,
                "",
            )
            for process in self.now[0].processes
        ]

    @cached_property
    def began_unix_nano(self) -> int:
        """When `run.json` was written, which the first process does; 0 if there is none."""
        try:
            return (self.place.path / "run.json").stat().st_mtime_ns
        except OSError:
            return 0

    @cached_property
    def ends(self) -> list[End]:
        """The ends of attempts, in the order of their times."""
        query = f"SELECT {', '.join(End._fields)} FROM ends ORDER BY attempt, time_unix_nano"
        return [End(*line) for line in lines_of(self.run.sql(query))]

    @cached_property
    def now(self) -> list[Now]:
        """The states that agents wrote last, the newest first."""
        return read_now(self.place.path)

    @cached_property
    def events(self) -> list[RecordedEvent]:
        """The events of otel-rl, in the order of their times."""
        names = ", ".join(map(literal, TROUBLE))
        query = (
            "SELECT name, time_unix_nano, step, rank, attributes FROM events"
            f" WHERE name IN ({names}) ORDER BY time_unix_nano, name, rank, attributes LIMIT {_MOST_EVENTS}"
        )
        return [
            RecordedEvent(name, at, step, rank, decoded(attributes) or {})
            for name, at, step, rank, attributes in lines_of(self.run.sql(query))
        ]

    def events_of(self, name: str) -> list[RecordedEvent]:
        """Return the events of a name."""
        return [event for event in self.events if event.name == name]

    @cached_property
    def spans(self) -> list[SpanTotal]:
        """The spans of phases inside steps, of steps, and of trajectories of processes with a role, summed up."""
        query = f"""
            SELECT CASE WHEN name = '{semconv.SPAN_LOOP}' THEN 'step' WHEN name IN ({_TRAJECTORIES}) THEN 'trajectory'
                ELSE 'phase' END AS kind, phase,
                CASE WHEN name = '{semconv.SPAN_LOOP}' THEN attempt END AS attempt,
                coalesce(role, '') AS role, coalesce(rank, 0) AS rank,
                count(*) AS number, sum(duration_ns)::DOUBLE / 1e9 AS seconds,
                max(duration_ns) / 1e9 AS longest, min(start_unix_nano) AS began
            FROM spans WHERE (((phase IS NOT NULL AND step IS NOT NULL AND {PHASE}) OR name = '{semconv.SPAN_LOOP}')
                AND {self.whole_steps}) OR (role IS NOT NULL AND name IN ({_TRAJECTORIES}))
            GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5"""
        return [SpanTotal(*line) for line in lines_of(self.run.sql(query))]

    @cached_property
    def steps(self) -> StepRange | None:
        """The steps of the valid history; `None` without any."""
        query = """
            SELECT min(began), max(step), sum(step - began + 1)::BIGINT, max(last_time) FROM (
                SELECT step, min(coalesce(begins, step)) AS began, max(time_unix_nano) AS last_time
                FROM steps GROUP BY step)"""
        (counts,) = lines_of(self.run.sql(query))
        return None if counts[0] is None else StepRange(*counts)

    def ended_at(self, step: int) -> int:
        """Return when a step ended, in Unix nanoseconds; before the first one, 0."""
        steps, times = self._ends_of_steps
        at = int(np.searchsorted(steps, step, "right")) - 1
        return int(times[at]) if at >= 0 else 0

    @cached_property
    def _ends_of_steps(self) -> tuple[Integers, Integers]:
        rows = self.run.sql("SELECT step, max(time_unix_nano) AS at FROM steps WHERE NOT late GROUP BY step ORDER BY 1")
        return np.asarray(rows["step"], np.int64), np.asarray(rows["at"], np.int64)

    @cached_property
    def firsts(self) -> list[tuple[int, int, int]]:
        """Of each attempt with steps: its number, its first step, and its last one, also if a later one repeats it."""
        query = "SELECT attempt, min(step), max(step) FROM steps WHERE NOT late GROUP BY attempt ORDER BY attempt"
        return [(int(a), int(b), int(c)) for a, b, c in lines_of(self.every.sql(query))]

    @cached_property
    def every(self) -> RunReader:
        """A reader of all attempts, with steps that a later one repeats."""
        is_one = len({member.attempt for member in self.members}) == 1
        return self.run if is_one else RunReader([self.place], "all")

    @cached_property
    def damaged(self) -> list[Path]:
        """Files of the archive that cannot be read."""
        return self.run.damaged

    @property
    def lacks_spans(self) -> bool:
        """Whether a file of spans cannot be read."""
        return any(path.parent.name == SPANS.name for path in self.damaged)

    @cached_property
    def thinned(self) -> tuple[int, int]:
        """How many spans are left, and how many there were: old ones are thinned to keep an archive below its limit."""
        archive = self.place.path / ARCHIVE
        lists = (files.of_table(archive / machine, SPANS.name) for machine in machines(archive))
        were = sum(file.end - file.first for listed in lists for file in listed)
        if not were or self.lacks_spans:
            return 0, 0
        return int(self.every.sql("SELECT count(*) AS n FROM spans")["n"][0]), were

    @cached_property
    def whole_steps(self) -> str:
        """The condition, in SQL, that no process died inside a step, and that all its spans are left.

        Of thinned steps, the slowest ones are.
        """
        left, were = self.thinned
        if left >= were:
            return WHOLE
        of_step = "SELECT step, count(*) AS n FROM spans WHERE phase IS NOT NULL AND step IS NOT NULL GROUP BY step"
        most = self.run.sql(f"SELECT quantile_cont(n, 0.99) AS n FROM ({of_step})")["n"]
        least = float(most[0]) / 2 if len(most) and most[0] else 0.0
        return f"step IN (SELECT step FROM ({of_step}) WHERE n >= {least}) AND {WHOLE}"

    @cached_property
    def names(self) -> dict[str, bool]:
        """The names of metrics; true for those that otel-rl measured or derived."""
        rows = self.run.sql("SELECT name, bool_and(measured) FROM rows GROUP BY name ORDER BY name")
        return {str(name): bool(measured) for name, measured in lines_of(rows)}

    @cached_property
    def main(self) -> MainMetrics:
        """The main metrics, under the framework's own names."""
        dialect = self.manifest.get("dialect")
        try:
            return MainMetrics(self.names, dialect if isinstance(dialect, str) and dialect else "auto")
        except FileNotFoundError:  # a later version wrote the run
            return MainMetrics(self.names)

    def of_topic(self, topic: Topic) -> tuple[str, Series]:
        """Return the name and the values of a main metric; an empty name if the run has none."""
        name = self.main.name(topic)
        return name, self.series(name)

    def series(self, name: str) -> Series:
        """Return the values of a metric by step; empty if the run has none."""
        if name not in self.names:
            return EMPTY
        if name not in self._series:
            wanted = {name, STEP_TIME} | {other for names in self.main.by_topic.values() for other in names}
            # All main metrics at once: each query opens the files again.
            self.load(wanted)
        return self._series[name]

    def recent_mean(self, name: str, count: int = RECENT_MEANS, least: int = _LEAST_STEPS) -> float:
        """Return the mean of a metric over the last steps; NaN if the run has none, or fewer values than the least."""
        series = self.series(name).finite
        if len(series.steps) < least or self.steps is None:
            return math.nan
        return series.between(self.steps.last - count + 1, self.steps.last).mean

    def load(self, names: Iterable[str]) -> None:
        """Read the values of several metrics at once."""
        wanted = [name for name in dict.fromkeys(names) if name in self.names and name not in self._series]
        if not wanted:
            return
        cases = " ".join(f"WHEN {literal(name)} THEN {n}" for n, name in enumerate(wanted))
        listed = ", ".join(map(literal, wanted))
        rows = self.run.sql(f"SELECT CASE name {cases} END AS n, step, value FROM rows WHERE name IN ({listed})")
        numbers = np.asarray(rows["n"], np.int64)
        order = np.lexsort((rows["step"], numbers))
        numbers, steps = numbers[order], np.asarray(rows["step"], np.int64)[order]
        values = np.asarray(rows["value"], np.float64)[order]
        bounds = np.searchsorted(numbers, np.arange(len(wanted) + 1))
        for n, name in enumerate(wanted):
            begin, end = bounds[n], bounds[n + 1]
            self._series[name] = _merged(Series(steps[begin:end], values[begin:end]))

    @cached_property
    def step_times(self) -> Series:
        """The wall time of each step in seconds."""
        known = step_seconds(self.run)
        return Series(*map(np.array, zip(*known, strict=True))) if known else EMPTY

    @cached_property
    def hung(self) -> list[Interval]:
        """The intervals in which no rank made progress, in Unix nanoseconds; what lasts was seen by an agent last."""
        return hung_intervals(self.run, self.every, self.now, self.at_unix_nano)

    def host_of(self, rank: int | None, attempt: int | None = None) -> str:
        """Return the machine of a trainer rank; empty if it is unknown."""
        hosts = [
            member.host
            for member in self.members
            if member.rank == rank and not member.role and (attempt is None or member.attempt == attempt)
        ]
        return hosts[-1] if hosts else ""

    @cached_property
    def last_attempt(self) -> int:
        """The number of the last attempt."""
        return max((member.attempt for member in self.members), default=0)

    def hosts_of(self, attempt: int) -> tuple[str, ...]:
        """Return the machines of an attempt."""
        return tuple(dict.fromkeys(member.host for member in self.members if member.attempt == attempt))

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The machines of the last attempt."""
        return self.hosts_of(self.last_attempt)

    @cached_property
    def ranks(self) -> int:
        """Number of trainer ranks of the last attempt."""
        of_last = (member for member in self.members if member.attempt == self.last_attempt and not member.role)
        return len({member.rank for member in of_last})

    def command(self, verb: str) -> str:
        """Return a command of otel-rl about this run, in backquotes."""
        return f"`otel-rl {verb} {shlex.quote(str(self.place.path))}`"

    def rank_text(self, rank: int, role: str = "", host: str = "") -> str:
        """Return a process in words: `rank 3 (node2)`, without the machine if there is only one."""
        name = process_name(role, rank)
        host = host or ("" if role else self.host_of(rank))
        return f"{name} ({host})" if host and len(self.hosts) > 1 else name


def in_sample(first: int, last: int, most: int, ranges: int) -> str:
    """Return the condition, in SQL, that a step is among those looked at: all, or ranges with `most` steps together.

    Neighboring steps are in the same files, so that a long run is read as fast as a short one.
    """
    if last - first < most:
        return f"step BETWEEN {first} AND {last}"
    length = most // ranges
    begins = [first + n * (last - first - length) // (ranges - 1) for n in range(ranges)]
    return f"({' OR '.join(f'step BETWEEN {begin} AND {begin + length}' for begin in begins)})"


def _merged(series: Series) -> Series:
    """Return one value for each step: without a head agent, each machine has one, and their mean is shown."""
    steps, values = series
    fresh = np.flatnonzero(np.diff(steps, prepend=steps[0] - 1)) if len(steps) else np.array([], np.int64)
    if len(fresh) == len(steps):
        return series
    return Series(steps[fresh], np.add.reduceat(values, fresh) / np.diff([*fresh, len(steps)]))
