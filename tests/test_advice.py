"""Each sentence that gives advice has a test in which following it helps, and one in which it must not be given."""

from __future__ import annotations

import re
from pathlib import Path

from tests.advices import TESTS, AdviceTests, advices

HERE = Path(__file__).parent


def _tests_of(module: str, text: str) -> AdviceTests | None:
    """Return the tests of an advice: those with the longest beginning of its text."""
    known = TESTS.get(module, {})
    begin = max((begin for begin in known if text.startswith(begin)), key=len, default=None)
    return None if begin is None else known[begin]


def test_each_advice_has_its_tests() -> None:
    """No advice is without them."""
    assert len(advices()) > 100
    assert [advice for advice in advices() if _tests_of(*advice) is None] == []


def test_each_advice_is_given_by_the_library() -> None:
    """Nothing in the table is of a text that is gone."""
    texts: dict[str, list[str]] = {}
    for module, text in advices():
        texts.setdefault(module, []).append(text)
    gone = [
        (module, begin)
        for module, known in TESTS.items()
        for begin in known
        if not any(text.startswith(begin) for text in texts.get(module, ()))
    ]

    assert gone == []


def test_the_tests_exist() -> None:
    """They are functions of the files that are named."""
    named = {test for known in TESTS.values() for both in known.values() for test in both}
    missing = [
        test
        for test in sorted(named)
        if not re.search(rf"^ *def {test.partition('::')[2]}\(", (HERE / test.partition("::")[0]).read_text(), re.M)
    ]

    assert missing == []
