"""The paths of several steps, by clocks that agree."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl import semconv
from otel_rl.insight.why.causes import Causes
from otel_rl.insight.why.clocks import corrected, messages_of, offsets
from otel_rl.insight.why.fold import fold
from otel_rl.insight.why.path import Hop, path_of
from otel_rl.insight.why.window import NOTHING, Who, Work

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from otel_rl.insight.recorded import Recorded
    from otel_rl.insight.why.clocks import Offset
    from otel_rl.insight.why.fold import Inner
    from otel_rl.insight.why.lanes import Label
    from otel_rl.insight.why.window import Window


class Found(NamedTuple):
    """The path of a step, and its seconds by work: inside of the step, and before it too."""

    window: Window
    causes: Causes
    inner: Inner
    hops: list[Hop]
    seconds: dict[Work, float]
    reach: dict[Work, float]

    @property
    def inside(self) -> list[Hop]:
        """The part of the path in the step."""
        began = self.window.began
        return [hop._replace(began=max(began, hop.began)) for hop in self.hops if hop.ended > began]


class Paths:
    """Finds the paths of windows.

    Attributes:
        clocks: How far clocks may differ, in seconds; 0 for one clock.
    """

    def __init__(self, recorded: Recorded, windows: Sequence[Window], phase: str) -> None:
        self._phase = phase
        self._clock_of = {who: _clock(recorded, who) for window in windows for who in window.whos}
        self._most: defaultdict[Who, int] = defaultdict(int)
        for window in windows:
            for who, most in _at_once(window).items():
                self._most[who] = max(self._most[who], most)
        self._offsets = self._bounds(windows)
        self.clocks = max((one.high - one.low for one in self._offsets.values()), default=0) / 1e9

    def of(self, window: Window) -> Found:
        """Return the path of a window."""
        return self._found(window, {clock: one.value for clock, one in self._offsets.items()})

    def by_other_clocks(self, found: Found) -> Iterator[Found]:
        """Yield the path of a window by clocks at the lower, and at the upper ends of their bounds."""
        for bound in (0, 1):
            ends = {clock: (one.low, one.high)[bound] - one.value for clock, one in self._offsets.items()}
            if any(ends.values()):
                yield self._found(found.window, ends)

    def _bounds(self, windows: Sequence[Window]) -> dict[str, Offset]:
        if len(set(self._clock_of.values())) < 2:
            return {}
        messages = (message for window in windows for message in messages_of(window, self._clock_of))
        trainer = (clock for who, clock in sorted(self._clock_of.items()) if who.is_trainer)
        return offsets(messages, next(trainer, min(self._clock_of.values())))

    def _found(self, window: Window, added: Mapping[str, int]) -> Found:
        slack = round(self.clocks * 1e9) if any(added.values()) else 0
        window = corrected(window, self._clock_of, added)
        folded = fold(window)
        causes = Causes(folded, self._phase, slack, self._most)
        hops = path_of(causes, folded.inner)
        found = Found(window, causes, folded.inner, hops, defaultdict(float), defaultdict(float))
        for hops, seconds in ((found.inside, found.seconds), (found.hops, found.reach)):
            for hop in hops:
                seconds[work_of(hop.label)] += (hop.ended - hop.began) / 1e9
        return found


def work_of(label: Label) -> Work:
    """Return the work of a part; time without recorded work is named by the role of the process."""
    return Work("none", label.who.role) if label.work == NOTHING else label.work


def _at_once(window: Window) -> dict[Who, int]:
    """Return how many trajectories each process ran at once."""
    spans, those = window.spans, np.flatnonzero(window.are_trajectories)
    found: dict[Who, int] = {}
    for who in np.unique(spans.who[those]).tolist():
        mine = those[spans.who[those] == who]
        ended = np.searchsorted(np.sort(spans.ended[mine]), np.sort(spans.began[mine]), side="right")
        found[window.whos[who]] = int((np.arange(1, len(mine) + 1) - ended).max())
    return found


def _clock(recorded: Recorded, who: Who) -> str:
    """Return the name of the clock of a process: its machine, or the program itself if that is unknown."""
    if who.resource:
        resource = json.loads(who.resource)
        return str(resource.get(semconv.HOST_NAME) or who.resource)
    hosts = [one.host for one in recorded.members if (one.role, one.rank) == (who.role, who.rank)]
    return hosts[-1] if hosts else ""
