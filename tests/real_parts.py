"""Requirements of a test in addition to this package: without them it is skipped, unless they are mandatory.

`REQUIRE_REAL_PARTS=1` turns every such skip into the failure of the test.
"""

from __future__ import annotations

import os
import shutil
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest


def needs(module: str) -> pytest.MarkDecorator:
    """Mark a test, or a module as its `pytestmark`, that imports `module`."""
    return given(module, present=find_spec(module) is not None)


def needs_program(name: str) -> pytest.MarkDecorator:
    """Mark a test that runs the program `name`."""
    return given(name, present=shutil.which(name) is not None)


def part(module: str) -> Any:
    """Import `module` for all tests of a file, which are skipped where it is absent."""
    return import_module(module) if _required() else pytest.importorskip(module)


def _required() -> bool:
    return os.environ.get("REQUIRE_REAL_PARTS") == "1"


def given(what: str, *, present: bool) -> pytest.MarkDecorator:
    """Mark a test that needs something that is not a module or a program."""
    return pytest.mark.skipif(not expected(present=present), reason=f"needs {what}")


def expected(*, present: bool) -> bool:
    """Return whether a part is there, or must be."""
    return present or _required()
