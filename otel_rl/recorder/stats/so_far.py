"""Metrics that count since the start of a run, or say where it is now: recognized by the shape of their names.

The mean of `global_step` over several steps is a step that never was.
"""

from __future__ import annotations

import re

_PLACE = re.compile(
    r"(?:(?!.*per_)\w+_)?(?<!train_)(?<!optim_)(?<!val_)(?:step|timestep|epoch|iteration)|learning_round"
)
"""The last component of names of where a run is: `train/global_step`, `epoch`."""
_COUNTED = r"(?:\w*_)?(?:steps|timesteps|episodes|updates|iterations|epochs|frames|syncs)"
_COUNT = re.compile(
    rf"(?:n|num|total|cumulative)_{_COUNTED}|{_COUNTED}_(?:total|done)|(?:global_|env_)?steps|timesteps|iterations|epochs"
    r"|cumulative_\w+|\w+_(?:seen|so_far|lifetime|cumulative|since_\w+)"
    r"|(?:\w+_)?(?:policy|model|weights?)_version"
    r"|(?:\w+_)?elapsed?|(?:time|wall_?clock)_total(?:_s)?|wall_?clock(?:_s|_sec|_time)?"
)
"""The last component of names of counts and times since the start: `total_timesteps`, `tokens_seen`, `elapsed`."""
_DURATIONS = re.compile(r"tim(?:e|er|ing)|perf|memory|latency|duration")


def counts_so_far(name: str) -> bool:
    """Return whether the last value of a metric is the right one over several steps, by the shape of its name."""
    *above, last = re.split(r"[/.]", name.lower())
    if _PLACE.fullmatch(last):
        return not any(map(_DURATIONS.match, above))
    return _COUNT.fullmatch(last) is not None
