"""Rates, time per token, FLOPs."""

from __future__ import annotations

import math

import pytest

from otel_rl.stats import efficiency


def test_perplexity() -> None:
    """Exp of the loss, without overflow."""
    assert efficiency.perplexity(math.log(4)) == pytest.approx(4)
    assert efficiency.perplexity(1e6) == math.inf


def test_time_per_token() -> None:
    """Two seconds for a thousand tokens are 2 ms for each."""
    assert efficiency.time_per_token(2.0, 1000) * 1000 == 2.0


def test_utilisation() -> None:
    """7B parameters, 1000 tokens in a second on 2 devices of 100 TFLOP/s: 42 of 200."""
    flops = efficiency.training_flops(7e9, 1000)

    assert flops == 42e12
    assert efficiency.rate(flops, 1.0, 2) == 21e12
    assert efficiency.model_flops_utilization(flops, 1.0, 2, 100e12) == pytest.approx(0.21)
