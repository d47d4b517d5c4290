"""Limits on what other machines may store at a head, so that its own rows find room on the disk and in the outbox."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from otel_rl.journal.atomic_files import disk_usage
from otel_rl.otlp.answers import TOO_MUCH, Refusal
from otel_rl.otlp.bridge.disk import Disk

if TYPE_CHECKING:
    from pathlib import Path

MOST_JOURNALS = 1 << 14
"""The largest number of journals of other machines, one for each process and attempt: 4,096 ranks start four times."""
_MEASURE_S = 1.0


class Quotas:
    """The limits of one head; senders keep what they may not send now.

    Args:
        journals: The directory of the journals.
        outbox: The directory of the outbox.
        limit_bytes: The size limit of the outbox, of which items of other programs may take half.
    """

    def __init__(self, journals: Path, outbox: Path, limit_bytes: int) -> None:
        self._outbox, self._limit_bytes = outbox, limit_bytes
        self._outbox_bytes = 0
        self._measured_at = float("-inf")
        self._disk = Disk(journals)

    def check(self) -> None:
        """Raise if records may not be written, because the disk is nearly full.

        Raises:
            Refusal: The client should retry later.
        """
        self._disk.check()

    def check_outbox(self) -> None:
        """Raise if items of other programs would use the half of the outbox that is for rows.

        Raises:
            Refusal: The client should retry later.
        """
        self._disk.check()
        if time.monotonic() - self._measured_at >= _MEASURE_S:
            self._measured_at = time.monotonic()
            self._outbox_bytes = disk_usage(self._outbox)
        if self._outbox_bytes > self._limit_bytes // 2:
            raise Refusal(TOO_MUCH, "too many spans have not been delivered")

    def check_journals(self, count: int) -> None:
        """Raise if there is no room for a journal in addition to the `count` that there are.

        Raises:
            Refusal: The client should retry later.
        """
        if count >= MOST_JOURNALS:
            raise Refusal(TOO_MUCH, f"{count} processes of other machines have sent records")
