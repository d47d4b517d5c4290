"""A hook of MkDocs: links from a page to files outside of `docs/` lead to the repository, and must exist."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

_LOG = logging.getLogger("mkdocs.plugins.otel_rl")  # a warning of this logger fails a strict build
_ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]*)(?=[)#])")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Return the Markdown of a page with links that work on the site."""
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
