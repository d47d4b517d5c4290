"""The licenses of what otel-rl installs, as a page of the docs; `python -m tests.docs.licenses_page` writes it."""

from __future__ import annotations

import re
from collections import defaultdict
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "licenses.md"
_EXTRAS = ("tensorboard", "wandb", "mlflow", "swanlab", "trackio", "zstd", "autopsy", "look", "mcp", "demo")
_LONGEST = 60
_HEAD = """# Licenses

otel-rl itself has the Apache License 2.0. It installs the packages of this table, which have licenses of their own. The
last column says which extra brings a package; packages without an extra are always installed.

`python -m tests.docs.licenses_page` generates the table from the metadata of the installed packages, on Linux with
Python 3.11 and the versions in `.ci/constraints.txt`. A plain `torch` on Linux also brings CUDA packages, most of which
have NVIDIA's own license. Tools for development and tests are not listed.

The files of `otel-rl report` contain uPlot 1.6.32 with its license, which is MIT. `otel_rl/recorder/secrets/kept.json`
contains rules of CredSweeper and gitleaks with their license, which is MIT, and of Kingfisher (Apache License 2.0).

| package | license | extra |
|---|---|---|
"""
_OF_CUDA = re.compile("(nvidia|cuda)-(?!ml-py)|triton$")
_CLASSIFIER = "License :: OSI Approved :: "


def packages() -> dict[str, set[str]]:
    """Return each installed package that otel-rl needs, with the extras that bring it; "" is no extra."""
    found: dict[str, set[str]] = defaultdict(set)
    for extra in ("", *_EXTRAS):
        waiting = [("otel-rl", frozenset([extra]))]
        seen = set(waiting)
        while waiting:
            name, extras = waiting.pop()
            try:
                metadata = distribution(name)
            except PackageNotFoundError:
                continue  # of another platform
            if name != "otel-rl" and not _OF_CUDA.match(name):
                found[name].add(extra)
            for one in map(Requirement, metadata.requires or ()):
                if one.marker is None or any(one.marker.evaluate({"extra": given}) for given in extras or [""]):
                    needed = (canonicalize_name(one.name), frozenset(one.extras or {""}))
                    if needed not in seen:
                        seen.add(needed)
                        waiting.append(needed)
    return found


def license_of(metadata: Distribution) -> str:
    """Return the license that a package states: as an expression, as classifiers, or as a short text."""
    told = metadata.metadata
    if expression := told.get("License-Expression"):
        return str(expression)
    classifiers = [text.removeprefix(_CLASSIFIER) for text in told.get_all("Classifier", []) if _CLASSIFIER in text]
    text = (told.get("License") or "").strip()
    stated = text if text and len(text) <= _LONGEST and "\n" not in text else ""
    return stated or "; ".join(classifiers) or text.partition("\n")[0][:_LONGEST] or "see its files"


def page() -> str:
    """Return the page."""
    lines = []
    for name, extras in sorted(packages().items()):
        brought = "" if "" in extras else ", ".join(f"`{extra}`" for extra in sorted(extras))
        lines.append(f"| {name} | {re.sub('[|]', '/', license_of(distribution(name)))} | {brought} |\n")
    return _HEAD + "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
