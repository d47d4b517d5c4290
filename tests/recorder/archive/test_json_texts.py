"""JSON texts of an archive: each is decoded, or raises one error."""

from __future__ import annotations

import pytest

from otel_rl.recorder.archive.json_texts import DEEPEST, decoded, encoded, is_too_deep


@pytest.mark.parametrize("value", ["zz", {}, [], 1, None, 1.5, {"$float": 2}])
def test_a_name_that_stands_for_floats(value: object) -> None:
    """An object of a program that uses it for other values is read as it is."""
    assert decoded(encoded({"a": {"$float": value}})) == {"a": {"$float": value}}


@pytest.mark.parametrize("text", ['{"a":' * 50_000, "[" * 50_000 + "]" * 50_000, "{[", "nope"])
def test_a_text_that_cannot_be_decoded(text: str) -> None:
    """It raises a `ValueError`, however deep it is."""
    with pytest.raises(ValueError, match=r".+"):
        decoded(text)


def test_the_depth_of_a_text() -> None:
    """Brackets in strings do not count, nor do those that are closed."""
    assert is_too_deep("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1))
    assert not is_too_deep("[" * DEEPEST + "]" * DEEPEST)
    assert not is_too_deep("[" + "[],{}," * DEEPEST + "1]")
    assert not is_too_deep('["' + '[{\\"' * DEEPEST + '"]')
