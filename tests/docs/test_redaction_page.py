"""The page of the rules of redaction."""

from __future__ import annotations

from tests.docs.redaction_page import PAGE, page


def test_it_is_up_to_date() -> None:
    """`python -m tests.docs.redaction_page` writes it."""
    text = PAGE.read_text()

    assert page(text) == text
