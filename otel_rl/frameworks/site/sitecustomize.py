"""Python imports this at the start of every process below `otel-rl run`: it hooks, and leaves the rest as it was."""

import contextlib
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _import_the_next_one() -> None:
    """Import the `sitecustomize` that this one stands before, if there is one."""
    elsewhere = [path for path in sys.path if Path(path).resolve() != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _say(text: str) -> None:
    with contextlib.suppress(Exception):  # `sys.stderr` may be `None`, closed or full; the trainer starts all the same
        sys.stderr.write(f"otel-rl: {text}\n")


try:
    from otel_rl.frameworks.instrument import from_environment

    from_environment(os.environ)
except ModuleNotFoundError as error:  # a launcher gave the process an environment of its own
    _say(f"a process of {sys.prefix} is not recorded: install {error.name} there")
except Exception as error:  # the trainer goes on without us
    _say(f"nothing is instrumented: {error!r}")
_import_the_next_one()
