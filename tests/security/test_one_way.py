"""Files are made, opened and read in one way: by the modules of `journal` that know whose a file is.

Elsewhere, the umask of the user would decide who reads a new file, a link of another user would lead to it, and a pipe
or a device in its place would hold up whoever reads it.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import otel_rl

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOME = Path(otel_rl.__file__).parents[1]
_ONE_WAY = {f"otel_rl/journal/{name}.py" for name in ("modes", "own_files", "own_directory", "atomic_files")}
_CALLS = {
    "makes": {
        *("mkdir", "makedirs", "write_text", "write_bytes", "mkstemp", "mkdtemp", "TemporaryDirectory", "mknod"),
        *("NamedTemporaryFile", "mkfifo", "symlink", "symlink_to", "link", "hardlink_to", "chmod", "chown"),
    },
    "reads": {"read_text", "read_bytes", "open", "fdopen"},
    "removes": {"unlink", "rmtree", "rmdir", "rename", "renames", "removedirs"},
}
_SAFE = re.compile(
    r"/proc/|Path\(__file__\)|os\.devnull|resources\.files|_assets\(\)|opener=open_file|open\(open_file\("
)
"""Files of the system and of the package, and those that `open_file` opens."""
_RUN = "inside of a run directory, which `setup.directory` has examined, or of its private part"
_NAMED = "a file that the user names, as in any program"
_PACKAGE = "files of the package"
_ALLOWED = {
    "makes": {
        "otel_rl/archive/plain.py": "a temporary directory of mode 0700",
        "otel_rl/testing.py": "inside of a temporary directory of mode 0700",
        "otel_rl/setup/file_systems.py": "a probe, in a directory that was examined",
        "otel_rl/setup/tokens.py": "a file of the user, of mode 0600",
        "otel_rl/cli/stack.py": "links, in a directory that was examined",
        "otel_rl/demo/grpo.py": _NAMED,
    },
    "reads": {
        "otel_rl/agent/__main__.py": "a lock, in a process that imports nothing of otel-rl",
        "otel_rl/journal/locks.py": "locks of directories",
        "otel_rl/setup/file_systems.py": "a probe, in a directory that was examined",
        "otel_rl/setup/tokens.py": "a token file, which it examines itself: root may have made it for a group",
        "otel_rl/setup/loading.py": _NAMED,
        "otel_rl/cli/bridge.py": _NAMED,
        "otel_rl/autopsy/doctor/collector.py": _NAMED,
        "otel_rl/otlp/connection.py": _NAMED,
        "exporters/otel_rl_exporters/otlp_transport.py": _NAMED,
        "otel_rl/semconv/drift.py": "a tool for maintainers, with their own files",
        "otel_rl/cli/servers.py": _PACKAGE,
        **dict.fromkeys(
            (
                "otel_rl/agent/hardware/cgroup.py",
                *("otel_rl/agent/input/environment.py", "otel_rl/agent/input/deaths.py"),
            ),
            "of the kernel",
        ),
        "otel_rl/archive/files.py": "a directory, to synchronize it",
        "otel_rl/autopsy/endpoints.py": "an endpoint, not a file",
        "otel_rl/autopsy/kernel.py": "of the kernel",
        **dict.fromkeys(
            (
                *(f"otel_rl/journal/{name}.py" for name in ("exit_status", "reader", "segments")),
                "otel_rl/agent/input/followed.py",
                *(
                    f"exporters/otel_rl_exporters/{name}.py"
                    for name in ("jsonl", "leveldb_log", "swanlab", "tensorboard", "trackio", "wandb_api")
                ),
            ),
            _RUN,
        ),
    },
    "removes": {
        "otel_rl/setup/tokens.py": "a file of the user",
        "otel_rl/setup/births.py": "a part in a private directory",
        "otel_rl/cli/stack.py": "links, in a directory that was examined",
        "otel_rl/view/export/from_atif.py": "a draft, in the directory of a new run",
        "exporters/otel_rl_exporters/jsonl.py": _RUN,
        **dict.fromkeys(
            (
                *(f"otel_rl/agent/input/{name}.py" for name in ("remote", "unsent")),
                *(f"otel_rl/agent/repair/{name}.py" for name in ("refill", "release")),
                *(f"otel_rl/archive/{name}.py" for name in ("delivered", "files", "thinning", "writer")),
                *(f"otel_rl/journal/{name}.py" for name in ("claim", "exit_status", "signals", "writer")),
                *(f"otel_rl/otlp/bridge/{name}.py" for name in ("runs", "seen")),
                *("otel_rl/agent/once.py", "otel_rl/agent/replay.py"),
                "otel_rl/setup/agent_start.py",
                "otel_rl/trainer/session.py",
            ),
            _RUN,
        ),
    },
}
"""The modules that do it themselves, and why that is safe."""
_SHARED_PLACES = {
    "otel_rl/agent/output/targets.py": "`.targets/`",
    "otel_rl/cli/stack.py": "`.stack/`",
    "otel_rl/setup/trainings.py": "`.trainings-UID/`",
    "otel_rl/otlp/bridge/runs.py": "`.bridge/`",
    **dict.fromkeys(
        (
            *("otel_rl/setup/private_directories.py", "otel_rl/agent/once.py", "otel_rl/agent/replay.py"),
            *("otel_rl/trainer/opening.py", "otel_rl/archive/reader.py"),
        ),
        "`otel-rl-UID/`",
    ),
    **dict.fromkeys(("otel_rl/setup/directory.py", "otel_rl/setup/parts.py"), "a run directory"),
    "otel_rl/setup/loading.py": "a settings file",
    "otel_rl/setup/tokens.py": "a token file",
    "otel_rl/cli/watch.py": "other users' runs next to yours",
    **dict.fromkeys(
        (
            *(f"otel_rl/archive/{name}.py" for name in ("autopsies", "files", "now", "plain", "runs", "columns")),
            *(f"otel_rl/autopsy/{name}.py" for name in ("collect", "conclude", "flight", "questions", "stacks")),
            "otel_rl/autopsy/doctor/recording.py",
            "otel_rl/insight/recorded.py",
            "otel_rl/view/terminal/past.py",
            "otel_rl/view/export/from_atif.py",
        ),
        "a run that somebody shares or gives you",
    ),
}
"""The modules that use what other users can have made, and its row in the table of SECURITY.md."""
_USES = {
    *("OwnDirectory", "check_levels", "check_place", "read_found", "read_shown", "read_shown_json", "open_regular"),
    *("private_directory", "in_projects", "mkdtemp", "_check_mode"),
}


@cache
def calls() -> tuple[tuple[str, str, str], ...]:
    """Return the module, the name and the text of each call in the library."""
    return tuple(_calls())


def _calls() -> Iterator[tuple[str, str, str]]:
    for root in ("otel_rl", "exporters"):
        for path in sorted((_HOME / root).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                    yield str(path.relative_to(_HOME)), name, ast.unparse(node)


@pytest.mark.parametrize("kind", _CALLS)
def test_files_are_opened_in_one_way(kind: str) -> None:
    """No other module makes, reads or removes files itself; each exception has its reason."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, name, text in calls():
        if name in _CALLS[kind] and module not in _ONE_WAY and not _SAFE.search(text):
            found[module].append(text)

    assert {module: texts for module, texts in found.items() if module not in _ALLOWED[kind]} == {}
    assert set(_ALLOWED[kind]) <= set(found)


def test_the_threats_have_each_file_that_others_can_touch() -> None:
    """Each module that looks whose a file is, or reads files of anybody, has a row in SECURITY.md."""
    rows = re.findall(r"^\| ([^|]+) \|", (_HOME / "SECURITY.md").read_text(), re.MULTILINE)
    modules = {module for module, name, _ in calls() if name in _USES and module not in _ONE_WAY}

    assert modules == set(_SHARED_PLACES)
    assert [row for row in _SHARED_PLACES.values() if not any(row in one for one in rows)] == []
