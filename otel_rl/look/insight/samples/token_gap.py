"""The gap between engine and trainer inside of a turn: both should give a token the same probability."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from otel_rl.look.insight.samples.sample import SampleTurn


class Gap(NamedTuple):
    """How far log-probabilities differ."""

    mean: float  # mean difference without its sign, over the tokens that were trained on
    place: int  # the token that differs the most, counted from 0
    engine: float  # its probability in the engine
    trainer: float  # its probability in the trainer


def gap_of(turn: SampleTurn) -> Gap | None:
    """Return the gap of a turn; `None` if the engine's or the trainer's log-probabilities are unknown."""
    differences = {
        place: abs(engine - trainer)
        for place, (engine, trainer) in enumerate(zip(turn.logprobs, turn.trainer_logprobs, strict=False))
        if math.isfinite(engine - trainer) and (place >= len(turn.mask) or turn.mask[place])
    }
    if not differences:
        return None
    place = max(differences, key=lambda at: differences[at])
    engine, trainer = (math.exp(min(0.0, logprobs[place])) for logprobs in (turn.logprobs, turn.trainer_logprobs))
    return Gap(fmean(differences.values()), place, engine, trainer)
