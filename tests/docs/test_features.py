"""The features of the five frameworks, and the tests that cover them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import yaml

TESTS = Path(__file__).parents[1]
FEATURES: dict[str, tuple[str, str]] = yaml.safe_load((TESTS / "data" / "features.yaml").read_text())
IDS = {
    *(f"T-{n:02}" for n in range(1, 25)),
    *(f"R-{n:02}" for n in range(1, 32)),
    *(f"M-{n:02}" for n in range(1, 45)),
    *(f"MD-{n}" for n in range(1, 11)),
    *(f"F-{n:02}" for n in range(1, 35) if n != 19),
    *(f"N-{n:02}" for n in range(1, 39)),
    *(f"X-{n:02}" for n in range(1, 13)),
}


@cache
def names_in(path: str) -> set[str]:
    """Return the names of the test functions in a file."""
    tree = ast.parse((TESTS / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_feature_is_decided() -> None:
    """Each one is in the table, once, with what it is."""
    assert set(FEATURES) == IDS
    assert [key for key, (what, _) in FEATURES.items() if not what] == []


def test_each_is_shown_or_declined_with_a_reason() -> None:
    """Each named test exists."""
    wrong = []
    for key, (_, where) in FEATURES.items():
        path, _, name = where.partition("::")
        declined = where.startswith("declined: ") and len(where) > 20
        if not declined and not (name and (TESTS / path).exists() and name in names_in(path)):
            wrong.append((key, where))

    assert wrong == []
