"""The error that a user reads: the first cause, with its fix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from otel_rl.export import Ended, Item, Params, RunInfo
from otel_rl.recorder.delivery.failures import with_fix
from otel_rl.recorder.delivery.handover import Handover, Offer
from otel_rl.recorder.delivery.outbox import ItemPosition
from tests.collector import wait_for
from tests.delivering import Agents

_RUN = RunInfo("r", "p", "n", "")


@pytest.mark.parametrize(
    ("cause", "fix"),
    [
        ("Failed to get resume status: returned error 401: {}", "check the API key or token"),
        ("API request to endpoint failed with error code 403 != 200", "check that this account may write"),
        ("Client error '404 Not Found' for url", "check the address, the project and the team"),
        ("<urlopen error [Errno 111] Connection refused>", "check that the server runs"),
        ("dial tcp: lookup api.wandb.example: no such host", "check the address of the server, and DNS"),
        ("certificate verify failed: certificate is not yet valid", "check this machine's clock"),
        ("HTTP 503: busy", "check that the server is well"),
    ],
)
def test_fixes(cause: str, fix: str) -> None:
    """The cause comes first, in the tracker's own words."""
    assert with_fix(cause).startswith(f"{cause}; {fix}")


def test_an_unknown_cause_stays_as_it_is() -> None:
    """A number inside another one is not a status."""
    assert with_fix("OSError: 14012 bytes") == "OSError: 14012 bytes"


class Hiding:
    """An exporter whose second error hides the first one, as W&B's does that keeps the id of a run."""

    def __init__(self, _: RunInfo) -> None:
        self.tries = 0

    def export(self, items: Sequence[Item]) -> None:
        """Refuse the key first, then the id."""
        self.tries += 1
        raise RuntimeError("returned error 401" if self.tries == 1 else "run ID is in use")

    def shutdown(self) -> None:
        """Do nothing."""


def test_a_later_error_does_not_hide_the_first(agents: Agents) -> None:
    """Both are there, and the fix is that of the first."""
    thread = agents.start(Hiding, [Params(0, {})])
    wait_for(lambda: "in use" in thread.last_error, "there is no second error")

    assert thread.last_error == (
        "export failed: RuntimeError: run ID is in use; "
        "the first failure was: RuntimeError: returned error 401; check the API key or token"
    )


class Unfinished:
    """An exporter that knows what its backend has, and whose end is refused twice."""

    stored: ClassVar[list[int]] = []
    built = 0

    def __init__(self, _: RunInfo) -> None:
        Unfinished.built += 1
        self.given: list[int] = []

    def export(self, items: Sequence[Item]) -> None:
        """Keep the items in memory."""
        self.given += [item.time_unix_nano for item in items if isinstance(item, Params)]

    def durable(self) -> int:
        """Count nothing before the end."""
        return 0

    def holds(self, item: Item) -> bool:
        """Look into what was stored."""
        return isinstance(item, Params) and item.time_unix_nano in self.stored

    def shutdown(self) -> None:
        """Store one item more each time; the third time, everything."""
        self.stored.extend(self.given if self.built == 3 else self.given[:1])
        if self.built < 3:
            raise ConnectionError("returned error 503")


class Running:
    """An exporter whose backend has every item at once, and shows the end when it is shut down, if it can."""

    shows_end = True
    shown: ClassVar[list[str]] = []
    ends = 0

    def __init__(self, _: RunInfo) -> None:
        self.given: list[Item] = []

    def export(self, items: Sequence[Item]) -> None:
        """Store the items."""
        self.given += items

    def durable(self) -> int:
        """Count all of them."""
        return len(self.given)

    def holds(self, _: Item) -> bool:
        """Hold nothing."""
        return False

    def shutdown(self) -> None:
        """Show the end; the first time, it is refused."""
        Running.ends += 1
        if self.ends == 1:
            raise ConnectionError("returned error 503")
        self.shown.extend(item.outcome for item in self.given if isinstance(item, Ended))


def test_an_end_that_is_refused_when_nothing_is_left() -> None:
    """A new exporter shows how the run ended, although the backend has every item."""
    handover = Handover(lambda: Running(_RUN), 1, lambda *_: None, lambda _: None)
    handover.waiting.append(Offer(Ended(0, 0, "failed"), ItemPosition(), ["Ended"]))
    handover.give()
    handover.note_durable()
    with pytest.raises(ConnectionError):
        handover.shutdown()
    assert (handover.is_open, list(handover.waiting)) == (True, [])
    handover.shutdown()

    assert (Running.shown, handover.is_open) == (["failed"], False)


def test_an_end_that_is_refused_is_repeated_by_a_new_exporter(agents: Agents) -> None:
    """It gets what the backend lacks, and nothing twice."""
    agents.deliver(Unfinished, *[Params(n, {}) for n in range(5)])

    assert (Unfinished.stored, Unfinished.built) == (list(range(5)), 3)
