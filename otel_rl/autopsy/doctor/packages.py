"""Packages: what otel-rl requires, and the frameworks and trackers that it was tested with."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from otel_rl.autopsy.doctor.check import Check
from otel_rl.semconv.frameworks import frameworks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_rl.autopsy.doctor.check import CheckedMachine

_NAME = "packages"
_OWN = "otel-rl"


def packages(machine: CheckedMachine) -> Iterator[Check]:
    """Check what is required, then what was tested."""
    wrong = 0
    for text in metadata.requires(_OWN) or ():
        wanted = Requirement(text)
        is_required = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
        version = _version(wanted.name)
        fix = f"pip install '{wanted.name}{wanted.specifier}'"
        if version is None and is_required:
            wrong += 1
            yield Check(_NAME, "failed", f"{wanted.name} is not installed", fix)
        elif version is not None and is_required and not wanted.specifier.contains(version, prereleases=True):
            wrong += 1
            yield Check(_NAME, "failed", f"{wanted.name} {version} is not {wanted.specifier}", fix)
    tested = []
    for known in frameworks().values():
        version = _version(known.distribution) if known.distribution and known.tested else None
        if version is None:
            continue
        if SpecifierSet(known.tested).contains(version, prereleases=True):
            tested.append(f"{known.distribution} {version}")
        else:
            what = f"{known.distribution} {version} was not tested with this version of otel-rl ({known.tested} was)"
            fix = "It may work. If names or phases are missing, use a tested version."
            yield Check(_NAME, "warning", what, fix)
    if not wrong:
        with_them = f", with {', '.join(sorted(set(tested)))}" if tested else ""
        yield Check(_NAME, "ok", f"{_OWN} {metadata.version(_OWN)} has all that it requires{with_them}")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
