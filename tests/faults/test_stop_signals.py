"""SIGTERM ends a service, wherever it finds the service."""

from __future__ import annotations

import subprocess
import sys

import pytest

_BEGIN = """
import ctypes, os, signal, threading
from otel_rl.recorder.errors import stop_signals
stopped = threading.Event()
stop_signals.set_at((signal.SIGTERM,), stopped, kill_after_s=2)
"""


@pytest.mark.parametrize(
    ("then", "code"),
    [
        ("with stopped._cond: os.kill(os.getpid(), signal.SIGTERM)\nstop_signals.wait(stopped)", 0),
        ("os.kill(os.getpid(), signal.SIGTERM)\nctypes.PyDLL(None).sleep(1000)", -14),
    ],
    ids=["inside a call of the event", "before C code that keeps the interpreter's lock"],
)
def test_sigterm_ends(then: str, code: int) -> None:
    """A handler that set the event itself would wait for its own lock; a timer of Python's would never run."""
    assert subprocess.run([sys.executable, "-c", _BEGIN + then], timeout=30, check=False).returncode == code
