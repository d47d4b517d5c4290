"""Collects the remarks on samples: phrases that pay, tokens that differ, faults of texts, parts of the reward."""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.look.insight.samples.remarks.faulty_texts import faults
from otel_rl.look.insight.samples.remarks.paying_phrases import phrases
from otel_rl.look.insight.samples.remarks.remark import Remark
from otel_rl.look.insight.samples.remarks.reward_conflicts import reward_conflicts
from otel_rl.look.insight.samples.remarks.token_mismatch import TokenScope, mismatch
from otel_rl.look.insight.samples.trajectories import evenly
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.look.insight.samples.sample import Phrase, TextSample
    from otel_rl.look.reader.runs import RunReader

_STEPS_OF_TOKENS = 4
"""Steps whose lists of tokens are read: they are most of an archive."""


class SampleRemarks(NamedTuple):
    """The remarks on samples: the phrases that pay, a remark on each of them, and the others."""

    phrases: list[Phrase]
    of_phrases: list[Remark]
    others: list[Remark]


def remarks(run: RunReader, samples: Sequence[TextSample]) -> SampleRemarks:
    """Return what samples of a run say."""
    if not samples:
        return SampleRemarks([], [], [])
    steps = sorted({sample.step for sample in samples})
    with ThreadPoolExecutor(1) as beside:  # the database does not hold the interpreter
        of_tokens = beside.submit(mismatch, run, _of_tokens(samples, evenly(steps, _STEPS_OF_TOKENS)))
        paying = phrases(samples)
        of_texts = [*faults(samples), *reward_conflicts(samples)]
    return SampleRemarks(paying, [_of_phrase(phrase, steps[-1]) for phrase in paying], [*of_tokens.result(), *of_texts])


def _of_tokens(samples: Sequence[TextSample], steps: Sequence[int]) -> TokenScope:
    return TokenScope(steps, {sample.trace_id for sample in samples if sample.trace_id and sample.step in steps})


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
