"""The parts of a head that an agent needs, and has if an installed package has their entry points."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from otel_rl.export import Exporter, Item
    from otel_rl.recorder.directory.directory import Manifest, RunDirectory

ENTRY_POINT_GROUP = "otel_rl_head"


class Receiver(Protocol):
    """A listener for the records of other machines and the telemetry of other programs."""

    heard: dict[str, int]
    """When each machine of this run sent something last, in Unix nanoseconds."""

    @property
    def refused(self) -> int:
        """Number of records of other programs that were refused."""

    @property
    def lost(self) -> int:
        """Number of records that were sent and never arrived."""

    def pop_grown(self) -> set[str]:
        """Return the journals that got records since the last call."""

    def pop_accepted(self) -> list[Item]:
        """Return the items that others sent since the last call; their senders wait for `answer_senders`."""

    def answer_senders(self) -> None:
        """Answer the senders of the items: these are in the outbox."""

    def note_processes(self, *, is_over: bool, now: float) -> None:
        """Record whether all processes of the run have ended; `now` is in seconds on a monotonic clock."""

    def is_quiet(self, now: float) -> bool:
        """Return whether the machines of this run have stopped sending."""

    def close(self) -> None:
        """Listen no longer."""


class Inbox(Protocol):
    """The journals and the outbox of the head, for writing the records of other machines without a network."""

    def exporter_of(self, host: str) -> Callable[..., Exporter]:
        """Return a factory for the exporter of a machine that replaces the one that sends to the head."""

    def bring(self, batches: Iterable[Sequence[Item]], host: str) -> None:
        """Write what a machine has left; records that exist already are skipped."""

    def close(self) -> None:
        """Close the outbox."""


def listen(directory: RunDirectory, manifest: Manifest) -> Receiver:
    """Listen for records of one run at the address `manifest.receives`.

    Raises:
        OSError: The address cannot be listened on, or no head is installed.
        SettingsError: The address is invalid.
    """
    receiver: Receiver = _part("listen")(directory, manifest)
    return receiver


def open_inbox(directory: RunDirectory, limit_bytes: int) -> Inbox:
    """Open the inbox of a head whose agent does not run.

    Raises:
        OSError: A file cannot be opened, or no head is installed.
    """
    inbox: Inbox = _part("inbox")(directory, limit_bytes)
    return inbox


def give_up_missing(journals: Path, limit_bytes: int) -> int:
    """Give up the records that other machines do not send any more; return their number.

    Raises:
        OSError: They cannot be written, or no head is installed.
    """
    number: int = _part("give_up_missing")(journals, limit_bytes)
    return number


def _part(name: str) -> Any:
    try:
        (point,) = entry_points(group=ENTRY_POINT_GROUP, name=name)
        return point.load()
    except (ValueError, ModuleNotFoundError) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else f"the entry point {ENTRY_POINT_GROUP}"
        raise OSError(f"records of other machines are not received, because {missing} is not installed") from error
