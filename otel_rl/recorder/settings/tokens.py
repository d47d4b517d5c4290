"""Bearer tokens: where they come from, the file that holds them, and whether a request has a valid one.

A file has one token in each line. The first one is sent; all of them are accepted, so that tokens can be rotated.
From each token follow two others: one for scraping, which reads metrics and writes no records, and one for reading,
which reads the page over all runs and changes nothing.
"""

from __future__ import annotations

import base64
import hmac
import os
import stat
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN_VARIABLE, TOKEN_FILE_VARIABLE = "OTEL_RL_TOKEN", "OTEL_RL_TOKEN_FILE"
"""Settings are written to files, secrets are not: these are variables only."""
SCRAPE_SUFFIX = ".scrape"
TokenUse = Literal["", "scrape", "read"]
"""The use of tokens; empty if they allow everything."""
_OF_VARIABLE = f"that of {TOKEN_VARIABLE}"
_SHORTEST = 16
"""The smallest number of characters; `otel-rl token` makes 43."""
_READ_AGAIN_S = 1.0
"""The time between two reads of a file for wrong tokens: on NFS only a read shows that the file has changed."""
_warnings = Occasional(log_of(__name__))


class Tokens:
    """The valid tokens; a file is read again when it changes.

    Args:
        text: The one token; empty if they are in a file.
        path: The file; `None` if there is none.
        use: The use of the tokens, which follow from those in the text or file.
        where: Where clients find the token, if it is not in a file.

    Raises:
        SettingsError: The file cannot be used, or the token is not one.
    """

    def __init__(
        self, text: str = "", path: Path | None = None, *, use: TokenUse = "", where: str = _OF_VARIABLE
    ) -> None:
        self._text, self._path, self._use, self._where = text, path, use, where
        self._lock = threading.Lock()
        self._state = _state(path)
        self._valid = self._used((_checked(text, TOKEN_VARIABLE),) if text else read(path) if path else ())
        self._read_at = 0.0

    def __bool__(self) -> bool:
        """Return whether requests need a token."""
        return bool(self._valid)

    @property
    def first(self) -> str:
        """The token to send; empty if there is none."""
        self._follow()
        return self._valid[0] if self._valid else ""

    @property
    def fix(self) -> str:
        """Where clients find the token."""
        where = f"the first line of {self._path}" if self._path else self._where
        if self._use != "scrape":
            return f"send {where}"
        return f"send the token for scraping, which follows from {where}: `otel-rl token` wrote it to *{SCRAPE_SUFFIX}"

    def accept(self, authorization: str) -> bool:
        """Return whether an `Authorization` header has a valid token, in a time that does not depend on the token."""
        if not self._valid:
            return True
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return False
        self._follow()
        return self._has(given) or (self._follow(anyway=True) and self._has(given))

    def for_reading(self) -> Tokens:
        """Return the tokens for reading that follow from these."""
        return Tokens(self._text, self._path, use="read", where=self._where)

    def _used(self, tokens: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(following(token, self._use) for token in tokens)

    def _has(self, given: str) -> bool:
        token = given.strip().encode()
        return sum(hmac.compare_digest(token, valid.encode()) for valid in self._valid) > 0  # each one is compared

    def _follow(self, *, anyway: bool = False) -> bool:
        """Read the file again if it has changed, or `anyway` at most once a second; return whether it was read.

        If it cannot be used any more, the tokens stay valid: a mistake in a file must not open a listener or end a run.
        """
        if self._path is None:
            return False
        with self._lock:
            state, now = _state(self._path), time.monotonic()
            if state == self._state and not (anyway and now - self._read_at >= _READ_AGAIN_S):
                return False
            self._state, self._read_at = state, now
            try:
                self._valid = self._used(read(self._path))
            except SettingsError as error:
                _warnings.warn(f"{error}; the tokens that were read before stay valid")
                return False
            return True


def following(token: str, use: TokenUse) -> str:
    """Return the token for a use that follows from a token, which does not follow from it."""
    if not use:
        return token
    digest = hmac.digest(token.encode(), f"otel-rl {use}".encode(), "sha256")
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def find(environ: Mapping[str, str] | None = None, file: Path | None = None, *, use: TokenUse = "") -> Tokens:
    """Return the tokens in a file, else those of `OTEL_RL_TOKEN`, `OTEL_RL_TOKEN_FILE` or the user's own file.

    For another use than all, they are those that follow from them.

    Raises:
        SettingsError: The file cannot be used.
    """
    environ = os.environ if environ is None else environ
    if file is None and (text := environ.get(TOKEN_VARIABLE, "").strip()):
        return Tokens(text, use=use)
    if file is None and (named := environ.get(TOKEN_FILE_VARIABLE)):
        file = Path(named).expanduser()
    if file is None and (usual := usual_path(environ)).exists():
        file = usual
    return Tokens(path=file, use=use)


def usual_path(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the user's own file, which is read without being named."""
    configured = (os.environ if environ is None else environ).get("XDG_CONFIG_HOME", "")
    usual = Path("~/.config").expanduser()
    return (Path(configured) if configured.startswith("/") else usual) / "otel-rl" / "token"


def _state(path: Path | None) -> tuple[int, ...]:
    if path is None:
        return ()
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode


def read(path: Path) -> tuple[str, ...]:
    """Return the tokens in a file that only this user can read.

    Raises:
        SettingsError: It cannot be read, has no token, or other users can read it.
    """
    try:
        with open(path, opener=_without_waiting) as file:
            _check_mode(path, os.fstat(file.fileno()))
            lines = [line.strip() for line in file.read(1 << 16).splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise SettingsError(f"token file {path}: {why}; create it with `otel-rl token {path}`") from None
    tokens = tuple(_checked(line, f"token file {path}") for line in lines if line and not line.startswith("#"))
    if not tokens:
        raise SettingsError(f"token file {path} has no token; remove it, and run `otel-rl token {path}`")
    return tokens


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe would wait for a writer


def _check_mode(path: Path, status: os.stat_result) -> None:
    """Raise if other users can read or change a file; a group may read what root gave it, as Kubernetes' secrets."""
    if not stat.S_ISREG(status.st_mode):
        raise SettingsError(f"token file {path} is not a file")
    if status.st_uid not in (0, os.geteuid()):
        raise SettingsError(f"token file {path} belongs to user {status.st_uid}; create your own with `otel-rl token`")
    may_group_read = status.st_uid != os.geteuid()
    if status.st_mode & (0o037 if may_group_read else 0o077):
        raise SettingsError(f"token file {path}: other users can read or change it; run `chmod 600 {path}`")


def _checked(text: str, where: str) -> str:
    if not text.isascii() or not text.isprintable() or " " in text:
        raise SettingsError(f"{where}: a token has letters, digits and punctuation only; run `otel-rl token`")
    if len(text) < _SHORTEST:
        raise SettingsError(f"{where}: a token has at least {_SHORTEST} characters; `otel-rl token` makes a new one")
    return text
