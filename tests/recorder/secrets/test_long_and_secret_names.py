"""Names that are too long or hold a secret: they are cut before they are searched, and stay different."""

from __future__ import annotations

import re
from typing import Any

import pytest

from otel_rl.recorder import secrets as redaction
from otel_rl.recorder.convert.attributes import clean_attributes
from otel_rl.recorder.convert.params import flatten
from otel_rl.recorder.convert.values import sort
from otel_rl.recorder.errors.texts import LONGEST_NAME, name_of, shown
from otel_rl.recorder.secrets import REDACTED, redact
from tests.recorder.secrets.samples import samples

LONG = "loss_" * 400_000
_TOKENS = [samples(seed)[0].secret for seed in range(2)]


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the length of each text that is searched for secrets."""
    lengths: list[int] = []

    def counted(text: str, name: str = "") -> tuple[str, int]:
        lengths.append(len(text))
        return redact(text, name)

    monkeypatch.setattr(redaction, "redact", counted)
    return lengths


@pytest.mark.parametrize(
    "take",
    [
        lambda refuse: sort({LONG: 1.0}, refuse),
        lambda refuse: clean_attributes({LONG: 1.0}, refuse),
        lambda refuse: clean_attributes({"text": LONG}, refuse),
        lambda refuse: flatten({LONG: 1.0}, refuse),
        lambda refuse: flatten({"text": LONG}, refuse),
        lambda refuse: shown(LONG),
        lambda refuse: shown([LONG]),
    ],
)
def test_cut_first(take: Any, searched: list[int]) -> None:
    """Of a long name or value only what is recorded, and the longest secret behind it, is searched."""
    take(lambda reason, message: None)

    assert max(searched, default=0) <= (1 << 20) + 2 * LONGEST_NAME + 100


def test_long_names_are_refused(searched: list[int]) -> None:
    """A name of 2 MB is refused, after a search of a few thousand characters."""
    refused: list[str] = []
    sort({LONG: 1.0}, lambda reason, message: refused.append(message))

    assert "4096 at most" in refused[0]
    assert max(searched) <= 3 * LONGEST_NAME


def test_names_with_secrets_stay_different() -> None:
    """Two names that differ in a secret only do not become one, and no value is lost."""
    names = [f"loss/{token}" for token in _TOKENS]
    found = sort({name: float(n) for n, name in enumerate(names)}, lambda reason, message: None).scalars

    assert sorted(found.values()) == [0.0, 1.0]
    assert all(re.fullmatch(rf"loss/{re.escape(REDACTED)}-[0-9a-f]{{6}}", name) for name in found)
    assert len(flatten(dict.fromkeys(names, 1))) == len(clean_attributes(dict.fromkeys(names, 1))) == 2
    assert all(name_of(name) == name for name in found)
