"""A real MLflow tracking server on this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def serving(directory: Path, database: Path, port: int = 0) -> Iterator[str]:
    """Run a server that keeps everything in `directory`, and is killed at the end; give its address.

    It begins with a copy of an empty `database`, since its own would take it seconds.
    """
    if not (directory / "server.db").exists():
        shutil.copy(database, directory / "server.db")
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{directory}/server.db"]
    command += ["--artifacts-destination", str(directory / "artifacts")]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (directory / "server.log").open("wb") as log:
        server = subprocess.Popen(
            command, cwd=directory, env=os.environ | quiet, stdout=log, stderr=log, start_new_session=True
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_until_healthy(address, server, directory / "server.log")
        yield address
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)  # its workers too
        server.wait()


def _wait_until_healthy(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(f"{address}/health", timeout=2).close()
            return
        time.sleep(0.2)
    raise TimeoutError(log.read_text())
