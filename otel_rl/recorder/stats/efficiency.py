"""Measures of efficiency: rates, time per token, FLOP/s."""

from __future__ import annotations

import math

FLOPS_PER_PARAMETER_AND_TOKEN = 6
"""2 for the forward pass and 4 for the backward pass (Kaplan et al. 2020, section 2.1)."""


def perplexity(loss: float) -> float:
    """Return exp(loss) for a mean negative log-likelihood in nats; infinity if it overflows."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def rate(amount: float, seconds: float, devices: int = 1) -> float:
    """Return the amount per second and device."""
    return amount / seconds / devices


def time_per_token(seconds: float, tokens: float) -> float:
    """Return the seconds per token."""
    return seconds / tokens


def training_flops(parameters: float, tokens: float) -> float:
    """Return the floating-point operations of training a dense transformer on this number of tokens."""
    return FLOPS_PER_PARAMETER_AND_TOKEN * parameters * tokens


def model_flops_utilization(flops: float, seconds: float, devices: int, peak_flops: float) -> float:
    """Return the model's FLOP/s as a fraction of the devices' peak FLOP/s (MFU; Chowdhery et al. 2022)."""
    return rate(flops, seconds, devices) / peak_flops
