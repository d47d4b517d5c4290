"""The page of tested faults: every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

FAULTS = Path(__file__).parent
PAGE = FAULTS.parents[1] / "docs" / "evidence" / "faults.md"


def test_every_named_test_exists() -> None:
    """A row without its test is a promise that nobody checks."""
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE.read_text())

    assert len(named) > 40
    assert [(file, name) for file, name in named if f"\ndef {name}(" not in (FAULTS / file).read_text()] == []
