"""The one way in which otel-rl starts other programs.

A program that otel-rl starts reads nothing from the terminal, inherits no descriptor but its standard ones, and shares
nothing with the trainer's process group if it is to outlive it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from otel_rl.recorder.files.safe_start import PATHS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_INTERPRETER = re.compile(r"(python|pypy|graalpy)[\d.]*(t|d|w|-dbg)*(\.exe)?", re.IGNORECASE)
_SAFE_START = Path(__file__).with_name("safe_start.py")
NULL, PIPE = subprocess.DEVNULL, subprocess.PIPE
Program = subprocess.Popen[bytes]
TooLate = subprocess.TimeoutExpired


class NoPythonError(OSError):
    """This process is a program that has Python inside, and no interpreter is where its Python was installed."""


def start_python(
    program: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    reads: int | None = NULL,
    output: int | IO[bytes] | None = None,
    errors: int | IO[bytes] | None = None,
    is_detached: bool = False,
) -> Program:
    """Start this Python with a script, `-c` and code, or a module, on the safe path of `safe_start`.

    With `-c` and `-m`, Python imports from the working directory before its own library, so that a `random.py` there
    would run in the agent; `-P` prevents this. From PYTHONPATH, `site` would import a `sitecustomize`, so that it is
    passed in another variable.

    Args:
        program: The script, `-c`, or the module.
        arguments: Its arguments, or the code and its arguments.
        environment: Its environment; by default that of this process.
        reads: As in `start`, like the following ones.
        output: Its standard output.
        errors: Its standard error.
        is_detached: If true, it gets a session of its own.

    Raises:
        NoPythonError: There is no interpreter.
        OSError: It cannot be started.
    """
    variables = dict(os.environ if environment is None else environment)
    given = variables.pop("PYTHONPATH", None)
    others = [path for path in map(_absolute, sys.path) if path]
    variables[PATHS_VARIABLE] = json.dumps({"given": given, "others": others})
    command = [interpreter(), "-P", str(_SAFE_START), program, *arguments]
    return start(command, environment=variables, reads=reads, output=output, errors=errors, is_detached=is_detached)


def _absolute(path: str) -> str:
    """Return a path of `sys.path`, with the working directory for an empty one; empty if that was removed."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.abspath(path)  # noqa: PTH100
    return ""


def interpreter() -> str:
    """Return the path of the interpreter of this Python.

    `sys.executable` is the application where PyInstaller, Nuitka, uWSGI or a program in C has Python inside. To start
    it would start the application again, so it counts only if its name, or the name of its target, is that of a Python.

    Raises:
        NoPythonError: There is none.
    """
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own: list[str] = [] if getattr(sys, "frozen", False) else [sys.executable, getattr(sys, "_base_executable", "")]
    installed = [os.path.join(prefix, "bin", name) for prefix in (sys.exec_prefix, sys.base_exec_prefix)]  # noqa: PTH118
    for path in filter(None, (*own, *installed)):
        names = Path(path).name, Path(os.path.realpath(path)).name
        if any(map(_INTERPRETER.fullmatch, names)) and os.access(path, os.X_OK):
            return path
    raise NoPythonError(
        f"{sys.executable or 'this program'} is not a Python interpreter, and there is no {installed[0]}"
    )


def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    reads: int | None = NULL,
    output: int | IO[bytes] | None = None,
    errors: int | IO[bytes] | None = None,
    is_detached: bool = False,
) -> Program:
    """Start a program.

    Args:
        command: The program and its arguments; no shell reads them.
        environment: Its environment; by default that of this process.
        reads: Its standard input: `NULL`, `PIPE`, or `None` for that of this process.
        output: Its standard output; by default that of this process.
        errors: Its standard error; by default that of this process.
        is_detached: If true, it gets a session of its own: neither Ctrl-C nor a signal to the process group ends it.

    Raises:
        OSError: It cannot be started.
    """
    return subprocess.Popen(
        command,
        cwd=None if os.path.exists(".") else "/",  # noqa: PTH110 - it was removed: Python would not start there
        bufsize=0,  # the reader of a pipe looks what is there, and does not wait for a full buffer
        env=environment,
        stdin=reads,
        stdout=output,
        stderr=errors,
        start_new_session=is_detached,
    )
