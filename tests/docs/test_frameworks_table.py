"""The table of the real frameworks."""

from __future__ import annotations

from tests.docs.frameworks_table import KEYS, PAGE, page, results


def test_it_is_up_to_date() -> None:
    """`python -m tests.docs.frameworks_table` writes it."""
    text = PAGE.read_text()

    assert page(text) == text


def test_the_numbers_of_each_file_add_up() -> None:
    """Each file has all keys; no number or name is counted twice, and a difference has an explanation."""
    for name, one in results().items():
        assert set(one) == set(KEYS), name
        assert one["numbers"] == one["equal"] + one["different"], name
        assert one["names"] >= one["mapped"] + one["declared"] + one["unknown"], name
        assert bool(one["explained"]) or not one["different"], name
