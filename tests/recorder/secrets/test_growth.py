"""Expressions that take exponential time: they are found, and refused as a setting."""

from __future__ import annotations

import pytest

import otel_rl
from otel_rl.recorder.secrets.growth import slow_text


@pytest.mark.parametrize(
    "pattern", [r"(a+)+b", r"ACME-(\d+)*x", r"(?:[a-z]+-?)+:", r"(x|xx)+y", r"^(\w+\s?)*$", r"key=(\w+,?)*;"]
)
def test_exponential(pattern: str) -> None:
    """A text that makes an expression slow is found, before it takes long."""
    assert slow_text(pattern) is not None


@pytest.mark.parametrize(
    "pattern", [r"ACME-\d{6}", r"(?i)badge[ -]?[0-9a-f]{8,}", r"\b[\w.]+@[\w.]+\b", r"(?:[a-z]+-)+:", r".*ACME.*"]
)
def test_harmless(pattern: str) -> None:
    """Ordinary expressions pass, also if they are not quite linear."""
    assert slow_text(pattern) is None


def test_a_slow_pattern_is_refused() -> None:
    """The message names the expression and the text that makes it slow."""
    with pytest.raises(otel_rl.SettingsError, match=r"exponential time for \d+ times '.'"):
        otel_rl.init(redact={"patterns": [r"(a+)+b"]})
