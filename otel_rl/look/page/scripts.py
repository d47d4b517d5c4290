"""The scripts of a page as one script: modules of `assets` in the order of their imports, each in a scope of its own.

A browser refuses to `import` another file from a page that was opened from a disk.
"""

from __future__ import annotations

import re
from importlib import resources

_IMPORT = re.compile(r'^import (\{.+\}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)


def asset(name: str) -> str:
    """Return the text of a file of the page."""
    return resources.files("otel_rl.look.page").joinpath("assets", name).read_text("utf-8")


def script(module: str) -> str:
    """Return a module with all that it imports; its exports are in `$module`."""
    modules: dict[str, str] = {}
    _add(module, modules)
    return "\n".join(modules.values())


def _add(module: str, modules: dict[str, str]) -> None:
    text = asset(f"{module}.js")
    for _, imported in _IMPORT.findall(text):
        if imported not in modules:
            _add(imported, modules)
    names = ", ".join(_EXPORT.findall(text))
    body = _IMPORT.sub(r"const \1 = $\2;", _EXPORT.sub("", text))
    modules[module] = f'const ${module} = (() => {{\n"use strict";\n{body}return {{{names}}};\n}})();'
