"""The workflows of GitHub: what of them can be known without GitHub."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
import yaml

from tests.docs.snippets import ROOT

_WORKFLOWS = sorted([*(ROOT / ".github" / "workflows").glob("*.yml"), *(ROOT / "deploy" / "github").glob("*.yml")])


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not on PATH")
def test_actionlint_finds_nothing() -> None:
    """Syntax, expressions, inputs of actions, and the shell in `run`."""
    done = subprocess.run(["actionlint", *_WORKFLOWS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == ""


@pytest.mark.parametrize("path", sorted({*(ROOT / ".github").rglob("*.yml"), *_WORKFLOWS}), ids=lambda path: path.name)
def test_the_files_are_yaml(path) -> None:
    """Workflows and templates parse."""
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_the_parts_of_the_suite_are_there() -> None:
    """Every file or folder of tests that `.ci/run` names exists: a part that nobody finds would pass."""
    names = re.findall(r"\btests/[\w/]+(?:\{[\w,]+\})?[\w.]*", (ROOT / ".ci" / "run").read_text())
    command = ["bash", "-c", f"ls -d {' '.join(names)}"]

    assert len(names) > 6
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stderr == ""


def test_the_lowest_opentelemetry_is_the_one_that_is_declared() -> None:
    """The job of the lowest versions installs the lower bounds of pyproject.toml."""
    declared = re.findall(r'"(opentelemetry-[\w-]+)>=([\w.]+)', (ROOT / "pyproject.toml").read_text())
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()

    assert len(declared) == 4
    assert [f"{name}=={version}" for name, version in declared if f"{name}=={version}" not in workflow] == []


def test_every_supported_python_is_tested() -> None:
    """The matrix begins with `requires-python`."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    pythons = jobs["tests"]["strategy"]["matrix"]["python"]

    assert f'requires-python = ">={pythons[0]}"' in (ROOT / "pyproject.toml").read_text()


def test_publishing_needs_no_token() -> None:
    """The release is published by trusted publishing."""
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()

    assert "id-token: write" in workflow
    assert "secrets." not in workflow


@pytest.mark.parametrize("path", _WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_only_what_was_reviewed(path) -> None:
    """Actions are pinned by commit, with the version as a comment; the token can only read, except to publish."""
    text = path.read_text()
    content = yaml.safe_load(text)
    uses = re.findall(r"uses: (.*)", text)

    assert uses
    assert [one for one in uses if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", one)] == []
    assert content["permissions"] == {"contents": "read"}
    granted = {name: job["permissions"] for name, job in content["jobs"].items() if "permissions" in job}
    assert granted in ({}, {"publish": {"id-token": "write"}})
    assert "pull_request_target" not in text
    assert text.count("persist-credentials: false") == text.count("actions/checkout@")


def test_another_index_answers_for_torch_alone() -> None:
    """No index is an extra one, which pip would ask for every name; the release asks for hashes."""
    texts = {path.name: path.read_text() for path in _WORKFLOWS}
    downloads = re.findall(r"^ +- run: (.*--index-url.*)$", texts["ci.yml"], re.MULTILINE)

    assert not any(re.search("extra[-_]index", text, re.IGNORECASE) for text in texts.values())
    assert set(downloads) == {'pip download --no-deps --dest "$PIP_FIND_LINKS" --index-url "$PYTORCH" torch'}
    assert re.findall("pip install (.*?) &&", texts["release.yml"]) == ["--require-hashes -r .ci/release.txt"]


def test_everything_that_is_pinned_is_renewed() -> None:
    """Dependabot proposes newer versions of actions, images and the packages of the clients in other languages."""
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    watched = {(one["package-ecosystem"], one["directory"]) for one in updates}
    clients = {"go": ("gomod", "go.sum"), "js": ("npm", "package-lock.json"), "rust": ("cargo", "Cargo.lock")}

    for folder, (ecosystem, lock) in {**clients, "java": ("maven", "jars.sha256")}.items():
        assert (ROOT / "tests" / "clients" / folder / lock).exists()
        assert (ecosystem, f"/tests/clients/{folder}") in watched
    assert {("github-actions", "/"), ("docker", "/deploy"), ("docker-compose", "/deploy")} <= watched
