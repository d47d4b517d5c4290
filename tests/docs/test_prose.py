"""The checker of texts. `.ci/run docs` runs it on all of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.snippets import ROOT


def _prose(*paths: object) -> str:
    command = [sys.executable, ROOT / ".ci" / "prose", *paths]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize(
    "text",
    [
        "The value is no number.",
        "A row of ours waits.",
        "What is not taken is sent again.",
        "The head waits for a quarter of an hour.",
        "Synchronisation is not needed.",
        "one two three four five six seven eight nine ten " * 4,
    ],
)
def test_a_hard_sentence_is_found(tmp_path, text: str) -> None:
    """The checker is worth something."""
    (tmp_path / "page.md").write_text(f"# Title\n\n{text}\n")

    assert _prose(tmp_path / "page.md") != ""
