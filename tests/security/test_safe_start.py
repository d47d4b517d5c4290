"""Python is started on a safe path: what lies next to a script is never taken for a module of Python or a package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_rl.recorder.files import programs
from otel_rl.recorder.files.safe_start import PATHS_VARIABLE, ordered

_SHOW = "import json, os, sys; print(json.dumps([sys.path, os.environ.get('PYTHONPATH'), dict(os.environ)]))"
_TRAIN = """
import sys
import otel_rl
run = otel_rl.init(project="p", id="r", dir=sys.argv[1], exporters=["jsonl"], hardware=False, quiet=True)
run.log({"loss": 1.0}, step=0)
assert run.finish(60), run.finish().missing
"""


def shown(code: str = _SHOW, **environment: str) -> list[object]:
    """Return what code prints that is started on the safe path."""
    with programs.start_python("-c", code, environment=os.environ | environment, output=programs.PIPE) as process:
        return list(json.loads(process.communicate(timeout=60)[0]))


def train(place: Path, cwd: Path, **environment: str) -> None:
    """Run a trainer with an agent in a directory, by a script in `place`."""
    (place / "train.py").write_text(_TRAIN)
    command = [sys.executable, str(place / "train.py"), str(place / "runs")]
    subprocess.run(command, cwd=cwd, env=os.environ | environment, timeout=120, check=True)
    assert (place / "runs" / "p" / "r" / "rows.jsonl").read_text().count("\n") == 1


def plant(place: Path, *names: str) -> Path:
    """Make modules in a directory that leave a sign when they are imported; return the sign."""
    for name in names:
        (place / f"{name}.py").write_text(f"open({str(place / 'imported')!r}, 'a').write('{name} ')")
    return place / "imported"


@pytest.mark.parametrize("name", ["sitecustomize", "usercustomize"])
def test_a_module_that_site_would_import(tmp_path: Path, name: str) -> None:
    """Next to the script of a trainer, the agent does not run it: Python itself does not either."""
    sign = plant(tmp_path, name)
    train(tmp_path, tmp_path.parent)

    assert not sign.exists()


def test_a_module_of_pythonpath_that_site_would_import(tmp_path: Path) -> None:
    """A process that otel-rl starts does not run it, and passes PYTHONPATH on to its own children."""
    sign = plant(tmp_path, "sitecustomize")
    _, given, _ = shown(PYTHONPATH=str(tmp_path))

    assert not sign.exists()
    assert given == str(tmp_path)


@pytest.mark.parametrize("name", ["queue", "json", "types", "msgspec", "psutil", "pynvml"])
def test_an_honest_name_next_to_a_script(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not take the place of Python's own module, nor of a package."""
    sign = plant(tmp_path, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    shown(f"import {name}; print('[]')")

    assert not sign.exists()


def test_an_exporter_next_to_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that only the trainer's folder has is found."""
    (tmp_path / "my_exporter.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert shown("import my_exporter; print('[1]')") == [1]


def test_a_package_that_pythonpath_replaces(tmp_path: Path) -> None:
    """A fork of a package, as its user wants, comes before the installed one."""
    paths = shown(PYTHONPATH=f"{tmp_path}{os.pathsep}")[0]
    assert isinstance(paths, list)

    packages = next(n for n, path in enumerate(paths) if path.endswith("-packages"))
    assert paths.index(str(tmp_path)) == packages - 1


def test_the_order_of_directories() -> None:
    """Python's library, PYTHONPATH, packages, the rest; each once."""
    own = ["/lib/python3.zip", "/lib/python3", "/lib/site-packages", "/editable"]

    assert ordered(own, ["/fork"], ["/train", "/lib/python3"]) == [*own[:2], "/fork", *own[2:], "/train"]


def test_the_variable_is_not_inherited() -> None:
    """Its content is for one process."""
    *_, environment = shown()

    assert PATHS_VARIABLE not in environment


def test_a_working_directory_that_was_removed(tmp_path: Path) -> None:
    """The agent starts all the same, and delivers."""
    gone = tmp_path / "gone"
    gone.mkdir()
    (tmp_path / "train.py").write_text(_TRAIN)
    code = f"""
import os, runpy, sys
os.rmdir({str(gone)!r})
sys.argv = ["train.py", {str(tmp_path / "runs")!r}]
runpy.run_path({str(tmp_path / "train.py")!r}, run_name="__main__")
"""
    subprocess.run([sys.executable, "-c", code], cwd=gone, timeout=120, check=True)

    assert (tmp_path / "runs" / "p" / "r" / "rows.jsonl").read_text().count("\n") == 1
