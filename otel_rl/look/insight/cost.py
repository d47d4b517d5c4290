"""The cost of a run as it was recorded: hours of its GPUs, the share that was wasted, tokens, and money."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from otel_rl.look.insight.facts import Cost
from otel_rl.look.reader.result import lines_of
from otel_rl.recorder.facts.goodput import HUNG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.look.insight.recorded import RecordedRun

_NS_PER_HOUR = 3.6e12
_WASTED = (HUNG, "repeated", "end")
"""Parts of the wall time of a run whose work is lost: hangs, repeated steps, and the end of an attempt that broke."""


def cost_of(
    recorded: RecordedRun, goodput: Mapping[str, float], until_unix_nano: int, price: float | None = None
) -> Cost:
    """Return the cost of a run.

    Args:
        recorded: The run.
        goodput: The parts of its wall time, none if they are unknown.
        until_unix_nano: When its last attempt ended, or the time if it goes on.
        price: The price of an hour of a GPU, in place of the run's own.
    """
    hours = _gpu_hours(recorded, until_unix_nano)
    price = _price_in(recorded.manifest) if price is None else price
    in_attempts = 1 - goodput.get("down", 0.0)
    wasted = sum(goodput.get(part, 0.0) for part in _WASTED)
    return Cost(
        gpu_hours=hours,
        wasted_share=wasted / in_attempts if goodput and in_attempts > 0 else None,
        tokens=_tokens(recorded),
        cost_per_gpu_hour=price,
        money=None if hours is None or price is None else hours * price,
    )


def _gpu_hours(recorded: RecordedRun, until_unix_nano: int) -> float | None:
    """Return the sum over attempts of the GPUs of the ranks times the wall time; `None` if a rank does not say."""
    query = """SELECT attempt, started_unix_nano, coalesce(ended_unix_nano, 0), devices FROM attempts
        WHERE coalesce(role, '') = ''"""
    began: dict[int, int] = {}
    ended: dict[int, int] = defaultdict(int)
    gpus: dict[int, int] = defaultdict(int)
    for attempt, started, over, devices in lines_of(recorded.run.sql(query)):
        names = json.loads(devices) if devices else []
        if not names:
            return None
        began[attempt] = min(started, began.get(attempt, started))
        ended[attempt] = max(over, ended[attempt])
        gpus[attempt] += len(names)
    if not began:
        return None
    last = max(began)
    ended[last] = max(ended[last], until_unix_nano)
    return sum(gpus[attempt] * max(0, ended[attempt] - began[attempt]) for attempt in began) / _NS_PER_HOUR


def _tokens(recorded: RecordedRun) -> int | None:
    (line,) = lines_of(recorded.every.sql("SELECT sum(tokens)::DOUBLE AS tokens FROM trajectories"))
    return int(line[0]) if line[0] else None


def _price_in(manifest: Mapping[str, Any]) -> float | None:
    """Return the price in `run.json`, which anybody may have written."""
    agent = manifest.get("agent")
    price = agent.get("cost_per_gpu_hour") if isinstance(agent, dict) else None
    if not isinstance(price, int | float) or isinstance(price, bool):
        return None
    return float(price) if math.isfinite(price) and price > 0 else None
