"""The fate of items when their backend accepts some of them, none of them, or asks to wait."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import ClassVar

import pytest

from otel_rl.export import Item, NotNow, Params, Refused, RunInfo
from otel_rl.recorder.delivery.exporter_thread import ExporterThread
from tests.collector import wait_for
from tests.delivering import Agents


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


def answering(agents: Agents, *answers: Exception) -> ExporterThread:
    """Start an exporter that answers so, with eight items to deliver."""
    Answering.answers, Answering.offered, Answering.built = [*answers], [], 0
    return agents.start(Answering, [Params(n, {}) for n in range(8)])


def test_what_was_taken_of_a_batch_is_not_offered_again(agents: Agents) -> None:
    """Three of eight taken: the other five are offered after a pause, to the same exporter."""
    thread = answering(agents, NotNow("busy", done=3, error_type="503"), NotNow("busy", error_type="503"))
    wait_for(lambda: thread.taken == 8, "not all were taken")

    assert Answering.offered == [list(range(8)), list(range(3, 8)), list(range(3, 8))]
    assert (thread.failures, thread.causes, Answering.built) == (2, {"503": 2}, 1)


def test_the_pause_is_the_one_that_was_asked_for(agents: Agents) -> None:
    """The backend asks for an hour: there is no retry before, and a stop need not wait for it."""
    thread = answering(agents, NotNow("busy", retry_after=3600))
    wait_for(lambda: thread.failures, "nothing was offered")
    agents.stop()

    assert not thread.is_alive()
    assert Answering.offered == [list(range(8))]


def test_a_refused_batch_is_counted_and_its_reason_logged(agents: Agents, caplog: pytest.LogCaptureFixture) -> None:
    """Eight at once: the reason is in the log, once."""
    with caplog.at_level(logging.WARNING):
        thread = answering(agents, Refused("no such field", error_type="400"))
        wait_for(lambda: thread.has_everything, "the batch is not settled")

    assert (thread.taken, thread.refused, thread.causes) == (0, 8, {"400": 1})
    assert [record.getMessage() for record in caplog.records] == [
        "a: refused 8 items in the last request: no such field (1 so far)"
    ]


def test_what_is_refused_of_a_batch_is_counted_alone(agents: Agents) -> None:
    """Two of the first six refused: four are taken, and the last two are offered at once."""
    thread = answering(agents, Refused("2 too old", done=6, count=2))
    wait_for(lambda: thread.has_everything, "the batch is not settled")

    assert Answering.offered == [list(range(8)), [6, 7]]
    assert (thread.taken, thread.refused, thread.failures) == (6, 2, 0)
