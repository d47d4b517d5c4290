"""Whether slow noise is under quick noise: such a series looks less correlated than it is, and wanders.

Of AR(1) noise, the partial autocorrelations at lags of 2 and more are 0, up to chance. Those of a slow component under
quick noise are above 0, as those of an ARMA(1, 1) series are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rl.look.insight.series import Floats

_LAGS = 3
_LONG = 150
"""Values from which on a change that is taken away takes little of the noise with it."""
_SURE, _SURE_OF_SHORT = 1.0, 0.0
"""Standard errors above 0 of the mean partial autocorrelation, from which on noise may be slow: cautious."""


def may_be_slow(noise: Floats) -> bool:
    """Return whether noise, without the change in it, may have a slow component."""
    count = len(noise)
    centered = noise - noise.mean()
    power = float(centered @ centered)
    if count <= 2 * _LAGS or power <= 0:
        return False
    correlations = [float(centered[lag:] @ centered[: count - lag]) / power for lag in range(_LAGS + 1)]
    later = _partial(correlations)[1:]
    sure = _SURE if count >= _LONG else _SURE_OF_SHORT
    return sum(later) / math.sqrt(len(later)) * math.sqrt(count) > sure


def _partial(correlations: list[float]) -> list[float]:
    """Return the partial autocorrelations from lag 1 on, by the recursion of Durbin and Levinson."""
    weights = [correlations[1]]
    partial = [correlations[1]]
    for lag in range(2, len(correlations)):
        left = correlations[lag] - sum(w * correlations[lag - 1 - n] for n, w in enumerate(weights))
        rest = 1 - sum(w * correlations[n + 1] for n, w in enumerate(weights))
        last = left / max(rest, 1e-9)
        weights = [w - last * other for w, other in zip(weights, reversed(weights), strict=True)] + [last]
        partial.append(last)
    return partial
