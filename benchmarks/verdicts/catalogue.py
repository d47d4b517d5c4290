"""All scenarios, and which of them are sealed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from benchmarks.verdicts.labels import Scenario

Part: TypeAlias = Literal["open", "sealed", "all"]

FILES = ("hangs_of_workers", "hangs_of_threads", "deaths", "slow", "ill", "lies", "controls")
"""Modules of both packages."""
PACKAGES = {"open": "opened", "sealed": "sealed"}
"""The part of a scenario is the package that its file is in, so that nobody opens a sealed one by accident."""


def of(part: Part) -> list[Scenario]:
    """Return the scenarios of a part."""
    parts = ("open", "sealed") if part == "all" else (part,)
    modules = [f"benchmarks.verdicts.{PACKAGES[one]}.{file}" for one in parts for file in FILES]
    return [scenario for module in modules for scenario in import_module(module).SCENARIOS]


def part_of(name: str) -> Part:
    """Return the part that a scenario is in."""
    return "open" if any(one.name == name for one in of("open")) else "sealed"


def named(name: str) -> Scenario:
    """Return the scenario of this name."""
    found = [scenario for scenario in of("all") if scenario.name == name]
    if not found:
        raise SystemExit(f"no scenario is called {name}; there are: {', '.join(one.name for one in of('open'))}")
    return found[0]
