"""The cost of a run as it was recorded: hours of its GPUs, the share that was wasted, tokens, and money."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from otel_rl.look.insight.facts import Cost
from otel_rl.look.reader.result import lines_of
from otel_rl.recorder.archive.json_texts import decoded
from otel_rl.recorder.facts.goodput import HUNG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.recorder.facts.goodput import AttemptTime

_NS_PER_HOUR = 3.6e12
_WASTED = (HUNG, "repeated", "end")
"""Parts of the wall time of a run whose work is lost: hangs, repeated steps, and the end of an attempt that broke."""


def cost_of(recorded: RecordedRun, attempts: Mapping[int, AttemptTime], goodput: Mapping[str, float]) -> Cost:
    """Return the cost of a run.

    Args:
        recorded: The run.
        attempts: The times of its attempts.
        goodput: The parts of its wall time, none if they are unknown.
    """
    in_attempts = 1 - goodput.get("down", 0.0)
    wasted = sum(goodput.get(part, 0.0) for part in _WASTED)
    return Cost(
        gpu_hours=_gpu_hours(recorded, attempts),
        wasted_share=wasted / in_attempts if goodput and in_attempts > 0 else None,
        tokens=_tokens(recorded),
    ).repriced(_price_in(recorded.manifest))


def _gpu_hours(recorded: RecordedRun, attempts: Mapping[int, AttemptTime]) -> float | None:
    """Return the sum over attempts of the GPUs of the ranks times the wall time; `None` if it is unknown."""
    # A rank that came back has a line for each of its processes: the last one that saw GPUs is valid.
    query = """SELECT attempt, arg_max(host, started_unix_nano) AS host,
            arg_max(nullif(devices, '[]'), started_unix_nano) AS devices
        FROM attempts WHERE coalesce(role, '') = '' GROUP BY attempt, rank ORDER BY attempt, rank"""
    of_hosts: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for attempt, host, devices in lines_of(recorded.run.sql(query)):
        of_hosts[attempt][host].append(len(decoded(devices) or ()))
    hours = []
    for attempt, hosts in of_hosts.items():
        time, gpus = attempts[attempt], [count for counts in hosts.values() for count in counts]
        if 0 in gpus and time.first_step is None:
            continue  # it ended before a GPU was seen
        # A rank that lists several may list those of the others on its machine: names do not tell.
        if 0 in gpus or any(len(counts) > 1 and max(counts) > 1 for counts in hosts.values()):
            return None
        hours.append(sum(gpus) * max(0, time.ended - time.began) / _NS_PER_HOUR)
    return sum(hours) if hours else None


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
