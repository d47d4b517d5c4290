"""All scenarios, and the part that each is in."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from benchmarks.verdicts.labels import Scenario

Part: TypeAlias = Literal["open", "sealed", "kept", "all"]

FILES = ("hangs_of_workers", "hangs_of_threads", "deaths", "slow", "ill", "lies", "controls")
"""Modules of each package."""
PACKAGES = {"open": "opened", "sealed": "sealed", "kept": "kept"}
"""The part of a scenario is the package that its file is in, so that nobody opens a sealed one by accident.

The scenarios of `kept` were written after the code had been corrected for those of the other two."""


def of(part: Part) -> list[Scenario]:
    """Return the scenarios of a part."""
    parts = PACKAGES if part == "all" else (part,)
    modules = [f"benchmarks.verdicts.{PACKAGES[one]}.{file}" for one in parts for file in FILES]
    return [scenario for module in modules for scenario in import_module(module).SCENARIOS]


def named(name: str) -> Scenario:
    """Return the scenario of this name."""
    found = [scenario for scenario in of("all") if scenario.name == name]
    if not found:
        raise SystemExit(f"no scenario is called {name}; there are: {', '.join(one.name for one in of('open'))}")
    return found[0]
