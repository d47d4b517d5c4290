"""How to get an extra of the distribution: into this environment, or into another one that leaves this one as it is."""

from __future__ import annotations

import shlex
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

_DISTRIBUTION = "otel-rl"
_OWN_PACKAGES = ("otel_rl", "otel_rl_exporters")


def absent_package(error: ModuleNotFoundError) -> str:
    """Return the package of another distribution that an import did not find; empty if the module is of this one."""
    package = (error.name or "").partition(".")[0]
    return "" if package in _OWN_PACKAGES else package


def how_to_get(extra: str, command: list[str]) -> str:
    """Return what to install, and the command that does the same from an environment of its own, as one line."""
    elsewhere = f"uvx --from {shlex.quote(f'{_source()}[{extra}]')} {shlex.join(command)}"
    return f"pip install '{_DISTRIBUTION}[{extra}]', or leave this environment as it is: {elsewhere}"


def _source() -> str:
    """Return where this distribution was installed from: the path of a checkout or a wheel, or its name."""
    try:
        return source_in(metadata.distribution(_DISTRIBUTION).read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        return _DISTRIBUTION


def source_in(direct_url: str) -> str:
    """Return the path of a checkout or a wheel in the text of `direct_url.json`; the name, if it is not there."""
    try:
        url = urlsplit(msgspec.json.decode(direct_url)["url"])
    except (msgspec.DecodeError, KeyError):  # it came from an index
        return _DISTRIBUTION
    path = unquote(url.path)
    return path if url.scheme == "file" and Path(path).exists() else _DISTRIBUTION
