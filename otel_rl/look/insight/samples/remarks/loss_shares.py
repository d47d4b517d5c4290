"""Which samples made the loss of a step: those whose loss is not a number, else the largest ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import msgspec

from otel_rl.look.insight.samples.read_samples import held_by, read_samples
from otel_rl.look.insight.samples.remarks.remark import Remark, of_trajectory, place_of, short, to_read
from otel_rl.look.reader.result import lines_of
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_rl.look.reader.runs import RunReader

By = Literal["loss", "advantage", "gap"]
"""The number that a sample is blamed by: its loss, its advantage, or its gap between engine and trainer."""
ORDER: tuple[By, ...] = ("loss", "advantage", "gap")
_NOUNS: dict[By, str] = {
    "loss": "The loss of step {}",
    "advantage": "The sum of advantages, without their signs, of step {}",
    "gap": "The divergence of trainer and engine in step {}",
}
_TOP = 10
_LEAST_SAMPLES = 4
_ONE, _TEN = 0.3, 0.5
"""Shares of one sample, and of the ten largest, from which on they stand out."""
_LARGEST = 20.0
"""Log-ratios are cut here, so that a gap stays finite."""
_PARTS = """
WITH listed AS (
    SELECT trace_id, span_id, unnest(logprobs) AS engine, unnest(trainer_logprobs) AS trainer, unnest(mask) AS used
    FROM messages WHERE step = {step}
), known AS (
    SELECT trace_id, span_id, greatest(-{largest}, least({largest}, trainer - engine)) AS ratio FROM listed
    WHERE used IS DISTINCT FROM false AND isfinite(engine) AND NOT isnan(trainer)
), gaps AS (SELECT trace_id, span_id, sum(exp(ratio) - 1 - ratio) AS gap FROM known GROUP BY ALL),
texts AS (SELECT trace_id, span_id, count(*) AS messages FROM messages WHERE step = {step} GROUP BY ALL)
SELECT trace_id, rank, reward, loss, advantage, gap, messages IS NOT NULL AS is_kept FROM trajectories
LEFT JOIN gaps USING (trace_id, span_id) LEFT JOIN texts USING (trace_id, span_id)
WHERE step = {step} AND outcome = 'trained' ORDER BY rank, time_unix_nano, number
"""


class LossShare(msgspec.Struct, frozen=True, kw_only=True):
    """The part that a sample has in the loss of a step."""

    name: str  # the beginning of its trace id, or its number
    place: str  # the options of `otel-rl samples` that show it; empty if its text was not kept
    reward: float | None  # its reward; `None` if it is unknown
    numbers: dict[By, float]
    """Its loss, its advantage and its gap, as far as they are known; NaN only if it is not a number."""
    share: float = 0.0  # its share in the sum over the step of what it is blamed by; 0 if a number is not finite


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of a step to blame."""

    step: int  # the step
    by: By  # what they are blamed by
    samples: int  # number of samples with that number
    broken: int  # number of samples whose number is not finite
    top: tuple[LossShare, ...]  # the ten largest; if some are not finite, only such ones

    @property
    def stands_out(self) -> bool:
        """Whether a few samples made it."""
        largest, ten = self.top[0].share, sum(part.share for part in self.top)
        return bool(self.broken) or largest >= _ONE or (ten >= _TEN and self.samples >= 4 * _TOP)


def blame_of(run: RunReader, step: int, order: Sequence[By] = ORDER) -> Blame | None:
    """Return the samples of a step to blame, by the first of these numbers that was recorded; `None` without any."""
    parts = _of_trajectories(run, step) or _of_samples(run, step)
    return next((blame for by in order if (blame := blamed(step, by, parts)) is not None), None)


def blamed(step: int, by: By, parts: Iterable[LossShare]) -> Blame | None:
    """Return the samples to blame by a number; `None` if too few have it."""
    known = [part for part in parts if by in part.numbers]
    if len(known) < _LEAST_SAMPLES:
        return None
    broken = [part for part in known if not math.isfinite(part.numbers[by])]
    if broken:
        return Blame(step=step, by=by, samples=len(known), broken=len(broken), top=tuple(broken[:_TOP]))
    whole = math.fsum(abs(part.numbers[by]) for part in known)
    if whole == 0:
        return None
    shared = [msgspec.structs.replace(part, share=abs(part.numbers[by]) / whole) for part in known]
    shared.sort(key=lambda part: -part.share)
    return Blame(step=step, by=by, samples=len(known), broken=0, top=tuple(shared[:_TOP]))


def sentence_of(blame: Blame) -> str:
    """Return in words which samples made the loss of a step."""
    noun = _NOUNS[blame.by].format(wording.integer(blame.step))
    whole, first = f"of {wording.count(blame.samples, 'sample')}", blame.top[0]
    if blame.broken:
        return f"{noun} is not finite in {blame.broken:,} {whole}: {_listed(blame.top)}."
    if first.share >= _ONE:
        return f"{noun} came to {wording.percent(first.share)} from one {whole}: {_described(first)}."
    if blame.stands_out:
        share = wording.percent(sum(part.share for part in blame.top))
        return f"{noun} came to {share} from {_TOP} {whole}: {_listed(blame.top)}."
    return f"{noun} came from all samples: the largest {whole} made {wording.percent(first.share)}."


def remark_of(blame: Blame) -> Remark:
    """Return what the samples of a step have to do with its loss."""
    return Remark(
        kind="learning",
        severity="warning" if blame.stands_out else "note",
        sentence=sentence_of(blame),
        advice=to_read(part.place for part in blame.top if part.place) if blame.stands_out else "",
        steps=(blame.step, blame.step),
        sure="certain",
    )


def _listed(parts: Sequence[LossShare]) -> str:
    return wording.names(
        [f"{part.name} ({wording.percent(part.share)})" if part.share > 0 else part.name for part in parts]
    )


def _described(part: LossShare) -> str:
    numbers = [f"{name} {wording.number(part.numbers[name])}" for name in ("loss", "advantage") if name in part.numbers]
    reward = [] if part.reward is None else [f"reward {wording.number(part.reward)}"]
    return ", ".join([part.name, *reward, *numbers])


def _of_trajectories(run: RunReader, step: int) -> list[LossShare]:
    """Return the trajectories of a step. A rank that recorded some losses recorded all: one that is missing is NaN."""
    rows = run.sql(_PARTS.format(step=int(step), largest=_LARGEST))
    lines = lines_of(rows)
    known = {(by, line[1]) for line in lines for by, value in zip(ORDER, line[3:6], strict=True) if _is_number(value)}
    parts = []
    for n, (trace_id, rank, reward, *values, is_kept) in enumerate(lines):
        numbers = {
            by: value for by, value in zip(ORDER, values, strict=True) if value is not None and (by, rank) in known
        }
        parts.append(
            LossShare(
                name=f"trajectory {short(trace_id)}" if trace_id else f"sample {n}",
                place=of_trajectory(trace_id) if is_kept else "",
                reward=reward if _is_number(reward) else None,
                numbers=numbers,
            )
        )
    return parts if known else []


def _of_samples(run: RunReader, step: int) -> list[LossShare]:
    """Return the completions of a step, as tables have them."""
    names = held_by(run, [(step, step)]).names
    return [
        LossShare(
            name=f"sample {sample.number}",
            place=place_of(sample),
            reward=sample.reward,
            numbers={by: value for by in ORDER if (value := getattr(sample, by)) is not None},
        )
        for sample in read_samples(run, names, [step])
    ]


def _is_number(value: float | None) -> bool:
    return value is not None and not math.isnan(value)
