"""Runs a verb and prints what it asks of the system: `python -m tests.security.watched RUN VERB [ARGUMENT ...]`.

Each line is a JSON list: what was done, and with which path, command or address. Reads outside of RUN are left out.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import otel_rl.cli

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown"),
    *("os.utime", "os.setxattr", "shutil.rmtree", "shutil.move", "shutil.copyfile"),
}
_STARTS = {"subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.kill", "signal.pthread_kill"}
_ASKS = {"socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.Request", "http.client.connect"}


def _place(fd: object, name: object) -> str:
    """Return the path that is meant by a name and the descriptor of its directory."""
    text = os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else ""
    if isinstance(fd, int) and fd >= 0 and not text.startswith("/"):
        return os.path.join(os.readlink(f"/proc/self/fd/{fd}"), text)  # noqa: PTH115, PTH118
    return os.path.abspath(text) if text else str(name)  # noqa: PTH100


def main(run: str, arguments: list[str]) -> None:
    """Run the verb."""
    done: list[list[str]] = []

    def see(event: str, args: tuple[object, ...]) -> None:
        if event == "open":
            path, _, flags = args
            place = _place(-1, path)
            if not isinstance(path, int) and isinstance(flags, int) and flags & _WRITES:
                done.append(["writes", place])
            elif place.startswith(run):
                done.append(["reads", place])
        elif event in _CHANGES:
            at = next((fd for fd in args[1:] if isinstance(fd, int) and fd > 2), -1)
            done.append([event, _place(at, args[0])])
        elif event in _STARTS or event in _ASKS:
            done.append([event, " ".join(map(str, args[1])) if isinstance(args[1], list) else str(args[:2])])

    sys.addaudithook(see)
    try:
        otel_rl.cli.main(args=arguments, prog_name="otel-rl", standalone_mode=False)
    finally:
        Path(os.environ["SEEN"]).write_text("\n".join(map(json.dumps, done)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
