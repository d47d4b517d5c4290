"""Reports what the agent does: in its status file, in its metrics, and in the part of this machine."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import msgspec

from otel_rl.agent.input.follow import UNFINISHED
from otel_rl.errors.redaction import redacted
from otel_rl.errors.sinks import log_of
from otel_rl.journal.atomic_files import write_atomically
from otel_rl.journal.claim import settle
from otel_rl.journal.records import encodable_value
from otel_rl.journal.segments import START
from otel_rl.setup.agent_start import AgentStatus, note_delivered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.agent.wiring import Wiring
    from otel_rl.journal.segments import Position

logger = log_of(__name__)


class Status:
    """Reports what an agent does; `said` is the content of the status file."""

    def __init__(self, wired: Wiring) -> None:
        self._wired = wired
        self._is_noted = False
        self.said = AgentStatus()

    def say(self, state: str, finished: Mapping[str, Position]) -> None:
        """Write the status file, if its content changes; the state is "ready" or "ended".

        `finished` are the journals that were read to their end, with the place in the outbox of their last item.
        """
        wired, has_ended = self._wired, state == "ended"
        # Near the end, finished journals are reported when the backends are closed: some write only then.
        tell_finished = has_ended or not wired.is_over
        self.count_losses()  # a refused item is counted before it counts as delivered
        delivering = wired.delivering.items()
        status = AgentStatus(
            pid=os.getpid(),
            state=state,
            prometheus=wired.address,
            warnings=[redacted(warning) for warning in wired.warnings],
            unreachable=redacted(wired.unreachable),
            finished=dict(finished) if tell_finished else self.said.finished,
            given_up=wired.follower.given_up,
            delivered={one.label: START if has_ended and one.is_alive() else one.delivered for one in wired.exporters},
            failures={name: one.failures for name, one in delivering if one.failures},
            last_error={name: encodable_value(redacted(one.last_error)) for name, one in delivering if one.last_error},
            lost=wired.losses.lost,
            waiting=wired.waiting() if has_ended else {},
        )
        if status != self.said or not wired.directory.status.exists():  # whoever starts an agent removes it
            with contextlib.suppress(OSError):  # a full disk: written again at the next change
                write_atomically(wired.directory.status, msgspec.json.encode(status))
                self.said = status

    def show_delivery(self) -> None:
        """Update the metrics of delivered, failed and dropped items."""
        wired = self._wired
        not_lost = {  # the settings ask for it, it was never recorded, or another program sent it
            "not_sampled": wired.pipeline.traces.left_out,
            UNFINISHED: wired.follower.losses()[UNFINISHED],
            "refused_by_receiver": 0 if wired.receiver is None else wired.receiver.refusals.records,
        }
        wired.display.show_delivery(wired.exporters, wired.delivering, wired.losses.lost | not_lost)

    def count_losses(self) -> None:
        """Count everything that was lost of the run, by reason."""
        wired = self._wired
        of_journals = wired.follower.losses()
        of_journals["torn_bytes"] -= of_journals.pop(UNFINISHED)
        has_no_journal = wired.once and wired.follower.found_nothing and not wired.pipeline.reducer.state.journals
        wired.losses.note(
            of_journals
            | {
                "refused_by_exporter": sum(one.refused for one in wired.delivering.values()),
                "journals_missing": len(wired.follower.missing) or int(has_no_journal),
                "outbox_retention": sum(one.retained for one in wired.exporters),
                "outbox_damaged": sum(one.damaged for one in wired.exporters) + wired.outbox.unreadable + wired.cut_off,
                "quarantined": wired.quarantine.count,
                "name_limit": wired.pipeline.trackers.dropped,
                "lost_between_machines": wired.never_came if wired.receiver is None else wired.receiver.lost,
            }
        )

    def note_delivery(self, *, is_saved: bool) -> None:
        """Record that everything was delivered, once all items are saved in the outbox and every exporter has them.

        This comes before the trainer reads so, since its job may end then.
        """
        reducer = self._wired.pipeline.reducer
        done = is_saved and bool(reducer.state.journals) and reducer.is_finished and self._wired.has_delivered
        if done and not self._is_noted:
            self.record_delivery(is_complete=True)
        self._is_noted = done

    def record_delivery(self, *, is_complete: bool) -> None:
        """Record that every exporter has what the journals held, for the time when the journals are gone.

        If all is complete, the run directory says so for the whole part of this machine.
        """
        wired = self._wired
        journals = wired.pipeline.reducer.state.journals.items()
        with contextlib.suppress(OSError):
            settle(wired.directory.attempts, [name for name, one in journals if one.over and one.is_rank])
        if is_complete and not wired.of_copy:
            note_delivered(wired.directory)
