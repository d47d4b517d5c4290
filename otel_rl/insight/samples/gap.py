"""The gap between engine and trainer inside of a turn: both should give a token the same probability."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from otel_rl.insight.samples.sample import Turn


class Gap(NamedTuple):
    """How far log-probabilities differ.

    Attributes:
        mean: Mean difference without its sign, over the tokens that were trained on.
        place: The token that differs the most, counted from 0.
        engine: Its probability in the engine.
        trainer: Its probability in the trainer.
    """

    mean: float
    place: int
    engine: float
    trainer: float


def gap_of(turn: Turn) -> Gap | None:
    """Return the gap of a turn; `None` if the engine's or the trainer's log-probabilities are unknown."""
    differences = {
        place: abs(engine - trainer)
        for place, (engine, trainer) in enumerate(zip(turn.logprobs, turn.trainer_logprobs, strict=False))
        if math.isfinite(engine - trainer) and (place >= len(turn.mask) or turn.mask[place])
    }
    if not differences:
        return None
    place = max(differences, key=lambda one: differences[one])
    engine, trainer = (math.exp(min(0.0, logprobs[place])) for logprobs in (turn.logprobs, turn.trainer_logprobs))
    return Gap(fmean(differences.values()), place, engine, trainer)
