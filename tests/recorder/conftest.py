"""One dialect for the recorder's tests, whether or not the wing with the real ones is there."""

from __future__ import annotations

import pytest

from otel_rl.semconv import frameworks
from tests.recorder import dialects


@pytest.fixture(autouse=True)
def _toyrl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the dialect of the tests be the only one in this process."""
    monkeypatch.setattr(frameworks, "tables", lambda: {dialects.__name__: dialects.FRAMEWORKS})
