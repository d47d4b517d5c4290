"""The page of settings."""

from __future__ import annotations

from tests.docs.settings_page import PAGE, page


def test_the_page_is_what_the_settings_say() -> None:
    """`docs/reference/settings.md` is what `python -m tests.docs.settings_page` writes."""
    assert PAGE.read_text() == page()
