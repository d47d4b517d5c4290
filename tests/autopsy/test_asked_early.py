"""Questions before anything is overdue: how unusual a wait is, and how sure its cause."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from otel_rl.autopsy.evidence import Kernel
from otel_rl.autopsy.verdict import verdict_of
from otel_rl.recorder.archive.autopsies import Verdict
from otel_rl.recorder.facts.unusual import how_unusual, is_unusual
from tests.autopsy.written import AT, machine, now, seen, stack, waits_in


def asked(usual: float | None, age: int = 9, *, is_busy: bool = False) -> Verdict:
    """Return the verdict on a rank that is for so many seconds in a phase, and is not late."""
    agent = now((0, "", "generate"), age=age)
    known = replace(agent, processes=[replace(agent.processes[0], usual_s=usual)])
    works = seen(0, stack("update"), kernel=Kernel(state="R", busy=1.0), moves=True)
    return verdict_of([machine(works if is_busy else seen(0, waits_in("queue", "get")))], [known], AT)


def test_a_wait_that_is_unusual() -> None:
    """Its cause is possible, with how unusual it is, at once; what is late keeps its deadline."""
    found = asked(0.06)

    assert (found.kind, found.sure) == ("alone", "possible")
    assert found.sentence.endswith("Generate takes 150 times its usual time (60 ms).")


@pytest.mark.parametrize(("usual", "age"), [(None, 9), (4.0, 9), (0.06, 4)])
def test_a_wait_that_is_not_unusual(usual: float | None, age: int) -> None:
    """A phase that never ended before, one that is a little longer, and a short one are not overdue."""
    assert asked(usual, age).kind == "well"


def test_a_rank_that_works() -> None:
    """It may go on at any moment, so nothing is wrong, but the answer says how unusual its time is."""
    found = asked(0.3, is_busy=True)

    assert (found.kind, found.names_cause) == ("well", False)
    assert "Rank 0 works at train.py:7 (update): generate takes 30 times its usual time (300 ms)." in found.sentence


def test_how_unusual_a_time_is() -> None:
    """The factor has two digits; a time that is not longer than usual has none."""
    assert how_unusual(56, 0.37) == "150 times its usual time (370 ms)"
    assert how_unusual(0.2, 0.37) == how_unusual(5, None) == ""
    assert [is_unusual(seconds, usual) for seconds, usual in ((56, 0.37), (4, 0.37), (56, 20), (56, None))] == [
        True,
        False,
        False,
        False,
    ]


def test_a_late_rank_that_works() -> None:
    """The agent knows that it is slow: the autopsy that it makes names no cause, unless somebody waits for the rank."""
    agent = now((0, "", "update"), (1, "", "update"))
    slow = replace(agent, stalled=tuple(replace(stall, kind="slow") for stall in agent.stalled))
    works = seen(0, stack("update"), kernel=Kernel(state="R", busy=1.0), moves=True)
    spins = replace(works, moves=False)

    alone = replace(slow, processes=slow.processes[:1])
    assert verdict_of([machine(works)], [alone], AT, is_suspected=True).kind == "well"
    assert verdict_of([machine(spins)], [alone], AT, is_suspected=True).kind == "busy"
    waits = seen(1, stack("step", call="all_reduce"))
    assert verdict_of([machine(works, waits)], [slow], AT, is_suspected=True).who == ("rank 0",)
