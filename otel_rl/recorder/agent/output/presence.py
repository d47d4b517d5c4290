"""The current state of the run: its attempt, its ranks, and the phase that each process is in."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from otel_rl import semconv
from otel_rl.analysis import Point
from otel_rl.recorder.agent.steps.state import rank_and_role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from otel_rl.analysis import Attributes
    from otel_rl.recorder.agent.steps.state import Journal
    from otel_rl.semconv.vocabulary import Vocabulary

_UNKNOWN = "unknown"
_MOST_DOWN = 64
"""Maximum number of processes that are shown as down: it bounds the series, and includes the first one."""


def points(journals: Iterable[Journal], vocabulary: Vocabulary, now: int) -> list[Point]:
    """Return the run's attempt, framework, start and ranks, who went down when, and the age of open phases."""
    known = list(journals)
    if not known:
        return []
    attempt = max(journal.started.attempt for journal in known)
    latest = [journal for journal in known if journal.started.attempt == attempt]
    began = min(journal.started.time for journal in latest)
    world = max((journal.started.world_size for journal in latest if journal.is_rank), default=0)
    whose = ((semconv.FRAMEWORK, vocabulary.chosen or _UNKNOWN), (semconv.RUN_ATTEMPT, attempt))
    shown = [
        Point(semconv.METRIC_RUN_INFO, 1, whose),
        Point(semconv.METRIC_RUN_STARTED_TIMESTAMP, began / 1e9),
        Point(semconv.METRIC_RUN_RANKS, world, ((semconv.RANK_STATE, "expected"),)),
        Point(semconv.METRIC_RUN_RANKS, _alive(latest), ((semconv.RANK_STATE, "alive"),)),
    ]
    down = sorted((journal for journal in latest if journal.order), key=attrgetter("order"))[:_MOST_DOWN]
    shown += [Point(semconv.METRIC_PROCESS_DOWN_TIMESTAMP, one.ended_at / 1e9, _how(one)) for one in down]
    return shown + [point for journal in latest if (point := _open_phase(journal, vocabulary, now))]


def present(journals: Sequence[Journal]) -> Sequence[Journal]:
    """Return the processes that live; all if none does: a short run's last values wait for delivery."""
    return [journal for journal in journals if not journal.over] or journals


def of_process(journal: Journal, who: Attributes) -> Iterator[Point]:
    """Yield the time of the last step of a process, and its memory."""
    if journal.step_ended_at:
        yield Point(semconv.METRIC_STEP_LAST_COMPLETED_TIMESTAMP, journal.step_ended_at / 1e9, who)
    if journal.resident and not journal.over:
        yield Point(semconv.METRIC_PROCESS_MEMORY_USAGE, journal.resident, who)
        yield Point(semconv.METRIC_PROCESS_MEMORY_VIRTUAL, journal.virtual, who)


def _how(journal: Journal) -> tuple[tuple[str, str | int], ...]:
    return tuple(sorted((rank_and_role(journal.started) | {semconv.PROCESS_OUTCOME: journal.outcome}).items()))


def _alive(journals: Iterable[Journal]) -> int:
    return len({journal.started.rank for journal in journals if journal.is_rank and not journal.over})


def _open_phase(journal: Journal, vocabulary: Vocabulary, now: int) -> Point | None:
    innermost = next((span_id for span_id in reversed(journal.phases) if span_id in journal.spans), None)
    if innermost is None or journal.over:
        return None
    span = journal.spans[innermost]
    place = {semconv.PHASE: vocabulary.phase(span.name), **rank_and_role(journal.started)}
    return Point(semconv.METRIC_PHASE_OPEN_TIME, max(0, now - span.time) / 1e9, tuple(sorted(place.items())))
