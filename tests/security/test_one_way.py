"""Files are made, opened and read in one way, by modules of `files`; Python is started in one way, by another one.

Elsewhere, the umask of the user would decide who reads a new file, a link of another user would lead to it, and a pipe
or a device in its place would hold up whoever reads it. A Python would import from the directory it is started in.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import otel_rl

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOME = Path(otel_rl.__file__).parents[1]
ONE_WAY = {
    f"otel_rl/recorder/files/{name}.py" for name in ("modes", "own_files", "own_directory", "atomic_files", "outputs")
}
_CALLS = {
    "makes": {
        *("mkdir", "makedirs", "write_text", "write_bytes", "mkstemp", "mkdtemp", "TemporaryDirectory", "mknod"),
        *("NamedTemporaryFile", "mkfifo", "symlink", "symlink_to", "link", "hardlink_to", "chmod", "chown"),
    },
    "reads": {"read_text", "read_bytes", "open", "fdopen"},
}
_SAFE = re.compile(r"/proc/|Path\(__file__\)|os\.devnull|resources\.files|opener=open_file|open\(open_file\(")
"""Files of the system and of the package, and those that `open_file` opens."""
_RUN = "inside of a run directory, which `directory` has examined, or of its private part"
_NAMED = "a file that the user names, as in any program"
_PACKAGE = "files of the package"
_TOOL = "a tool for maintainers, with their own files"
_ALLOWED = {
    "makes": {
        "otel_rl/cli/late/plain.py": "a temporary directory of mode 0700",
        "otel_rl/look/reader/plain_paths.py": "links, in a private directory of mode 0700",
        "otel_rl/testing.py": "inside of a temporary directory of mode 0700",
        "otel_rl/recorder/files/file_systems.py": "a probe, in a directory that was examined",
        "otel_rl/serve/verbs/token.py": "a file of the user, of mode 0600",
        "otel_rl/serve/verbs/stack.py": "links, in a directory that was examined",
        "otel_rl/demo/grpo.py": _NAMED,
        "otel_rl/semconv/generate.py": _TOOL,
    },
    "reads": {
        "otel_rl/recorder/agent/__main__.py": "a lock, in a process that imports nothing of otel-rl",
        "otel_rl/recorder/files/locks.py": "locks of directories",
        "otel_rl/recorder/files/file_systems.py": "a probe, in a directory that was examined",
        "otel_rl/recorder/settings/tokens.py": "a token file, which it examines: root may have made it for a group",
        "otel_rl/serve/verbs/token.py": "a new file of the user, of mode 0600",
        "otel_rl/recorder/settings/loading.py": _NAMED,
        "otel_rl/serve/verbs/bridge.py": _NAMED,
        "otel_rl/autopsy/doctor/collector.py": _NAMED,
        "otel_rl/recorder/otlp/connection.py": _NAMED,
        "exporters/otel_rl_exporters/otlp_transport.py": _NAMED,
        **dict.fromkeys(("otel_rl/frameworks/drift.py", "otel_rl/semconv/generate.py"), _TOOL),
        "otel_rl/cli/extras.py": _PACKAGE,
        "otel_rl/recorder/files/safe_start.py": _PACKAGE,
        "otel_rl/serve/servers.py": _PACKAGE,
        **dict.fromkeys(
            (
                *("otel_rl/recorder/agent/hardware/cgroup.py", "otel_rl/analyses/hang_watch/work.py"),
                *(f"otel_rl/recorder/agent/input/{name}.py" for name in ("environment", "deaths", "outputs")),
            ),
            "of the kernel",
        ),
        "otel_rl/recorder/archive/files.py": "a directory, to synchronize it",
        "otel_rl/autopsy/kernel.py": "of the kernel",
        **dict.fromkeys(
            (
                *(f"otel_rl/recorder/journal/{name}.py" for name in ("reader", "segments")),
                *("otel_rl/recorder/files/exit_status.py", "otel_rl/recorder/agent/input/followed.py"),
                *(
                    f"exporters/otel_rl_exporters/{name}.py"
                    for name in ("jsonl", "leveldb_log", "swanlab", "tensorboard", "trackio", "wandb_api")
                ),
            ),
            _RUN,
        ),
    },
}
"""The modules that do it themselves, and why that is safe."""
_SHARED_PLACES = {
    "otel_rl/recorder/agent/output/targets.py": "`.targets/`",
    "otel_rl/serve/verbs/stack.py": "`.stack/`",
    "otel_rl/recorder/directory/trainings.py": "`.trainings-UID/`",
    "otel_rl/serve/bridge/runs.py": "`.bridge/`",
    **dict.fromkeys(
        (
            *(
                "otel_rl/recorder/files/private_directories.py",
                "otel_rl/cli/late/once.py",
                "otel_rl/cli/late/replay.py",
            ),
            *("otel_rl/recorder/directory/claims.py", "otel_rl/recorder/trainer/opening.py"),
            "otel_rl/look/reader/runs.py",
            "otel_rl/look/reader/plain_paths.py",
        ),
        "`otel-rl-UID/`",
    ),
    **dict.fromkeys(
        ("otel_rl/recorder/directory/directory.py", "otel_rl/recorder/directory/parts.py"), "a run directory"
    ),
    "otel_rl/recorder/settings/loading.py": "a settings file",
    "otel_rl/recorder/settings/tokens.py": "a token file",
    "otel_rl/look/ui/kept_files.py": "`otel-rl/page/`",
    "otel_rl/recorder/agent/input/outputs.py": "The agent reads what a process prints",
    "otel_rl/recorder/archive/marking.py": "People mark a run",
    "otel_rl/recorder/archive/removal.py": "People delete a run",
    "otel_rl/cli/verbs/watch.py": "other users' runs next to yours",
    **dict.fromkeys(
        (
            *(
                f"otel_rl/recorder/archive/{name}.py"
                for name in ("autopsies", "intact", "marks", "notes", "now", "reports", "runs", "written")
            ),
            *(f"otel_rl/autopsy/{name}.py" for name in ("collect", "conclude", "flight", "questions", "stacks")),
            "otel_rl/autopsy/doctor/recording.py",
            "otel_rl/look/insight/recorded.py",
            "otel_rl/cli/late/plain.py",
            "otel_rl/look/export/from_atif.py",
        ),
        "a run that somebody shares or gives you",
    ),
}
"""The modules that use what other users can have made, and its row in the table of SECURITY.md."""
_USES = {
    *("OwnDirectory", "check_levels", "check_place", "read_found", "read_shown", "read_shown_json", "open_regular"),
    *("private_directory", "in_projects", "mkdtemp", "_check_mode"),
}


_TRAIN = """
import otel_rl
from otel_rl.recorder.agent.autopsies import Autopsies
run = otel_rl.init(project="p", id="r", hardware=False, quiet=True)
run.log({"loss": 1.0}, step=0)
autopsies = Autopsies(run.dir, is_on=True)
autopsies._start("died")
assert run.finish(), run.finish().missing
assert autopsies._running.wait(60) is not None
"""


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
    """No other module makes or reads files itself; each exception has its reason."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, name, text in calls():
        if name in _CALLS[kind] and module not in ONE_WAY and not _SAFE.search(text):
            found[module].append(text)

    assert {module: texts for module, texts in found.items() if module not in _ALLOWED[kind]} == {}
    assert set(_ALLOWED[kind]) <= set(found)


def test_no_python_imports_from_the_working_directory(tmp_path: Path) -> None:
    """Neither the agent nor an autopsy runs a module that lies where the trainer was started."""
    for name in ("json", "random", "socket", "msgspec", "otel_rl"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write('{name} ')")
    script = tmp_path / "scripts" / "train.py"
    script.parent.mkdir()
    script.write_text(_TRAIN)
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=_environment(), capture_output=True, check=False)

    assert done.returncode == 0, done.stderr.decode()
    assert not (tmp_path / "imported").exists()
    assert (tmp_path / "runs" / "p" / "r" / "rows.jsonl").exists()


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}


def test_the_threats_have_each_file_that_others_can_touch() -> None:
    """Each module that looks whose a file is, or reads files of anybody, has a row in SECURITY.md."""
    rows = re.findall(r"^\| ([^|]+) \|", (_HOME / "SECURITY.md").read_text(), re.MULTILINE)
    modules = {module for module, name, _ in calls() if name in _USES and module not in ONE_WAY}

    assert modules == set(_SHARED_PLACES)
    assert [row for row in _SHARED_PLACES.values() if not any(row in one for one in rows)] == []
