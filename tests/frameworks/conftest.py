"""Collects the tests of the frameworks that are installed; with `REQUIRE_FRAMEWORKS=1` all that are asked for."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

_MODULES = {path.name: path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
_ALONE = {"test_ray_train.py", "test_rllib.py"}
"""Ray's libraries start many processes, and stop waiting for them if other tests run; nox runs these files."""

collect_ignore: list[str] = []
if os.environ.get("REQUIRE_FRAMEWORKS") != "1":
    collect_ignore = [name for name, module in _MODULES.items() if name in _ALONE or find_spec(module) is None]
