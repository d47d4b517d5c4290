"""Machines on one: each has its own host name, and its own disk at the same path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.processes import start

_ENTER = """
set -e
mount --make-rprivate /
hostname "$1"
mkdir -p "$2.$1"
mount --bind "$2.$1" "$2"
shift 2
exec "$@"
"""
_CLI = [sys.executable, "-m", "otel_rl.cli"]


class Nodes:
    """The machines.

    Attributes:
        shared: The directory that all of them see.
        disk: The directory of which each has its own.
    """

    def __init__(self, shared: Path, disk: Path) -> None:
        self.shared, self.disk = shared, disk
        disk.mkdir()

    def start(self, host: str, script: str, **environment: str) -> subprocess.Popen[str]:
        """Start a script on a machine, in the shared directory."""
        return self._start(host, [sys.executable, "-c", script], environment)

    def run(self, host: str, script: str, **environment: str) -> str:
        """Run a script on a machine; return what it printed. It must succeed."""
        process = self.start(host, script, **environment)
        output, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors
        return output

    def once(self, host: str, run_dir: Path, **environment: str) -> tuple[int, str]:
        """Run `otel-rl agent RUN --once` on a machine; return its exit code and what it said."""
        process = self._start(host, [*_CLI, "agent", str(run_dir), "--once"], environment)
        said = process.communicate(timeout=200)[1]
        return process.returncode, said

    def disk_of(self, host: str) -> Path:
        """Return where the disk of a machine is, seen from here."""
        return self.disk.with_name(f"{self.disk.name}.{host}")

    def _start(self, host: str, command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        enter = ["unshare", "--uts", "--mount", "bash", "-c", _ENTER, "enter", host, str(self.disk), *command]
        return start(enter, self.shared, **{"OTEL_RL_LOCAL_DIR": str(self.disk), **environment})
