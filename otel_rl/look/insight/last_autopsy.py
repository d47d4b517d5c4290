"""The autopsy that is about how a run stands now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.recorder.archive.autopsies import read_autopsies, telling

if TYPE_CHECKING:
    from otel_rl.look.insight.recorded import RecordedRun
    from otel_rl.recorder.archive.autopsies import Autopsy


def last_autopsy(recorded: RecordedRun) -> Autopsy | None:
    """Return the newest autopsy since the last step, or since the oldest wait that can never end; `None` without one.

    Of several, one that names a cause says more than one that does not.
    """
    waits = [wait.since_unix_nano for now in recorded.now for wait in now.waits if wait.cause]
    since = min([recorded.steps.last_unix_nano if recorded.steps else 0, *waits])
    return telling([autopsy for autopsy in read_autopsies(recorded.place.path) if autopsy.time_unix_nano >= since])
