"""The data that it trained on: groups without a signal, stale and dropped samples, completions that were cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.insight.contradictions.columns import words_of
from otel_rl.look.insight.contradictions.of_shares import cut_below_the_limit
from otel_rl.look.insight.facts import Evidence, Finding
from otel_rl.look.insight.findings.contradictions import columns_of
from otel_rl.look.insight.recorded import RECENT_MEANS
from otel_rl.look.insight.troubles import of_metric
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedRun

_NO_SIGNAL, _MUCH_NO_SIGNAL = 0.05, 0.5
_STALE, _VERY_STALE = 0.5, 4.0
_DROPPED, _MANY_DROPPED = 0.01, 0.2
_CUT, _MANY_CUT = 0.05, 0.3
_TRAINED = "trajectories/trained"
_WORDS_DROPPED = frozenset(("dropped", "discarded", "surplus", "rejected", "wasted"))
_WORDS_KEPT = frozenset(("trained", "kept", "used", "accepted"))
_NO_COUNTS = frozenset(("ratio", "rate", "frac", "fraction", "share", "tokens"))
"""Words of the names of counts that a trainer logs."""
_OUTCOMES = "trajectories/"
_REASONS = {"stale": "as too old"}


class _DataRemark(NamedTuple):
    """A part of the sentence, whether it is a warning, the metrics that show it, and what to do."""

    text: str
    is_bad: bool
    names: tuple[str, ...]
    advice: str


def data(recorded: RecordedRun) -> list[Finding]:
    """Return what is worth knowing of the data of the recent steps, in one finding."""
    parts = [part for part in (_no_signal(recorded), _staleness(recorded), _dropped(recorded), _cut(recorded)) if part]
    if not parts or recorded.steps is None:
        return []
    last = recorded.steps.last
    first = max(recorded.steps.first, last - RECENT_MEANS + 1)
    names = tuple(name for part in parts for name in part.names)
    return [
        Finding(
            kind="data",
            severity="warning" if any(part.is_bad for part in parts) else "note",
            sentence=" ".join(f"{part.text}." for part in parts),
            advice=next((part.advice for part in parts if part.is_bad), ""),
            evidence=Evidence(steps=(first, last), names=names, panel="data"),
            subject="data",
            covers=tuple(map(of_metric, names)),
        )
    ]


def _no_signal(recorded: RecordedRun) -> _DataRemark | None:
    name = recorded.main.name("no_signal")
    share = recorded.recent_mean(name)
    if not share >= _NO_SIGNAL:
        return None
    advice = "Draw prompts that are neither always nor never solved, or filter groups before training."
    return _DataRemark(f"{wording.percent(share)} of groups had no signal", share >= _MUCH_NO_SIGNAL, (name,), advice)


def _staleness(recorded: RecordedRun) -> _DataRemark | None:
    name = recorded.main.name("staleness")
    age = recorded.recent_mean(name)
    if not age >= _STALE:
        return None
    advice = "Sync weights more often, or limit how far rollouts run ahead."
    noun = "version" if wording.number(age) == "1" else "versions"
    return _DataRemark(f"Samples were {wording.number(age)} policy {noun} old", age >= _VERY_STALE, (name,), advice)


def _dropped(recorded: RecordedRun) -> _DataRemark | None:
    """Return the share of trajectories that were dropped, over all steps."""
    if _TRAINED not in recorded.names:
        return _dropped_by_counts(recorded)
    others = [
        name
        for name, measured in recorded.names.items()
        if measured and name.startswith(_OUTCOMES) and name.count("/") == 1 and name != _TRAINED
    ]
    recorded.load([_TRAINED, *others])
    counts = {name: float(recorded.series(name).finite.values.sum()) for name in [_TRAINED, *others]}
    whole = sum(counts.values())
    dropped = {name.removeprefix(_OUTCOMES): count for name, count in counts.items() if name != _TRAINED and count}
    share = sum(dropped.values()) / whole if whole else 0.0
    if share < _DROPPED:
        return None
    reasons = wording.names(
        [_REASONS.get(reason, f"as {reason}") for reason in sorted(dropped, key=lambda reason: -dropped[reason])]
    )
    names = tuple(f"{_OUTCOMES}{reason}" for reason in dropped)
    advice = "Allow older samples, or generate fewer at once: dropped ones cost as much as trained ones."
    return _DataRemark(
        f"{wording.percent(share)} of samples were dropped {reasons}", share >= _MANY_DROPPED, names, advice
    )


def _dropped_by_counts(recorded: RecordedRun) -> _DataRemark | None:
    """Return the share that was dropped by counts that the trainer logged, such as `groups_dropped`, over all steps."""
    for name in recorded.names:
        words = words_of(name)
        trained = [
            other for other in recorded.names if words & _WORDS_DROPPED and _is_counterpart(words, words_of(other))
        ]
        if not trained:
            continue
        dropped, kept = (float(recorded.series(one).finite.values.sum()) for one in (name, trained[0]))
        if dropped + kept > 0 and dropped / (dropped + kept) >= _MANY_DROPPED:
            share = dropped / (dropped + kept)
            text = f"{wording.percent(share)} were dropped ({name} {wording.number(dropped)}, {trained[0]}"
            advice = "Generate fewer at once, or see why they are dropped: dropped ones cost as much as trained ones."
            return _DataRemark(f"{text} {wording.number(kept)} in all)", True, (name, trained[0]), advice)
    return None


def _is_counterpart(dropped: frozenset[str], other: frozenset[str]) -> bool:
    """Return whether a name counts what was kept of the same things."""
    return bool(other & _WORDS_KEPT) and other - _WORDS_KEPT == dropped - _WORDS_DROPPED and not dropped & _NO_COUNTS


def _cut(recorded: RecordedRun) -> _DataRemark | None:
    name = recorded.main.name("truncated")
    share = recorded.recent_mean(name)
    if not share >= _CUT or cut_below_the_limit(columns_of(recorded)) is not None:
        return None
    names = name, *recorded.main.by_topic.get("completion_length", ())
    advice = "Raise the limit of the length, or mask the loss of completions that were cut."
    return _DataRemark(
        f"{wording.percent(share)} of completions were cut at the length limit", share >= _MANY_CUT, names, advice
    )
