"""The locks: the versions that CI installs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click import Context
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from otel_rl.cli import main
from tests.deploy.test_files import pod, resources

_ROOT = Path(__file__).parents[2]
_CI = _ROOT / ".ci"
_PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def requirements(lines: list[str]) -> list[Requirement]:
    own = [line.removesuffix("\\") for line in lines if not line.lstrip().startswith(("#", "--hash="))]
    return [Requirement(line) for line in own if line.strip()]


def locked(path: Path, python: str) -> dict[str, Version]:
    """Return the version of each package for a Python on Linux."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    found = {}
    for one in requirements(path.read_text().splitlines()):
        if one.marker is None or one.marker.evaluate(environment):
            (pin,) = one.specifier
            assert pin.operator == "=="
            assert canonicalize_name(one.name) not in found, one
            found[canonicalize_name(one.name)] = Version(pin.version)
    return found


def declared() -> list[Requirement]:
    """Return what pyproject.toml names: to run, in every extra, to build, and for CI."""
    content: dict[str, Any] = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    project = content["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values(), content["build-system"]["requires"]]
    found = requirements([line for lines in [*lists, *content["dependency-groups"].values()] for line in lines])
    return [one for one in found if one.name != "otel-rl"]


@pytest.mark.parametrize("python", _PYTHONS)
def test_the_lock_covers_what_is_declared(python: str) -> None:
    """Each requirement has one version for each Python, which satisfies it; `.ci/lock --keep` adds what is missing."""
    lock = locked(_CI / "constraints.txt", python)
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    wanted = [one for one in declared() if one.marker is None or one.marker.evaluate(environment)]

    assert len(wanted) > 30
    assert [str(one) for one in wanted if canonicalize_name(one.name) not in lock] == []
    assert [
        f"{one}: {lock[canonicalize_name(one.name)]}"
        for one in wanted
        if not one.specifier.contains(lock[canonicalize_name(one.name)], prereleases=True)
    ] == []


@pytest.mark.parametrize(
    ("name", "extras", "group"), [("release", (), "release"), ("image", ("tensorboard", "wandb", "mlflow"), "")]
)
def test_what_is_published_has_hashes(name: str, extras: tuple[str, ...], group: str) -> None:
    """The tools of the release and the packages of the image have the versions of CI, each with its hashes."""
    content: dict[str, Any] = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    lines = [line for extra in extras for line in content["project"]["optional-dependencies"][extra]]
    lines += content["dependency-groups"][group] if group else content["project"]["dependencies"]
    text = (_CI / f"{name}.txt").read_text()
    lock, versions = locked(_CI / f"{name}.txt", "3.12"), locked(_CI / "constraints.txt", "3.12")

    assert {canonicalize_name(one.name) for one in requirements(lines)} <= set(lock)
    assert lock == {package: versions[package] for package in lock}
    packages = re.findall(r"^\S+==.*\n(?=( +--hash=sha256:[0-9a-f]{64})?)", text, re.MULTILINE)
    assert len(packages) >= len(lock)
    assert all(packages)


def test_the_locks_have_the_chosen_versions() -> None:
    """Every version of `pins.txt` is that of the lock."""
    lock = locked(_CI / "constraints.txt", "3.11")
    chosen = locked(_CI / "pins.txt", "3.11")

    assert {name: lock[name] for name in chosen} == chosen


def test_every_session_has_a_lock() -> None:
    """The versions that a session asks for are in its lock; a session without one would install anything."""
    sessions = {path.stem for path in (_CI / "locks").iterdir()}
    noxfile = (_CI / "noxfile.py").read_text()
    functions = set(re.findall(r"^@nox\.session\ndef (\w+)", noxfile, re.MULTILINE))
    scripts = {
        path.stem.removeprefix("test_"): path.read_text()
        for path in (_ROOT / "tests" / "frameworks").glob("test_*.py")
        if "# /// script" in path.read_text()
    }

    assert sessions == functions | set(scripts)
    for name in ("trl", "manifests", *scripts):
        lock = locked(_CI / "locks" / f"{name}.txt", "3.11")
        text = scripts.get(name) or noxfile[noxfile.index(f"def {name}(") :].split("@nox")[0]
        exact = re.findall(r'"([\w-]+)==([\w.]+)"', text)
        assert [one for one in exact if lock.get(canonicalize_name(one[0])) != Version(one[1])] == []


def test_the_image_has_what_its_pods_run() -> None:
    """The verb of each container that has the image as it is finds the packages of its extra."""
    extras = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pods = [found for one in resources() if (found := pod(one))]
    containers = [one for each in pods for one in (*each.get("initContainers", []), *each["containers"])]
    verbs = {one["args"][0] for one in containers if one["image"].startswith("otel-rl:") and "command" not in one}
    needed = {extra for verb in verbs if (extra := getattr(main.get_command(Context(main), verb), "extra", ""))}

    assert "look" in needed
    assert not {canonicalize_name(Requirement(one).name) for extra in needed for one in extras[extra]} - {
        "otel-rl",
        *locked(_CI / "image.txt", "3.12"),
    }
