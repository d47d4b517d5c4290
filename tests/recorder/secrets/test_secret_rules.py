"""The kept rules of secrets, whose fixed starts are outside of what may look like words."""

from __future__ import annotations

import pytest

from otel_rl.recorder.secrets.formats import KEPT
from tests.recorder.secrets.drawing import drawn

SEVERAL = [(starts, pattern) for _, starts, pattern in KEPT if len(starts) > 1]


@pytest.mark.parametrize(("starts", "pattern"), SEVERAL, ids=[starts[0] for starts, _ in SEVERAL])
def test_a_secret_has_one_start(starts: list[str], pattern: str) -> None:
    """A rule with several starts finds secrets with one of them, and asks for no two."""
    found = [drawn(pattern, seed) for seed in range(200)]

    assert not any(sum(start in text for start in starts) > 1 for text in found)
