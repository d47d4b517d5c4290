"""The load of inference servers: their metrics, and columns of each step."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from otel_rl.analyses.engines.load import EngineLoad
from otel_rl.analyses.engines.probe import Engine
from otel_rl.analysis import Analysis, Conclusion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from otel_rl.analysis import Basis
    from otel_rl.recorder.agent.input.engine_pages import Load
    from otel_rl.recorder.agent.steps.closed import Closed


class EnginesAnalysis(Analysis):
    """Measures the servers that the settings name, and relates their load to steps."""

    def __init__(self, basis: Basis) -> None:
        super().__init__(basis)
        self.load = EngineLoad()

    def probes(self) -> Iterator[Engine]:
        """Yield one for each server; those of a run are measured once, by the agent that makes the rows."""
        for url in self.basis.settings.hardware.engines if self.basis.has_all_rows else ():
            with contextlib.suppress(ValueError):  # the file of scrape targets warns of an invalid address
                yield Engine(url, self._hear)

    def close(self, step: Closed, values: Mapping[str, float]) -> Conclusion:
        """Return the load between the first begin and the last end of the step."""
        whole = step.step
        if step.late:
            return Conclusion()
        first, last = min(whole.begun.values(), default=0), max(whole.ended.values(), default=whole.time)
        return Conclusion(self.load.during(first, last))

    def _hear(self, time: int, loads: Sequence[Load]) -> None:
        # In the poller's thread: a step may close before the agent's thread takes the measurement.
        self.load.hear(time, loads)
        self.basis.generated_tokens = self.load.generated
