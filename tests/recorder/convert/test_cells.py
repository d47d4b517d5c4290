"""Widths of texts on a terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_rl.recorder.convert.cells import cell_len, fit, right
from tests.real_parts import part

rich_cells = part("rich.cells")

TEXTS = (
    *(
        "loss",
        "",
        "…",
        "═",
        "é",
        "e\u0301",
        "ﷺ",
        "①②",
        "\uff21\uff11",
        "ｶﾞ",
        "a\u200db",
        "\U0001f3f4\U000e0067\U000e007f",
    ),
    *(
        "👍🏽",
        "👨\u200d👩\u200d👧",
        "❤\ufe0f",
        "🇩🇪",
        "1\ufe0f\u20e3",
        "☺\ufe0f",
        "✈\ufe0f",
        "‼\ufe0f",
        "🏳\ufe0f\u200d🌈",
    ),
    *(
        "🧑🏿\u200d🚀",
        "👩\u200d❤\ufe0f\u200d💋\u200d👨",
        "✅ done ❌",
        "🟠 🔴 ❔ ✨ 🔥",
        "日本語テキスト",
        "你好 世界",
        "한국",
    ),
    *("\u1112\u1161\u11ab", "가나", "עִבְרִית", "العَرَبِيَّة", "ไทย", "ก็", "நி", "क्षि", "မြန်မာ"),
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_width_is_that_of_rich(text: str) -> None:
    """Rich draws the screens of `otel-rl top`, and columns must be of one width there and in a pipe."""
    assert cell_len(text) == rich_cells.cell_len(text)


def test_common_characters_are_those_of_rich() -> None:
    """All letters, signs and emoji but for those that Unicode made wide since Python's tables, and rare marks."""
    assigned = [chr(n) for n in range(0x20, 0x30000) if unicodedata.category(chr(n)) not in ("Cn", "Cs", "Co", "Cc")]
    others = [character for character in assigned if cell_len(character) != rich_cells.cell_len(character)]

    assert len(others) < 300 < len(assigned) / 400


@given(st.text(st.sampled_from("ab 日…é\u0301❤\ufe0f\u200d👨👩\U0001f3fd"), max_size=12), st.integers(-1, 12))
def test_a_fitted_text_has_its_width(text: str, cells: int) -> None:
    """Whatever is cut, also half of a wide character."""
    assert cell_len(fit(text, cells)) == max(0, cells)
    assert cell_len(right(f"a{text}", cells)) == max(0, cells)


def test_a_text_that_is_cut() -> None:
    """It ends with an ellipsis, and begins as the text does."""
    assert [fit("abcdef", 4), fit("日本語", 4), fit("日本語", 3), right("7", 3)] == ["abc…", "日 …", "日…", "  7"]
