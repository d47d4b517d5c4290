"""Real file systems that are not like a local disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_SFTP = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")


@contextlib.contextmanager
def sshfs(place: Path, *options: str) -> Iterator[Path]:
    """Mount a directory over SFTP; skip the test where that cannot be done."""
    server = next((path for path in _SFTP if Path(path).exists()), "")
    if os.geteuid() != 0 or not shutil.which("sshfs") or not server or not Path("/dev/fuse").exists():
        pytest.skip("sshfs needs root, /dev/fuse, sshfs and an SFTP server")
    remote, mounted, command = place / "remote", place / "shared", place / "sftp"
    remote.mkdir()
    mounted.mkdir()
    command.write_text(f"#!/bin/sh\nexec {server}\n")
    command.chmod(0o755)
    given = ["-o", f"ssh_command={command},allow_other,dir_cache=no", *options]
    subprocess.run(["sshfs", *given, f"host:{remote}", mounted], check=True, timeout=30)
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "-l", mounted], check=True, timeout=30)
