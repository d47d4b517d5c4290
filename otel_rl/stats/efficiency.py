"""How well the machine is used: rates, time per token, FLOP/s."""

from __future__ import annotations

import math

FLOPS_PER_PARAMETER_AND_TOKEN = 6
"""2 for the forward pass and 4 for the backward one (Kaplan et al. 2020, section 2.1)."""


def perplexity(loss: float) -> float:
    """Return exp(loss), of a mean negative log-likelihood in nats; infinite where that is too large."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def rate(amount: float, seconds: float, devices: int = 1) -> float:
    """Return the amount done in a second by each device."""
    return amount / seconds / devices


def time_per_token(seconds: float, tokens: float) -> float:
    """Return the seconds that one token took."""
    return seconds / tokens


def training_flops(parameters: float, tokens: float) -> float:
    """Return the FLOPs of training a dense transformer on so many tokens."""
    return FLOPS_PER_PARAMETER_AND_TOKEN * parameters * tokens


def model_flops_utilisation(flops: float, seconds: float, devices: int, peak_flops: float) -> float:
    """Return which part of the FLOP/s that the devices can do went into the model (MFU; Chowdhery et al. 2022)."""
    return rate(flops, seconds, devices) / peak_flops
