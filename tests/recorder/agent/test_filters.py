"""Which metrics of a row trackers get."""

from __future__ import annotations

import pytest

from otel_rl.recorder.agent.steps.trackers import Filter


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (("actor/*",), {"actor/loss", "actor/lr"}),
        (("actor/*", "!*/lr"), {"actor/loss"}),
        (("!actor/*",), {"time/step", "reward"}),
        (("!*", "reward"), {"reward"}),
        (("!actor/*", "actor/lr"), {"time/step", "reward", "actor/lr"}),
        ((), {"actor/loss", "actor/lr", "time/step", "reward"}),
        ("re*", {"reward"}),
    ],
)
def test_patterns(patterns: str | tuple[str, ...], names: set[str]) -> None:
    """The last one that matches counts; if the first one excludes, everything else is chosen."""
    values = dict.fromkeys(["actor/loss", "actor/lr", "time/step", "reward"], 1.0)

    assert set(Filter(patterns).select(values)) == names


def test_full_keeps_all() -> None:
    """Nothing is left out, and the row is another one."""
    values = {"a": 1.0}

    assert Filter("full").select(values) == values
    assert Filter("full").select(values) is not values
