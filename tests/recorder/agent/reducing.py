"""A reducer as the agent makes it, fed by hand."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import msgspec

from otel_rl.analysis import Basis
from otel_rl.export import Item, Row
from otel_rl.recorder.agent.steps.analyses import Analyses, registered
from otel_rl.recorder.agent.steps.naming import Reductions
from otel_rl.recorder.agent.steps.reduce import Reducer
from otel_rl.recorder.agent.steps.state import State
from otel_rl.recorder.delivery.quarantine import Quarantine
from otel_rl.recorder.journal.records import Logged, Observed, Record, Started, StepEnded, StepStarted
from otel_rl.recorder.settings.settings import AgentSettings, Flops, Rows
from otel_rl.semconv.vocabulary import Vocabulary

S = 1_000_000_000


def reducing(
    patterns: Mapping[str, str | Sequence[str]] | None = None,
    state: State | None = None,
    *,
    dialect: str = "auto",
    quantiles: Sequence[str] = (),
    model: Flops | None = None,
    whole_world: bool = False,
    anomalies: bool = True,
    messages: bool = True,
    saved: Mapping[str, msgspec.Raw] | None = None,
    stalled_after: float = 0.0,
) -> Reducer:
    """Return a reducer that waits 10 s for the ranks."""
    vocabulary, quarantine = Vocabulary(dialect), Quarantine()
    state = State() if state is None else state
    settings = AgentSettings(rows=Rows(anomalies=anomalies), stalled_after=stalled_after)
    basis = Basis(state=state, vocabulary=vocabulary, settings=settings)
    analyses = Analyses(registered(quarantine), basis, quarantine, saved or {})
    reductions = Reductions(patterns or {}, vocabulary.read, quantiles, vocabulary.is_so_far)
    settled = model or Flops()
    wanted = {"whole_world": whole_world, "messages": messages}
    parts = {"quarantine": quarantine, "analyses": analyses}
    return Reducer("run", reductions, vocabulary, settled, 10, state, **parts, **wanted)


def started(rank: int = 0, *, attempt: int = 0, local: int = 1, role: str = "") -> Started:
    return Started("run", attempt, rank, local, local, role, 1, "host", 4096, 0)


def rows(items: Sequence[Item]) -> list[Row]:
    return [item for item in items if isinstance(item, Row)]


def step(n: int, at: int, *records: Record) -> list[Record]:
    return [StepStarted(n, at, b""), *records, StepEnded(n, at + S, b"")]


def feed(reducer: Reducer, journal: str, *records: Record) -> list[Item]:
    return reducer.feed([(journal, record) for record in records]).items


def observed(n: int, **values: Sequence[float]) -> Observed:
    """Return observations by name; `__` in a name is a slash."""
    return Observed(n, 1, {name.replace("__", "/"): array("d", found).tobytes() for name, found in values.items()})


def row_of(reducer: Reducer, ranks: Sequence[Sequence[Record]]) -> dict[str, int | float]:
    """Return the values of step 0, which each rank goes through with its records; without times."""
    reducer.feed([(f"rank{n}", started(n, local=len(ranks))) for n in range(len(ranks))])
    for n, records in enumerate(ranks):
        feed(reducer, f"rank{n}", *step(0, 0, *records))
    items = reducer.feed([(f"rank{n}", StepStarted(1, 2 * S, b"")) for n in range(len(ranks))]).items
    measured = ("time/", "perf/")
    return {name: value for name, value in rows(items)[0].values.items() if not name.startswith(measured)}


def logged(n: int = 0, weight: float = 1, **values: float) -> Logged:
    """Return values by name; `__` in a name is a slash."""
    return Logged(n, 1, {name.replace("__", "/"): value for name, value in values.items()}, weight)
