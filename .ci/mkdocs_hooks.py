"""Hooks of MkDocs.

Links from a page to files outside of `docs/` lead to the repository, and must exist. `<!-- exporters -->` becomes the
reference of all exporters that pyproject.toml registers, `<!-- integrations -->` that of all frameworks with a module.
The search leaves out the evidence.
"""

from __future__ import annotations

import logging
import os
import re
import tomllib
from pathlib import Path
from typing import Any

_LOG = logging.getLogger("mkdocs.plugins.otel_rl")  # a warning of this logger fails a strict build
_ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]*)(?=[)#])")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Return the Markdown of a page with links that work on the site."""
    if page.file.src_uri.startswith("evidence/"):
        page.meta["search"] = {"exclude": True}
    markdown = markdown.replace("<!-- exporters -->", _exporters()).replace("<!-- integrations -->", _frameworks())
    docs, here = Path(config.docs_dir), Path(page.file.abs_src_path).parent

    def on_site(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(here / link[1]))
        if target.is_relative_to(docs):
            return link[1]  # MkDocs checks it
        if not target.exists():
            _LOG.warning("%s: %s does not exist", page.file.src_uri, link[1])
        kind = "tree" if target.is_dir() else "blob"
        return f"{config.repo_url}/{kind}/main/{target.relative_to(_ROOT)}"

    return _LINK.sub(on_site, markdown)


def _exporters() -> str:
    """Return a heading and the documentation of the class for each exporter that users can name."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    readers = project["entry-points"]["otel_rl_metric_reader"]
    named = {name: readers[name] for name in ("otlp", "prometheus")} | project["entry-points"]["otel_rl_exporter"]
    # `head`, `attach` and OpenTelemetry's variables choose these, not `exporters=`
    others = re.compile(r"head|.*_attached|console_.*|otlp_stdout.*")
    classes = {place.replace(":", "."): name for name, place in named.items() if not others.fullmatch(name)}
    options = "options: {members: false, show_bases: false, show_root_heading: false, show_root_toc_entry: false}"
    by_name = sorted(classes.items(), key=lambda item: item[1])
    return "\n".join(f"## `{name}`\n\n::: {place}\n    {options}\n" for place, name in by_name)


def _frameworks() -> str:
    """Return the documentation of the module of each framework that has one."""
    names = sorted(path.stem for path in (_ROOT / "otel_rl" / "semconv" / "dialects").glob("*.yaml"))
    modules = (name for name in names if (_ROOT / "otel_rl" / "frameworks" / f"{name}.py").is_file())
    return "\n".join(f"::: otel_rl.frameworks.{name}\n    options: {{heading_level: 2}}\n" for name in modules)
