"""Another user of the same host reaches the port, and gets nothing of the runs."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from otel_rl.look.ui.index import key_of
from tests.look.recorded import Shape, record
from tests.security.other_users import as_nobody, needs_root, reached_by_nobody

pytestmark = [pytest.mark.slow, needs_root]
_SECRET = "a-run-that-nobody-may-see"
_GUESSES = ("", "Bearer", "Bearer ", "Bearer null", "Bearer undefined", "Basic Og==", f"Bearer {'x' * 43}")
_PATHS = ("/runs", "/access", "/found?find=state:finished", "/curves?runs={key}", "/compared?runs={key}", "/run/{key}")


def test_what_another_user_tries(tmp_path: Path) -> None:
    """Every path without the token, every guess, the command line, the environment and the cache have nothing."""
    run = record(tmp_path / "runs" / "a", Shape(steps=3, project=_SECRET, name=_SECRET))
    (tmp_path / "runs").chmod(0o700)
    cache = tmp_path / "home"
    command = [sys.executable, "-m", "otel_rl.cli", "ui", str(tmp_path / "runs"), "--port", "0"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    try:
        assert server.stdout is not None
        place, _, token = server.stdout.readline().strip().partition("#token=")
        port, key = int(place.rpartition(":")[2].rstrip("/")), key_of(run)

        def ask(method: str, path: str, authorization: str, **headers: str) -> tuple[int, str]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request(
                method, path, b"" if method == "GET" else b"{}", {"Authorization": authorization, **headers}
            )
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")

        def attempts() -> list[tuple[int, str]]:
            paths = [path.format(key=key) for path in _PATHS]
            asked = [ask("GET", path, "") for path in paths]
            asked += [ask("GET", "/runs", guess) for guess in _GUESSES]
            asked += [ask("GET", f"/runs?token={guess.partition(' ')[2]}", "") for guess in _GUESSES[-2:]]
            asked += [ask("GET", "/runs", "", Cookie="token=x", Host="localhost", Origin="http://localhost")]
            asked += [ask("POST", f"/run/{key}/marks", guess) for guess in _GUESSES]
            return asked

        def files() -> str:
            found = ""
            for name in ("cmdline", "environ", "fd", "maps"):
                try:
                    found += Path(f"/proc/{server.pid}/{name}").read_text(errors="replace")
                except OSError:
                    continue
            return found

        assert ask("GET", "/runs", f"Bearer {token}")[0] == 200
        answers = as_nobody(attempts)
        assert {status for status, _ in answers} <= {401, 429}  # type: ignore[attr-defined]
        assert _SECRET not in str(answers)
        assert token not in str(as_nobody(files))
        assert reached_by_nobody([cache, *cache.rglob("*")]) == {"read": [], "write": []}
        assert not (run / "marks.json").exists()
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)
