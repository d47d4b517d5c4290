"""Moves records of other machines into the part of the head without a network, from their parts or copies of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from otel_rl.export import Machine, Recorded
from otel_rl.recorder.agent.steps.state import Checkpoint, State, of_machine
from otel_rl.recorder.delivery.outbox import Outbox
from otel_rl.recorder.journal.record_events import Lost
from otel_rl.recorder.journal.records import AnyRecord
from otel_rl.serve.head.remote import RemoteJournal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from otel_rl.export import Exporter, Item
    from otel_rl.recorder.directory.directory import RunDirectory
    from otel_rl.recorder.journal.records import Record

_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(AnyRecord | Lost)


class HeadInbox:
    """The journals and the outbox of the head, for writing the records of other machines.

    The lock of the head's agent must be held. Each journal, and the outbox, may take `limit_bytes`.
    """

    def __init__(self, directory: RunDirectory, limit_bytes: int) -> None:
        self._journals, self._limit_bytes = directory.journals, limit_bytes
        self._outbox = Outbox(directory.outbox, limit_bytes)

    def exporter_of(self, host: str) -> Callable[..., Exporter]:
        """Return a factory for the exporter of a machine that replaces the one that sends to the head."""
        return lambda _, **__: _Bringer(self, host)

    def journal(self, name: str) -> RemoteJournal:
        """Return the journal of a process of another machine."""
        return RemoteJournal(self._journals / name, self._limit_bytes)

    def put(self, items: Sequence[Item]) -> None:
        """Append items to the outbox of the head, with its last checkpoint."""
        # An append without the last checkpoint would make the agent start from an empty state.
        checkpoint = self._outbox.checkpoint or msgspec.msgpack.encode(Checkpoint({}, State()))
        self._outbox.append(items, checkpoint)

    def bring(self, batches: Iterable[Sequence[Item]], host: str) -> None:
        """Write what a machine has left; records that exist already are skipped.

        Raises:
            OSError: It cannot be read or written now.
        """
        bringer = _Bringer(self, host)
        for items in batches:
            bringer.export(items)
        bringer.shutdown()

    def close(self) -> None:
        """Close the outbox."""
        self._outbox.close()


class _Bringer:
    """An exporter that writes records of one machine into journals of the head."""

    batch_size = 64

    def __init__(self, inbox: HeadInbox, host: str) -> None:
        self._inbox, self._host = inbox, host
        self._journals: dict[str, RemoteJournal] = {}

    def export(self, items: Sequence[Item]) -> None:
        """Write records and measurements; records that exist already are skipped.

        Raises:
            OSError: They cannot be written now.
        """
        now = time.monotonic()
        for item in items:
            if isinstance(item, Recorded):
                journal = self._journal(of_machine(item.journal, self._host))
                for n, raw in enumerate(item.records):
                    journal.receive(item.first + n, _decoder.decode(raw), now)
        if measured := [item for item in items if isinstance(item, Machine) and item.values]:
            self._inbox.put(measured)

    def shutdown(self) -> None:
        """Close the journals."""
        for journal in self._journals.values():
            journal.close_files()

    def _journal(self, name: str) -> RemoteJournal:
        if name not in self._journals:
            # One journal is open at a time: a part has thousands, each with a descriptor.
            for other in self._journals.values():
                other.close_files()
            self._journals[name] = self._inbox.journal(name)
        return self._journals[name]
