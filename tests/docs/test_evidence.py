"""The pages of evidence, which are not in the navigation of the site."""

from __future__ import annotations

import re

from tests.docs.snippets import ROOT


def test_each_page_is_in_the_index() -> None:
    """Nobody finds a page that is neither in the navigation nor in the index."""
    pages = {path.name for path in (ROOT / "docs" / "evidence").glob("*.md")}
    index = (ROOT / "docs" / "evidence" / "index.md").read_text()

    assert set(re.findall(r"^\| \[[^\]]+\]\(([\w-]+\.md)\)", index, re.MULTILINE)) == pages - {"index.md"}
