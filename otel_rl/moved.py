"""The modules that were public before they moved: their old names still import.

`import otel_rl` appends one finder to `sys.meta_path`. Python asks it last, so only names that are gone pay.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.abc import InspectLoader, MetaPathFinder
    from types import CodeType
else:
    # Their module takes 6 ms to import, in every trainer; Python asks for methods, not for base classes.
    InspectLoader = MetaPathFinder = object

MOVED = {
    "otel_rl.agent": "otel_rl.recorder.agent",
    "otel_rl.archive.reader": "otel_rl.look.reader.runs",
    "otel_rl.archive.snapshot": "otel_rl.look.reader.snapshot",
    "otel_rl.archive.result": "otel_rl.look.reader.result",
    "otel_rl.archive": "otel_rl.recorder.archive",
    "otel_rl.convert.printing": "otel_rl.frameworks.evaluation.printing",
    "otel_rl.convert": "otel_rl.recorder.convert",
    "otel_rl.errors": "otel_rl.recorder.errors",
    "otel_rl.insight": "otel_rl.look.insight",
    "otel_rl.integrations": "otel_rl.frameworks",
    "otel_rl.semconv.drift": "otel_rl.frameworks.drift",
    "otel_rl.setup": "otel_rl.recorder.settings",
    "otel_rl.stats.at_k": "otel_rl.frameworks.evaluation.at_k",
    "otel_rl.stats.groups": "otel_rl.frameworks.evaluation.groups",
    "otel_rl.stats.rollup": "otel_rl.frameworks.evaluation.rollup",
    "otel_rl.stats.trend": "otel_rl.analyses.memory.trend",
    "otel_rl.stats": "otel_rl.recorder.stats",
    "otel_rl.trainer": "otel_rl.recorder.trainer",
    "otel_rl.view": "otel_rl.look",
}
"""New names by old ones; the first that fits counts. Modules inside a package moved with it."""


def install() -> None:
    """Let the old names import."""
    if not any(isinstance(finder, _MovedNames) for finder in sys.meta_path):
        sys.meta_path.append(_MovedNames())


class _MovedNames(MetaPathFinder):
    """Finds modules by their old names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        for old, new in MOVED.items():
            if fullname == old or fullname.startswith(f"{old}."):
                spec = importlib.util.find_spec(new + fullname.removeprefix(old))
                is_package = spec is not None and spec.submodule_search_locations is not None
                return None if spec is None else ModuleSpec(fullname, _Alias(spec), is_package=is_package)
        return None


class _Alias(InspectLoader):
    """Loads a module that passes every look-up on to the one with the new name.

    It is not that module itself: by its `__path__` Python would find and load the modules inside a second time.
    """

    def __init__(self, moved: ModuleSpec) -> None:
        self._moved = moved

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        moved = importlib.import_module(self._moved.name)
        module.__getattr__ = lambda name: getattr(moved, name)  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Execute nothing: the module with the new name has been."""

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of the module, for `python -m` with its old name."""
        del fullname
        loader = self._moved.loader
        return loader.get_code(self._moved.name) if isinstance(loader, InspectLoader) else None

    def get_source(self, fullname: str) -> str | None:
        """Return the source of the module, for tracebacks."""
        del fullname
        loader = self._moved.loader
        return loader.get_source(self._moved.name) if isinstance(loader, InspectLoader) else None
