"""`safe_start.py PROGRAM [ARGUMENT ...]`: what `programs.start_python` starts Python with.

PROGRAM is the path of a script, `-c` with code, or the name of a module. It imports from Python's own library first,
then from PYTHONPATH, then from the installed packages, and from other directories of the process that started it last:
a `queue.py` next to a training script is never imported in place of Python's. This file imports no package, as the
supervisor of an agent must stay small.
"""

import json
import os
import sys

PATHS_VARIABLE = "OTEL_RL_PYTHON_PATHS"
"""A JSON object: PYTHONPATH of the process that started this one, and its other directories of modules."""


def ordered(own: list[str], given: list[str], others: list[str]) -> list[str]:
    """Return the directories of modules: Python's library, what PYTHONPATH gives, the packages, and the others."""
    packages = next((n for n, path in enumerate(own) if path.endswith("-packages")), len(own))
    return list(dict.fromkeys([*own[:packages], *given, *own[packages:], *others]))


def main() -> None:
    """Restore the directories of modules, and run the program."""
    paths = json.loads(os.environ.pop(PATHS_VARIABLE, "{}"))
    given = paths.get("given")
    if given is not None:  # for Pythons that trackers start
        os.environ["PYTHONPATH"] = given
    named = [os.path.abspath(path) for path in (given or "").split(os.pathsep) if path]  # noqa: PTH100
    sys.path[:] = ordered(sys.path, named, paths.get("others", []))
    program = sys.argv[1]
    del sys.argv[0]
    if program == "-c":
        exec(compile(sys.argv.pop(1), "<code>", "exec"), {"__name__": "__main__"})
    elif program.endswith(".py"):
        with open(program, "rb") as file:  # noqa: PTH123
            script = compile(file.read(), program, "exec")
        exec(script, {"__name__": "__main__", "__file__": program})
    else:
        import runpy  # only for modules: it imports more

        runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
