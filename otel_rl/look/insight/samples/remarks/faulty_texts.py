"""Faults of completions that are too frequent to be false alarms of their rules, and since when."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.insight.samples.remarks.remark import Remark, place_of, to_read
from otel_rl.look.insight.samples.remarks.text_rules import RULES
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_rl.look.insight.samples.remarks.text_rules import TextRule
    from otel_rl.look.insight.samples.sample import TextSample

_MOST = 1_000
"""Completions that are looked at, evenly spaced."""
_LEAST_FAULTY, _LEAST_SHARE = 3, 0.01
_CHANCE = 1e-3
"""Probability over all rules that a run without faults is said to have one."""
_OF = 10_000


class _Scored(NamedTuple):
    sample: TextSample
    score: float


class _Count(NamedTuple):
    """Faulty completions of some steps, and all that were looked at."""

    faulty: int
    whole: int

    @property
    def share(self) -> float:
        return self.faulty / self.whole if self.whole else 0.0


def faults(samples: Sequence[TextSample]) -> list[Remark]:
    """Return what is wrong with the completions of the last third of the steps, by each rule that finds enough."""
    examined = [sample for sample in samples[:: max(1, math.ceil(len(samples) / _MOST))] if sample.completion]
    number = Counter(sample.step for sample in examined)
    steps = sorted(number)
    third = math.ceil(len(steps) / 3)
    remarks = []
    for rule in RULES:
        scored = [
            _Scored(sample, score)
            for sample in examined
            if (score := rule.score(sample.prompt, sample.completion)) >= rule.least
        ]
        faulty = Counter(entry.sample.step for entry in scored)
        late = _count(faulty, number, steps[-third:])
        early = _count(faulty, number, steps[:third] if len(steps) > 1 else [])
        usual = rule.false_alarms / _OF
        if rule.is_of_task:
            usual = max(usual, (early.faulty + 3 * math.sqrt(early.faulty) + 3) / (early.whole + 1))
        if late.faulty >= _LEAST_FAULTY and late.share >= _LEAST_SHARE and _is_more(late, usual):
            remarks.append(_remark(rule, late, scored, faulty, number))
    return remarks


def _count(faulty: Mapping[int, int], number: Mapping[int, int], steps: Iterable[int]) -> _Count:
    listed = list(steps)
    return _Count(sum(faulty.get(step, 0) for step in listed), sum(number[step] for step in listed))


def _is_more(count: _Count, usual: float) -> bool:
    """Return whether there are more than a rate explains, by Chernoff's bound of the binomial distribution's tail."""
    share = count.share
    if share <= usual or usual >= 1:
        return False
    rest = (1 - share) * math.log((1 - share) / (1 - usual)) if share < 1 else 0.0
    return count.whole * (share * math.log(share / usual) + rest) > math.log(len(RULES) / _CHANCE)


def _remark(
    rule: TextRule, late: _Count, scored: Sequence[_Scored], faulty: Mapping[int, int], number: Mapping[int, int]
) -> Remark:
    since = since_when({step: (faulty.get(step, 0), whole) for step, whole in number.items()})
    now, before = (_count(faulty, number, filter(is_in, number)) for is_in in (since.__le__, since.__gt__))
    if 2 * before.share > now.share:
        since, now, before = min(number), _count(faulty, number, number), _Count(0, 0)
    worst = sorted((entry for entry in scored if entry.sample.step >= since), key=lambda entry: -entry.score)
    ago = f", {wording.percent(before.share)} before" if before.whole else ""
    return Remark(
        kind="data",
        severity="warning",
        sentence=(
            f"{wording.percent(now.share)} of completions are {rule.name} since step {wording.integer(since)}{ago} "
            f"({now.faulty:,} of {now.whole:,}): {rule.means}."
        ),
        advice=f"{to_read(place_of(entry.sample) for entry in worst)} {rule.advice}",
        steps=(since, max(number)),
    )


def since_when(counts: Mapping[int, tuple[float, float]]) -> int:
    """Return the step from which on the share is the most above the mean of all steps, by a cumulative sum."""
    whole = sum(number for _, number in counts.values())
    mean = sum(value for value, _ in counts.values()) / whole if whole else 0.0
    above, most, since = 0.0, 0.0, min(counts)
    for step in sorted(counts, reverse=True):
        value, number = counts[step]
        above += value - mean * number
        if above > most + 1e-9:
            most, since = above, step
    return since
