"""Texts in lines: nothing is lost or too wide, and no text takes long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.convert.cells import cell_len
from otel_rl.recorder.convert.wrapping import wrapped
from tests.security.hostile import CONTROLS

_NO_LIMIT = 1 << 60
_SEEN = st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp", "Mn", "Me"])


@given(st.text(_SEEN, max_size=300), st.integers(20, 90))
def test_every_character_is_there(text: str, cells: int) -> None:
    """Lines fit, and have all characters but the spaces where a line ends."""
    rows, left = wrapped(text, cells, _NO_LIMIT)

    assert left == 0
    assert max(map(cell_len, rows)) <= cells
    assert "".join("".join(rows).split()) == "".join(text.split())


def test_words_and_code() -> None:
    """A line ends between words; spaces at its begin stay."""
    assert wrapped("    return one + two + three + four", 20, 9) == (["    return one + two", "+ three + four"], 0)
    assert wrapped("a\n\nb\r\n", 20, 9) == (["a", "", "b", ""], 0)
    assert wrapped("\tx", 20, 9) == (["    x"], 0)


def test_wide_characters() -> None:
    """A Chinese character takes two cells, and lines end between any of them."""
    assert wrapped("日本" * 15, 20, 9) == (["日本日本日本日本日本"] * 3, 0)


@pytest.mark.parametrize("character", ["a", "\x1b", "\u202e", "\ud800", "e\u0301", "\u0301", " ", "語", "\n"])
def test_a_large_text_is_made_as_far_as_it_is_shown(character: str) -> None:
    """Of 10 MB, the rest is counted."""
    text = character * (10_000_000 // len(character))
    rows, left = wrapped(text, 60, 3)

    assert len(rows) == 3
    assert max(map(cell_len, rows)) <= 60
    assert sum(map(len, rows)) < 1000
    assert len(text) - 1000 < left < len(text)


@pytest.mark.parametrize("text", sorted(CONTROLS))
def test_nothing_acts(text: str) -> None:
    """No line has a character that acts on a terminal."""
    rows, _ = wrapped(text, 40, _NO_LIMIT)

    assert not any(character < " " or character in "\x7f\u2028\u2029\u202e" for row in rows for character in row)
