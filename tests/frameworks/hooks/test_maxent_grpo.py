"""The module of MaxEnt-GRPO without the package; `tests/frameworks/test_maxent_grpo.py` has the package."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from otel_rl.frameworks import maxent_grpo
from otel_rl.frameworks.instrument import uninstrument


@pytest.mark.skipif(find_spec("maxent_grpo") is not None, reason="the package is here")
def test_a_missing_package_is_named() -> None:
    """Its functions are the package's, so the error is that of importing them from there."""
    with pytest.raises(ModuleNotFoundError, match="No module named 'maxent_grpo'"):
        from otel_rl.frameworks.maxent_grpo import log_local_step  # noqa: F401
    uninstrument("maxent_grpo")


def test_what_python_itself_asks_for_is_not_the_packages() -> None:
    """Such as the path of a package, which an import looks for."""
    assert not hasattr(maxent_grpo, "__path__")
