"""The page of tested jobs: it names every test, and each one that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

_HERE = Path(__file__).parent
_PAGE = _HERE.parents[1] / "docs" / "evidence" / "clusters.md"


def test_the_page_names_all_tests() -> None:
    """A row without its test is a promise that nobody checks."""
    named = set(re.findall(r"`(test_\w+\.py)::(test_\w+)`", _PAGE.read_text()))
    files = [path for path in _HERE.glob("test_*.py") if path != Path(__file__)]

    assert named == {
        (path.name, name) for path in files for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }
