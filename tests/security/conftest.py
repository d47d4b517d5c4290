"""Directories that every user can reach, unlike those of pytest."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_rl
from otel_rl.recorder.files.modes import share_with


@pytest.fixture
def crowded() -> Iterator[Path]:
    """Return a directory like `/tmp`, in which every user can make files; each keeps his own modes."""
    place = Path(tempfile.mkdtemp(prefix="crowded.", dir="/tmp"))
    place.chmod(0o1777)
    before = os.umask(0o022)
    yield place
    if (run := otel_rl.current()) is not None:
        run.finish(0)  # else it would write again what is removed here
    os.umask(before)
    share_with("none")
    shutil.rmtree(place, ignore_errors=True)
