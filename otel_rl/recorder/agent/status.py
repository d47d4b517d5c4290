"""Reports what the agent does, in its status file, and counts what was lost."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.agent.input.follow import UNFINISHED
from otel_rl.recorder.directory.agent_start import AgentStatus
from otel_rl.recorder.files.atomic_files import write_atomically
from otel_rl.recorder.journal.records import encodable_value
from otel_rl.recorder.journal.segments import START
from otel_rl.recorder.secrets import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.recorder.agent.input.source import Source
    from otel_rl.recorder.agent.losses import Losses
    from otel_rl.recorder.agent.openings import Openings
    from otel_rl.recorder.agent.output.exporters import Exporters
    from otel_rl.recorder.agent.steps.pipeline import Pipeline
    from otel_rl.recorder.delivery.quarantine import Quarantine
    from otel_rl.recorder.directory.directory import RunDirectory
    from otel_rl.recorder.journal.segments import Position


class Status:
    """Reports what an agent does; `said` is the content of the status file.

    Args:
        removed: How many items and journals were removed before the agent started, although it needs them.
    """

    def __init__(
        self,
        directory: RunDirectory,
        source: Source,
        pipeline: Pipeline,
        exporters: Exporters,
        openings: Openings,
        losses: Losses,
        quarantine: Quarantine,
        removed: int,
    ) -> None:
        self._directory, self._source, self._pipeline, self._exporters = directory, source, pipeline, exporters
        self._openings, self._losses, self._quarantine, self._removed = openings, losses, quarantine, removed
        self.said = AgentStatus()

    def say(self, state: str, finished: Mapping[str, Position], *, is_over: bool) -> None:
        """Write the status file, if its content changes; the state is "ready" or "ended".

        `finished` are the journals that were read to their end, with the place in the outbox of their last item.
        """
        source, exporters, has_ended = self._source, self._exporters, state == "ended"
        threads, named = exporters.threads, exporters.by_name.items()
        # Near the end, finished journals are reported when the backends are closed: some write only then.
        tell_finished = has_ended or not is_over
        self.count_losses()  # a refused item is counted before it counts as delivered
        status = AgentStatus(
            pid=os.getpid(),
            state=state,
            prometheus=exporters.address,
            warnings=[redacted(warning) for warning in self._openings.warnings],
            unreachable=redacted(source.unreachable),
            finished=dict(finished) if tell_finished else self.said.finished,
            given_up=source.follower.given_up,
            delivered={one.label: START if has_ended and one.is_alive() else one.delivered for one in threads},
            failures={name: one.failures for name, one in named if one.failures},
            last_error={name: encodable_value(redacted(one.last_error)) for name, one in named if one.last_error},
            lost=self._losses.lost,
            waiting=exporters.waiting() if has_ended else {},
        )
        if status != self.said or not self._directory.status.exists():  # whoever starts an agent removes it
            with contextlib.suppress(OSError):  # a full disk: written again at the next change
                write_atomically(self._directory.status, msgspec.json.encode(status))
                self.said = status

    @property
    def dropped(self) -> dict[str, int]:
        """Everything that no exporter gets, by reason, also what is not a loss."""
        return self._losses.lost | {  # the settings ask for it, it was never recorded, or another program sent it
            "not_sampled": self._pipeline.traces.left_out + self._pipeline.reducer.messages.left_out,
            "mismatched_logprobs": self._pipeline.reducer.messages.mismatched,
            UNFINISHED: self._source.follower.losses()[UNFINISHED],
            "refused_by_receiver": self._source.refused,
        }

    def count_losses(self) -> None:
        """Count everything that was lost of the run, by reason."""
        counts = Counter(self._source.losses()) + Counter(self._exporters.losses())
        counts["outbox_damaged"] += self._removed
        counts["quarantined"] = self._quarantine.count
        counts["open_spans"] = self._pipeline.reducer.bounds.refused
        counts["name_limit"] = self._pipeline.trackers.dropped
        self._losses.note(counts)
