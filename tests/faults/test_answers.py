"""The fate of items when their backend accepts some of them, none of them, or asks to wait."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar

import pytest

from otel_rl.delivery.exporter_thread import ExporterThread
from otel_rl.delivery.outbox import Outbox
from otel_rl.export import Item, NotNow, Params, Refused, RunInfo
from tests.collector import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class Answering:
    """An exporter with prescribed answers, which then accepts everything."""

    batch_size = 8
    answers: ClassVar[list[Exception]] = []
    offered: ClassVar[list[list[int]]] = []
    built: ClassVar[int] = 0

    def __init__(self, _: RunInfo) -> None:
        type(self).built += 1

    def export(self, items: Sequence[Item]) -> None:
        """Note what is offered."""
        self.offered.append([item.time_unix_nano for item in items if isinstance(item, Params)])
        if self.answers:
            raise self.answers.pop(0)

    def shutdown(self) -> None:
        """Do nothing."""


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[ExporterThread]:
    """An exporter with eight items to deliver."""
    Answering.answers, Answering.offered, Answering.built = [], [], 0
    for place in ("outbox", "cursors"):
        (tmp_path / place).mkdir()
    outbox = Outbox(tmp_path / "outbox", 1 << 20)
    outbox.append([Params(n, {}) for n in range(8)], b"\xc0")
    exporter = ExporterThread("a", Answering, {}, RunInfo("i", "p", "n", "."), outbox, tmp_path / "cursors")
    yield exporter
    exporter.stop()
    exporter.join(10)
    outbox.close()


def test_what_was_taken_of_a_batch_is_not_offered_again(answering: ExporterThread) -> None:
    """Three of eight taken: the other five are offered after a pause, to the same exporter."""
    Answering.answers = [NotNow("busy", done=3, error_type="503"), NotNow("busy", error_type="503")]
    answering.start()
    wait_for(lambda: answering.taken == 8, "not all were taken")

    assert Answering.offered == [list(range(8)), list(range(3, 8)), list(range(3, 8))]
    assert (answering.failures, answering.causes, Answering.built) == (2, {"503": 2}, 1)


def test_the_pause_is_the_one_that_was_asked_for(answering: ExporterThread) -> None:
    """The backend asks for an hour: there is no retry before, and a stop need not wait for it."""
    Answering.answers = [NotNow("busy", retry_after=3600)]
    answering.start()
    wait_for(lambda: answering.failures, "nothing was offered")
    answering.stop()
    answering.join(10)

    assert not answering.is_alive()
    assert Answering.offered == [list(range(8))]


def test_a_refused_batch_is_counted_and_its_reason_logged(
    answering: ExporterThread, caplog: pytest.LogCaptureFixture
) -> None:
    """Eight at once: the reason is in the log, once."""
    Answering.answers = [Refused("no such field", error_type="400")]
    with caplog.at_level(logging.WARNING):
        answering.start()
        wait_for(lambda: answering.has_everything, "the batch is not settled")

    assert (answering.taken, answering.refused, answering.causes) == (0, 8, {"400": 1})
    assert [record.getMessage() for record in caplog.records] == ["a: refused 8 item(s): no such field (1 so far)"]


def test_what_is_refused_of_a_batch_is_counted_alone(answering: ExporterThread) -> None:
    """Two of the first six refused: four are taken, and the last two are offered at once."""
    Answering.answers = [Refused("2 too old", done=6, count=2)]
    answering.start()
    wait_for(lambda: answering.has_everything, "the batch is not settled")

    assert Answering.offered == [list(range(8)), [6, 7]]
    assert (answering.taken, answering.refused, answering.failures) == (6, 2, 0)
