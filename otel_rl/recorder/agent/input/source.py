"""All that an agent reads: the journals of its machine, and what other machines and programs send."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from otel_rl.recorder.agent.input import head
from otel_rl.recorder.agent.input.follow import UNFINISHED, Follower
from otel_rl.recorder.journal.claim import is_all_delivered, noted
from otel_rl.recorder.journal.segments import START

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_rl.export import Item
    from otel_rl.recorder.agent.input.follow import NewRecord
    from otel_rl.recorder.agent.openings import Openings
    from otel_rl.recorder.directory.directory import Manifest, RunDirectory
    from otel_rl.recorder.journal.segments import Position


class Source:
    """Reads the journals, and receives for the head of a run.

    Args:
        positions: Where to continue, by journal.
        once: If true, the agent delivers what exists, and listens nowhere.
        of_archive: If true, the items come from an archive: there are no journals.

    Attributes:
        follower: The journals.
        unreachable: Why other machines cannot send records to this agent; empty if they can.

    Raises:
        OSError: The address of the head cannot be listened on, and the run is strict.
        SettingsError: The address of the head is invalid.
    """

    def __init__(
        self,
        directory: RunDirectory,
        manifest: Manifest,
        positions: Mapping[str, Position],
        openings: Openings,
        *,
        once: bool,
        of_archive: bool,
    ) -> None:
        self._needs_journals = once and not of_archive and not is_all_delivered(directory.attempts, directory.host)
        names = noted(directory.attempts).get(directory.host, ()) if self._needs_journals else ()
        expected = dict.fromkeys(names, START)
        self.follower = Follower(directory.journals, expected | dict(positions), final=manifest.sends)
        self._receiver: head.Receiver | None = None
        self._never_came, self.unreachable = 0, ""
        if manifest.receives and once:
            give_up = partial(head.give_up_missing, directory.journals, manifest.journal_limit)
            self._never_came = openings.attempt(give_up) or 0
        elif manifest.receives:
            self._receiver = openings.attempt(partial(head.listen, directory, manifest))
            self.unreachable = openings.warnings[-1] if self._receiver is None else ""

    @property
    def refused(self) -> int:
        """Number of records of other programs that were refused."""
        return 0 if self._receiver is None else self._receiver.refused

    def find_new(self) -> None:
        """Find new journals, and those that other machines have sent records for."""
        self.follower.find_new()
        if self._receiver is not None:
            self.follower.read_next(self._receiver.pop_grown())

    def read(self, limit: int, now: int) -> list[NewRecord]:
        """Return the new records, at most `limit` of each journal."""
        return self.follower.read(limit, now)

    def pop_accepted(self) -> list[Item]:
        """Return the items that others sent since the last call; their senders wait for `answer_senders`."""
        return [] if self._receiver is None else self._receiver.pop_accepted()

    def answer_senders(self) -> None:
        """Answer the senders of the items: these are in the outbox."""
        if self._receiver is not None:
            self._receiver.answer_senders()

    def note_processes(self, *, is_over: bool, now: float) -> None:
        """Record whether all processes of the run have ended; `now` is in seconds on a monotonic clock."""
        if self._receiver is not None:
            self._receiver.note_processes(is_over=is_over, now=now)

    def last_heard(self, host: str) -> int:
        """Return when another machine sent something last, in Unix nanoseconds; 0 if it has not since the start."""
        return 0 if self._receiver is None else self._receiver.heard.get(host, 0)

    def is_quiet(self, now: float) -> bool:
        """Return whether other machines have stopped sending."""
        return self._receiver is None or self._receiver.is_quiet(now)

    def losses(self) -> dict[str, int]:
        """Return the number of records that never arrived, by reason."""
        counts = self.follower.losses()
        counts["torn_bytes"] -= counts.pop(UNFINISHED)
        missing = len(self.follower.missing) or int(self._needs_journals and self.follower.found_nothing)
        between = self._never_came if self._receiver is None else self._receiver.lost
        return counts | {"journals_missing": missing, "lost_between_machines": between}

    def stop_listening(self) -> None:
        """Listen no longer: a sender keeps what it sends from now on."""
        if self._receiver is not None:
            self._receiver.close()
