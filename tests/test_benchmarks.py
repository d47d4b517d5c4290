"""The benchmarks, which nothing else runs."""

from __future__ import annotations

from importlib import import_module

import pytest

from benchmarks.__main__ import _BENCHMARKS
from tests.real_parts import needs


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(one, marks=needs("torch") if "samples" in one or "weights" in one else ())
        for one in _BENCHMARKS.values()
    ],
)
def test_a_benchmark_can_be_imported(module: str) -> None:
    """It names what is there, and has `measure`."""
    assert callable(import_module(module).measure)
