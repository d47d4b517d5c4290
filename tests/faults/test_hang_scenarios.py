"""Hangs of real processes: each begins once and ends once, for a viewer, in events and in the archive.

By default four are drawn, with a short deadline. `HANG_SCENARIOS=all` plays all 40 with learned deadlines, each for
three minutes: about 25 minutes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.collector import wait_for
from tests.faults.hanging import PROGRAMS, SCENARIOS, Hanging, Scenario, drawn, load
from tests.real_parts import needs

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]
_IS_ALL = os.environ.get("HANG_SCENARIOS") == "all"
_AFTER_S = 0 if _IS_ALL else 10
_WATCHED_S = 180 if _IS_ALL else 60
_SPINS_S = 290 if _IS_ALL else 60
"""A child that computes looks busy for four deadlines, then its parent hangs."""
_AFTERWARDS_S = 5
_AT_ONCE = 10


def batches() -> list[list[Scenario]]:
    """Return scenarios that are played at once: those of one load."""
    chosen = SCENARIOS if _IS_ALL else drawn(int(os.environ.get("HANG_SEED", "1")), 4)
    loads = [[one for one in chosen if one.load == load] for load in (0, 8)]
    return [those[n : n + _AT_ONCE] for those in loads for n in range(0, len(those), _AT_ONCE)]


@needs("torch")
@pytest.mark.parametrize("scenarios", batches(), ids=lambda those: f"load-{those[0].load}")
def test_a_hang_begins_once_and_ends_once(scenarios: Sequence[Scenario], tmp_path: Path) -> None:
    """Sampled every second, the state of the run changes once to hung, and back only if it goes on."""
    with contextlib.ExitStack() as stack:
        hanging = [Hanging(one, tmp_path / str(number), _AFTER_S) for number, one in enumerate(scenarios)]
        for one in hanging:
            stack.callback(one.kill)
        wait_for(lambda: all(one.has_hung for one in hanging), "they do not get there", 200)
        with load(scenarios[0].load):
            watch(hanging)
        wrong = [fault for one in hanging for fault in one.check(states_of(one.scenario))]

    assert wrong == [], "\n".join(wrong)


def watch(hanging: Sequence[Hanging]) -> None:
    """Sample all until each has been watched long enough, and then goes on or is killed."""
    began, left = time.monotonic(), dict.fromkeys(hanging, False)
    while left:
        for one, has_ended in [*left.items()]:
            if not has_ended or one.scenario.goes_on:
                one.sample()
            seconds = time.monotonic() - began
            until = _SPINS_S if one.scenario.way == "spinning child" else _WATCHED_S
            if not has_ended and seconds > until:
                one.end()
                left[one] = True
            if has_ended and (seconds > until + _AFTERWARDS_S or not one.scenario.goes_on):
                del left[one]
        time.sleep(1)


def states_of(scenario: Scenario) -> list[str]:
    """Return the states that are right, in their order."""
    slow = ["slow"] if scenario.way == "spinning child" else []
    return ["live", *slow, "hung", *(["live"] if scenario.goes_on else [])]


def test_each_way_has_its_scenarios() -> None:
    """Quiet and under load, with both ends."""
    assert len(SCENARIOS) == 4 * len(PROGRAMS) == 40
