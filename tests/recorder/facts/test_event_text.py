"""Events as texts."""

from __future__ import annotations

from otel_rl import semconv
from otel_rl.recorder.facts.event_text import text_of


def test_attributes() -> None:
    """Those that say whose the event is are left out; the others are named in a word."""
    attributes = {semconv.HOST_NAME: "node1", "rl.phase": "generate", "path": "/ckpt/8"}

    assert text_of(attributes) == "phase=generate, path=/ckpt/8"
    assert len(text_of({"text": "x" * 1000})) == 200


def test_a_sentence() -> None:
    """An autopsy is its verdict."""
    assert text_of({"rl.autopsy.cause": "stalled", semconv.AUTOPSY_VERDICT: "Rank 0 sleeps."}) == "Rank 0 sleeps."


def test_values_of_attributes() -> None:
    """Numbers have three digits, and lists are words."""
    assert text_of({"age": 21.079745398, "ranks": [1, 2], "n": 12345}) == "age=21.1, ranks=1 and 2, n=12345"
