"""Limits on what other machines may store at a head: journals, bytes on the disk, and a share of the outbox."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING

from otel_rl.otlp.bridge.answers import TOO_MUCH, Refusal
from otel_rl.otlp.bridge.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MOST_JOURNALS = 1 << 14
"""The largest number of journals of other machines, one for each process and attempt: 4,096 ranks start four times."""
MOST_OF_A_PEER = 1 << 12
"""The same for one address: a machine, or a Collector in front of all machines."""
_MEASURE_S = 1.0


class Quotas:
    """The limits of one head. A peer is the address of a sender, which keeps what it may not send now.

    Args:
        journals: The directory of the journals.
        outbox: The directory of the outbox.
        limit_bytes: The largest size of the undelivered journals of one peer. Items of other programs may take
            half as much of the outbox.
    """

    def __init__(self, journals: Path, outbox: Path, limit_bytes: int) -> None:
        self._path, self._outbox, self._limit_bytes = journals, outbox, limit_bytes
        self._of_peer: dict[str, set[str]] = {}
        self._written: Counter[str] = Counter()
        self._measured_at: dict[str, float] = {}
        self._outbox_bytes = 0
        self._disk = Disk(journals)

    def check(self, peer: str, size: int) -> None:
        """Count the bytes of a request before its records are written.

        Raises:
            Refusal: The peer has too much on the disk, or the disk is nearly full.
        """
        self._disk.check()
        if self._written[peer] + size > self._limit_bytes and self._is_old(peer):
            directories = (self._path / name for name in self._of_peer.get(peer, ()))
            self._written[peer] = _size(directories)
        if self._written[peer] + size > self._limit_bytes:
            raise Refusal(TOO_MUCH, f"{peer} has more than {self._limit_bytes} bytes of undelivered records here")
        self._written[peer] += size

    def check_outbox(self) -> None:
        """Raise if items of other programs would take the half of the outbox that is for rows.

        Raises:
            Refusal: The client should retry later.
        """
        self._disk.check()
        if self._is_old(""):
            self._outbox_bytes = _size([self._outbox])
        if self._outbox_bytes > self._limit_bytes // 2:
            raise Refusal(TOO_MUCH, "too many spans have not been delivered")

    def admit(self, peer: str, journal: str, count: int) -> None:
        """Note a new journal, in addition to the `count` that there are.

        Raises:
            Refusal: There are too many, of all or of this peer.
        """
        own = self._of_peer.setdefault(peer, set())
        if count >= MOST_JOURNALS or len(own) >= MOST_OF_A_PEER:
            raise Refusal(TOO_MUCH, f"{len(own)} processes of {peer} and {count} in all have sent records")
        own.add(journal)

    def _is_old(self, what: str) -> bool:
        now = time.monotonic()
        if now - self._measured_at.get(what, -_MEASURE_S) < _MEASURE_S:
            return False
        self._measured_at[what] = now
        return True


def _size(directories: Iterable[Path]) -> int:
    """Return the size of all files in directories, in bytes."""
    found = 0
    for directory in directories:
        for place, _, names in os.walk(directory):
            for name in names:
                try:
                    found += os.stat(os.path.join(place, name)).st_size  # noqa: PTH116, PTH118 - thousands of files
                except OSError:
                    continue  # it was delivered and removed
    return found
