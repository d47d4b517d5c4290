"""Which logged values two runs with one seed can share: not times, rates and memory, which always differ."""

from __future__ import annotations

import re
from functools import lru_cache

_WORDS = (
    "time|times|timeperf|timing|timer|timings|runtime|seconds?|secs?|latency|duration|elapsed?|eta|wait|waited|waiting|"
    "throughput|speed|fps|tps|tgs|qps|mfu|tflops|flops|goodput|bubble|utilization|per_?sec(ond)?|"
    "memory|mem|vram|rss|perf|performance|profile|hardware|system|cpu|gpu|monitor"
)
_OF_MACHINES = re.compile(rf"(^|[/_.@ (-])({_WORDS}|s|ms|gb|gib|mb)([/_.@ )-]|$)", re.IGNORECASE)
_MOST = 20_000


@lru_cache(_MOST)
def is_repeatable(name: str) -> bool:
    """Return whether two trainings with one seed log equal values of a metric, as far as its name says."""
    return _OF_MACHINES.search(name) is None
