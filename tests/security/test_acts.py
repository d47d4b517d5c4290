"""Each module that deletes, starts, asks or signals has a row in a page, which says how it knows whose the thing is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.security.test_one_way import ONE_WAY, calls

_HOME = Path(__file__).parents[2]
_ROW = re.compile(r"^\| (door|child|client|signal|deletion) \| ([^|]+) \| .+ \|$", re.MULTILINE)
_ACTS = {
    "child": re.compile(
        r"(subprocess\.|pty\.|multiprocessing\.Process|Popen|os\.(fork|exec|spawn|posix_spawn|system|popen))\w*\("
    ),
    "signal": re.compile(r"(os\.kill(pg)?|tgkill|signal\.pthread_kill|\w+\.(terminate|send_signal))\("),
    "deletion": re.compile(
        r"(.*\.)?(unlink|rmtree|rmdir|removedirs|f?truncate|renames?)\(|os\.(remove|replace)\(|"
        r"open(_file)?\(.*O_TRUNC|\w+\.replace\(\w+\)$"
    ),
}
_OTHERS = {"found.rename(name)": "a run that a tracker has renamed"}
"""Calls that are none of these acts."""
_CLIENTS = re.compile(r"(requests|urllib\.request|urllib3|http\.client|httpx|aiohttp)\b")


def listed(act: str) -> set[str]:
    """Return the modules in the rows of an act."""
    rows = _ROW.findall((_HOME / "docs/reference/limits.md").read_text())
    names = [name for of, modules in rows if of == act for name in re.findall(r"`([^`]+)`", modules)]
    assert len(names) == len(set(names))
    return {
        f"exporters/otel_rl_exporters/{name.removeprefix('exporters/')}"
        if name.startswith("exporters/")
        else f"otel_rl/{name}"
        for name in names
    }


@pytest.mark.parametrize("act", _ACTS)
def test_acts_that_need_ownership(act: str) -> None:
    """The page has each module that does it, and no other one."""
    assert {module for module, _, text in calls() if _ACTS[act].match(text) and text not in _OTHERS} == listed(act)


def test_doors() -> None:
    """The page has the modules through which files of others are read and written."""
    assert listed("door") == ONE_WAY


def test_http_goes_out_by_one_client() -> None:
    """No other module imports a library that asks; each exception has its reason in the page."""
    found = set()
    for root in ("otel_rl", "exporters"):
        for path in (_HOME / root).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                if any(_CLIENTS.match(name) for name in names):
                    found.add(str(path.relative_to(_HOME)))

    assert found == listed("client")
