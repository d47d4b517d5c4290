"""The paths of several steps, by clocks that agree."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from otel_rl import semconv
from otel_rl.look.insight.span_work import NOTHING, SpanWork
from otel_rl.look.insight.why.causes import Causes
from otel_rl.look.insight.why.clocks import corrected, messages_of, offsets
from otel_rl.look.insight.why.critical_path import Hop, path_of
from otel_rl.look.insight.why.folded_spans import fold
from otel_rl.recorder.archive.json_texts import decoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.look.insight.why.clocks import ClockOffset
    from otel_rl.look.insight.why.folded_spans import InnerSpans
    from otel_rl.look.insight.why.recorded_causes import Label
    from otel_rl.look.insight.why.step_spans import SpanProcess, StepWindow


class StepPath(NamedTuple):
    """The path of a step, and its seconds by work: inside of the step, and before it too."""

    window: StepWindow
    causes: Causes
    inner: InnerSpans
    hops: list[Hop]
    seconds: dict[SpanWork, float]
    reach: dict[SpanWork, float]

    @property
    def inside(self) -> list[Hop]:
        """The part of the path in the step."""
        began = self.window.began
        return [hop._replace(began=max(began, hop.began)) for hop in self.hops if hop.ended > began]


class StepPaths:
    """Finds the paths of windows.

    Attributes:
        clocks: How far clocks may differ, in seconds; 0 for one clock.
    """

    def __init__(self, recorded: RecordedRun, windows: Sequence[StepWindow], phase: str) -> None:
        self._phase = phase
        self._clock_of = {who: _clock(recorded, who) for window in windows for who in window.whos}
        self._most: defaultdict[SpanProcess, int] = defaultdict(int)
        for window in windows:
            for who, most in _at_once(window).items():
                self._most[who] = max(self._most[who], most)
        self._offsets = self._bounds(windows)
        self.clocks = max((offset.high - offset.low for offset in self._offsets.values()), default=0) / 1e9

    def of(self, window: StepWindow) -> StepPath:
        """Return the path of a window."""
        return self._path_of(window, {clock: offset.value for clock, offset in self._offsets.items()})

    def by_other_clocks(self, path: StepPath) -> Iterator[StepPath]:
        """Yield the path of a window by clocks at the lower, and at the upper ends of their bounds."""
        for bound in (0, 1):
            ends = {clock: (offset.low, offset.high)[bound] - offset.value for clock, offset in self._offsets.items()}
            if any(ends.values()):
                yield self._path_of(path.window, ends)

    def _bounds(self, windows: Sequence[StepWindow]) -> dict[str, ClockOffset]:
        if len(set(self._clock_of.values())) < 2:
            return {}
        messages = (message for window in windows for message in messages_of(window, self._clock_of))
        trainer = (clock for who, clock in sorted(self._clock_of.items()) if who.is_trainer)
        return offsets(messages, next(trainer, min(self._clock_of.values())))

    def _path_of(self, window: StepWindow, added: Mapping[str, int]) -> StepPath:
        slack = round(self.clocks * 1e9) if any(added.values()) else 0
        window = corrected(window, self._clock_of, added)
        folded = fold(window)
        causes = Causes(folded, self._phase, slack, self._most)
        hops = path_of(causes, folded.inner)
        path = StepPath(window, causes, folded.inner, hops, defaultdict(float), defaultdict(float))
        for hops, seconds in ((path.inside, path.seconds), (path.hops, path.reach)):
            for hop in hops:
                seconds[work_of(hop.label)] += (hop.ended - hop.began) / 1e9
        return path


def work_of(label: Label) -> SpanWork:
    """Return the work of a part; time without recorded work is named by the role of the process."""
    return SpanWork("none", label.who.role) if label.work == NOTHING else label.work


def _at_once(window: StepWindow) -> dict[SpanProcess, int]:
    """Return how many trajectories each process ran at once."""
    spans, trajectories = window.spans, np.flatnonzero(window.are_trajectories)
    most: dict[SpanProcess, int] = {}
    for who in np.unique(spans.who[trajectories]).tolist():
        mine = trajectories[spans.who[trajectories] == who]
        ended = np.searchsorted(np.sort(spans.ended[mine]), np.sort(spans.began[mine]), side="right")
        most[window.whos[who]] = int((np.arange(1, len(mine) + 1) - ended).max())
    return most


def _clock(recorded: RecordedRun, who: SpanProcess) -> str:
    """Return the name of the clock of a process: its machine, or the program itself if that is unknown."""
    if who.resource:
        resource = decoded(who.resource)
        return str(resource.get(semconv.HOST_NAME) or who.resource)
    hosts = [member.host for member in recorded.members if (member.role, member.rank) == (who.role, who.rank)]
    return hosts[-1] if hosts else ""
