"""All facts of a run, from one reading of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec

from otel_rl.errors.sinks import log_of
from otel_rl.insight.facts import SEVERITIES, Facts, Finding
from otel_rl.insight.findings.change import change, step_changes
from otel_rl.insight.findings.data import data
from otel_rl.insight.findings.engines import engines
from otel_rl.insight.findings.environment import environment
from otel_rl.insight.findings.goodput import goodput
from otel_rl.insight.findings.learning import learning
from otel_rl.insight.findings.memory import memory
from otel_rl.insight.findings.mismatch import mismatch
from otel_rl.insight.findings.outcome import outcome
from otel_rl.insight.findings.recording import recording
from otel_rl.insight.findings.straggler import straggler
from otel_rl.insight.findings.texts import texts
from otel_rl.insight.findings.time_spent import time_spent
from otel_rl.insight.findings.waits import waits
from otel_rl.insight.phases import phase_times, shares_of
from otel_rl.insight.recorded import Recorded
from otel_rl.insight.state import standing
from otel_rl.insight.summary import summarized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from otel_rl.archive.reader import RunReader

logger = log_of(__name__)
_Arguments = ParamSpec("_Arguments")


def facts_of(run: RunReader, *, at_unix_nano: int | None = None) -> Facts:
    """Return the facts of a run: its summary, its findings, where its time went, and its main metrics.

    Args:
        run: The reader, of `otel_rl.open_run`.
        at_unix_nano: The time by which "live" and "hung" are decided; now by default.
    """
    recorded = Recorded(run, at_unix_nano)
    stands = standing(recorded)
    if recorded.steps is None:
        summary = summarized(recorded, stands, [])
        found = [*outcome(recorded, summary, stands), *_said(waits, recorded, stands), *recording(recorded)]
        return Facts(summary=summary, findings=_sorted(found))
    changes = step_changes(recorded)
    summary = summarized(recorded, stands, changes)
    shares = shares_of(phase_times(recorded))
    stragglers = _said(straggler, recorded)
    findings = [
        *outcome(recorded, summary, stands),
        *_said(waits, recorded, stands),
        *_said(change, recorded, changes, stragglers),
        *stragglers,
        *_said(memory, recorded),
        *_said(learning, recorded),
        *_said(texts, recorded),
        *_said(mismatch, recorded),
        *_said(engines, recorded),
        *_said(data, recorded),
        *_said(goodput, recorded, summary, shares),
        *time_spent(shares),
        *_said(recording, recorded),
        *_said(environment, recorded),
    ]
    return Facts(summary=summary, findings=_sorted(findings), shares=shares, metrics=recorded.main.names)


def changes_in(recorded: Recorded) -> list[Finding]:
    """Return what changed in a run: the time of its steps, and what differs from the last run of the project."""
    if recorded.steps is None:
        return []
    changes = _said(change, recorded, step_changes(recorded), _said(straggler, recorded))
    return [*changes, *_said(environment, recorded)]


def _said(
    find: Callable[_Arguments, list[Finding]], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> list[Finding]:
    """Return the findings of a kind; one that fails must not hide the others from somebody with a broken run."""
    try:
        return find(*args, **kwargs)
    except Exception:
        logger.exception("the finding %r failed, and is left out", find.__name__)
        return []


def _sorted(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings, the most severe first, in the order of the table otherwise."""
    return tuple(sorted(findings, key=lambda one: SEVERITIES.index(one.severity)))
