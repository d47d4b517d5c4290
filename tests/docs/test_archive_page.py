"""The page of the archive."""

from __future__ import annotations

from tests.docs.archive_page import PAGE, page


def test_the_page_is_what_the_tables_say() -> None:
    """`docs/reference/run-archive.md` is what `python -m tests.docs.archive_page` writes."""
    assert PAGE.read_text() == page()
