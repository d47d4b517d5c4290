"""The frameworks that installed packages know.

A package registers itself in the entry point group `otel_rl_dialects`. It has a table `FRAMEWORKS`, and in its folder a
file `NAME.yaml` for each framework with `modules`. otel-rl's own is `otel_rl.frameworks.dialects`.

`init` reads the tables in the trainer, so this module imports only the standard library.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

ENTRY_POINT_GROUP = "otel_rl_dialects"
Kind = Literal["framework", "library", "tracker"]
logger = logging.getLogger("otel_rl")


class Framework(NamedTuple):
    """What otel-rl knows of a framework before the framework is imported."""

    modules: tuple[str, ...] = ()
    """Modules that show, once they are imported, that the trainer logs in the dialect of this name. If empty, the
    framework has no dialect."""
    built_on: str = ""
    """Another framework that this one imports. The trainer then logs in this one's names."""
    distribution: str = ""
    """Its name on PyPI; empty if it is not there."""
    tested: str = ""
    """The versions that were tested, as a specifier."""
    kind: Kind = "framework"
    """A framework is recorded by default, a library and a tracker if a user names it."""
    hooks: Mapping[str, str] = {}
    """The function to call when a module of it is imported, as `module:function`. The function gets the module and
    `Patches`."""


@cache
def tables() -> dict[str, dict[str, Framework]]:
    """Return the tables of the registered packages, by package. A package that cannot be imported is left out."""
    by_package = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            by_package[point.module] = dict(point.load().FRAMEWORKS)
        except ModuleNotFoundError as error:
            # Somebody has deleted the folder of a wing, which the metadata of the distribution still name.
            if not f"{point.module}.".startswith(f"{error.name}."):
                logger.warning("the dialects of %s cannot be imported: %s", point.module, error)
        except Exception as error:
            logger.warning("the dialects of %s cannot be imported: %r", point.module, error)
    return by_package


def package_of(name: str) -> str | None:
    """Return the package that has the dialect of this name; `None` if none has."""
    return next((package for package, table in tables().items() if name in table and table[name].modules), None)


def frameworks() -> dict[str, Framework]:
    """Return the known frameworks, libraries and trackers by name."""
    return {name: framework for table in reversed(tables().values()) for name, framework in table.items()}


def dialects() -> tuple[str, ...]:
    """Return the frameworks with a dialect, by the name in `dialect=`."""
    return tuple(name for name, framework in frameworks().items() if framework.modules)


def hooked(kind: Kind) -> dict[str, Framework]:
    """Return what can be recorded without code changes, by its name in `OTEL_RL_INSTRUMENT` or `OTEL_RL_CAPTURE`."""
    return {name: known for name, known in frameworks().items() if known.hooks and known.kind == kind}


def imported(modules: Container[str]) -> str | None:
    """Return the one framework whose modules are imported, or `None` if there are none or several."""
    known = frameworks()
    seen = [name for name, framework in known.items() if any(module in modules for module in framework.modules)]
    below = {known[name].built_on for name in seen}
    on_top = [name for name in seen if name not in below]
    return on_top[0] if len(on_top) == 1 else None
