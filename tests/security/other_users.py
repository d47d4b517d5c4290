"""Another user of the machine, played by a child process that gives up being root."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

NOBODY, SOMEBODY = 65534, 65533
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 and os.environ.get("REQUIRE_REAL_PARTS") != "1", reason="only root becomes another user"
)


def as_nobody(act: Callable[[], object], *groups: int, user: int = NOBODY) -> object:
    """Call a function as another user, who is in the groups too; return its result, which JSON can hold."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups(groups)
            os.setgid(user)
            os.setuid(user)
            os.write(sink, json.dumps(act()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(sink)
    with os.fdopen(source, "rb") as answer:
        content = answer.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return json.loads(content)


def everything_in(*trees: Path) -> list[Path]:
    """Return all files and directories of some trees, these included; links are left out."""
    found = [path for tree in trees for path in (tree, *tree.rglob("*"))]
    return [path for path in found if not path.is_symlink()]


def reached_by_nobody(paths: Iterable[Path], *groups: int) -> dict[str, list[str]]:
    """Return the paths that `nobody` can read (or list) and write, by what he can do."""

    def attack() -> dict[str, list[str]]:
        found: dict[str, list[str]] = {"read": [], "write": []}
        for path in paths:
            for name, can in (("read", _can_read), ("write", _can_write)):
                try:
                    can(path)
                except OSError:
                    continue
                found[name].append(str(path))
        return found

    result: dict[str, list[str]] = as_nobody(attack, *groups)  # type: ignore[assignment]
    return result


def modes_of(paths: Iterable[Path]) -> set[int]:
    """Return the modes of files and directories, without the bit by which groups are inherited."""
    return {stat.S_IMODE(path.lstat().st_mode) & 0o777 for path in paths}


def _can_read(path: Path) -> None:
    if path.is_dir():
        os.listdir(path)  # noqa: PTH208 - of the path, without a generator
    else:
        path.read_bytes()


def _can_write(path: Path) -> None:
    if path.is_dir():
        (path / "planted").write_bytes(b"")
    else:
        path.open("ab").close()
