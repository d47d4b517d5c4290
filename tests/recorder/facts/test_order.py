"""The order of what is said: wrong before well, certain before likely before possible, newest before older."""

from __future__ import annotations

from itertools import product

import pytest

from otel_rl.recorder.facts.order import Severity, is_worse, precedence
from otel_rl.recorder.facts.states import Sure

SEVERITIES: tuple[Severity, ...] = ("bad", "warning", "note", "good")
SURE: tuple[Sure, ...] = ("certain", "likely", "possible", "unknown")


def test_each_rule_decides_before_the_next_one() -> None:
    """Severity first, then how sure it is, then the newest; what is well has the place of a note."""
    in_order = list(product(SEVERITIES[:3], SURE, (3, 2, 0)))
    places = [precedence(*each) for each in in_order]

    assert places == sorted({*places})
    assert [precedence("good", *rest) for _, *rest in in_order[-12:]] == places[-12:]


@pytest.mark.parametrize(("severity", "than"), list(product(SEVERITIES, SEVERITIES)))
def test_worse(severity: Severity, than: Severity) -> None:
    """Only an earlier severity is worse."""
    assert is_worse(severity, than) == (SEVERITIES.index(severity) < SEVERITIES.index(than))
