"""Collects the remarks on samples: phrases that pay, tokens that differ, faults of texts, parts of the reward."""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.insight import wording
from otel_rl.insight.samples.faults import faults
from otel_rl.insight.samples.mismatch import Those, mismatch
from otel_rl.insight.samples.parting import parting
from otel_rl.insight.samples.phrases import phrases
from otel_rl.insight.samples.remark import Remark
from otel_rl.insight.samples.turns import evenly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.archive.reader import RunReader
    from otel_rl.insight.samples.sample import Phrase, Sample

_STEPS_OF_TOKENS = 4
"""Steps whose lists of tokens are read: they are most of an archive."""


class Said(NamedTuple):
    """The remarks on samples: the phrases that pay, a remark on each of them, and the others."""

    phrases: list[Phrase]
    of_phrases: list[Remark]
    others: list[Remark]


def remarks(run: RunReader, samples: Sequence[Sample]) -> Said:
    """Return what samples of a run say."""
    if not samples:
        return Said([], [], [])
    steps = sorted({one.step for one in samples})
    with ThreadPoolExecutor(1) as beside:  # the database does not hold the interpreter
        of_tokens = beside.submit(mismatch, run, _of_tokens(samples, evenly(steps, _STEPS_OF_TOKENS)))
        found = phrases(samples)
        of_texts = [*faults(samples), *parting(samples)]
    return Said(found, [_of_phrase(one, steps[-1]) for one in found], [*of_tokens.result(), *of_texts])


def _of_tokens(samples: Sequence[Sample], steps: Sequence[int]) -> Those:
    return Those(steps, {one.trace_id for one in samples if one.trace_id and one.step in steps})


def _of_phrase(phrase: Phrase, last: int) -> Remark:
    component = f", mostly of {phrase.component}" if phrase.component else ""
    return Remark(
        kind="learning",
        severity="warning",
        sentence=(
            f'"{phrase.text}" is in {wording.percent(phrase.share)} of the last completions, '
            f"{wording.percent(phrase.share_before)} of the first, and frequent since step "
            f"{wording.integer(phrase.since)}: they get a reward of "
            f"{wording.number(phrase.reward)}{component}, others {wording.number(phrase.reward_without)}."
        ),
        advice=f"Correct the reward if no answer needs it: otel-rl samples --contains {shlex.quote(phrase.text)}",
        steps=(phrase.since, last),
        sure="possible",
    )
