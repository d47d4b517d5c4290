"""Clients of a server that send keep their place; those that keep it waiting make room for others."""

from __future__ import annotations

from typing import Any

import pytest

from otel_rl.recorder.otlp import visitors as module
from otel_rl.recorder.otlp.visitors import Visitor, Visitors


class Stream:
    """A connection that can be closed."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Clock:
    """A clock that stands."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def visitors(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Visitors:
    """Return room for 8 connections, 2 of each address, and 1 MB of bodies."""
    monkeypatch.setattr(module, "_FOR_SMALL", 0)
    return Visitors(8, 1_000_000, clock)


def enter(visitors: Visitors, peer: str = "192.0.2.1") -> Visitor | None:
    stream: Any = Stream()
    return visitors[stream] if visitors.enter(stream, peer) else None


def closed(visitor: Visitor | None) -> bool:
    assert visitor is not None
    stream: Any = visitor.stream
    return bool(stream.is_closed)


def test_an_address_has_a_quarter(visitors: Visitors, clock: Clock) -> None:
    """A third connection is refused at first; after a second, it takes the place of the one that waited longest."""
    first, second = enter(visitors), enter(visitors)
    assert enter(visitors) is None
    assert enter(visitors, "192.0.2.2") is not None
    clock.now = 2.0
    assert enter(visitors) is not None

    assert (closed(first), closed(second), len(visitors)) == (True, False, 3)


def test_a_request_that_is_handled_keeps_its_place(visitors: Visitors, clock: Clock) -> None:
    """However long that takes."""
    busy = [one for one in (enter(visitors), enter(visitors)) if one]
    sizes = [visitors.answer(one) for one in busy]
    clock.now = 60.0
    assert enter(visitors) is None
    visitors.handled(busy[0], sizes[0])
    clock.now = 62.0

    assert enter(visitors) is not None
    assert [closed(one) for one in busy] == [True, False]


def test_a_body_that_is_not_sent_makes_room(visitors: Visitors, clock: Clock) -> None:
    """One that arrives is kept; the bytes of the other one are free at once."""
    stalled, sends, new = (enter(visitors, f"192.0.2.{n}") for n in range(3))
    assert stalled
    assert sends
    assert new
    assert visitors.hold(stalled, 500_000)
    assert visitors.hold(sends, 300_000)
    assert not visitors.hold(new, 400_000)
    clock.now = 2.0
    assert visitors.hold(sends, 100_000)
    assert visitors.hold(new, 400_000)

    assert (closed(stalled), closed(sends), visitors.held) == (True, False, 800_000)


def test_a_body_that_drips_makes_room(visitors: Visitors, clock: Clock) -> None:
    """A byte from time to time does not count."""
    drips, new = enter(visitors, "192.0.2.1"), enter(visitors, "192.0.2.2")
    assert drips
    assert new
    assert visitors.hold(drips, 900_000)
    clock.now = 2.0
    assert visitors.hold(drips, 1)

    assert visitors.hold(new, 900_000)
    assert closed(drips)


def test_everything_is_freed(visitors: Visitors) -> None:
    """After requests that were handled, refused or left."""
    handled, refused, left = (enter(visitors, f"192.0.2.{n}") for n in range(3))
    assert handled
    assert refused
    assert left
    for one in (handled, refused, left):
        assert visitors.hold(one, 1000)
    size = visitors.answer(handled)
    visitors.leave(handled)
    visitors.handled(handled, size)
    visitors.drop(refused)
    visitors.leave(left)
    visitors.leave(left)

    assert (visitors.held, len(visitors)) == (0, 1)


def test_room_for_small_bodies(visitors: Visitors, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large bodies leave some, so that an honest client is answered while others send."""
    monkeypatch.setattr(module, "_FOR_SMALL", 100_000)
    large, small = enter(visitors, "192.0.2.1"), enter(visitors, "192.0.2.2")
    assert large
    assert small

    assert not visitors.hold(large, 950_000)
    assert visitors.hold(large, 900_000)
    assert visitors.hold(small, 10_000)
