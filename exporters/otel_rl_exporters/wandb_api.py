"""What W&B's server has of a run, and why its service sends no more."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_rl.export import NotNow
from otel_rl.recorder.otlp import http_client

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ASK_EVERY_S = 15.0
"""Seconds between two questions, as long as W&B's service waits between two requests."""
_ANSWERS_WITHIN_S = 20
_CONNECTS_WITHIN_S = 5
_LOOK_S = 0.2
_INTERNAL = {"_wandb", "wandb_version"}  # names in a config that W&B does not show as parameters
_STOPPED = "filestream: fatal error: "


class ServerRows:
    """The number of rows that W&B's server has of a session of a run; ask before the first row is logged.

    Attributes:
        sent: Number of rows that the session has logged.

    Raises:
        NotNow: The server does not answer, or refuses to.
    """

    def __init__(self, run: Any) -> None:
        import wandb

        self.sent = self._rows = 0
        self._every = run.settings.x_file_stream_transmit_interval or _ASK_EVERY_S
        self._log = Path(run.settings.log_internal)
        self._path = f"{run.entity}/{run.project}/{run.id}"
        # After a failure too: a server that is down is not asked at each look of the agent.
        self._asked_at = time.monotonic()
        self._url, self._why = run.settings.base_url, ""
        with self._asking():
            self._run = wandb.Api(overrides={"base_url": self._url}, timeout=_ANSWERS_WITHIN_S).run(self._path)
        # W&B counts the rows of all sessions of a run: otherwise the rows of a resumed run would count as delivered
        # before they are sent.
        self._before = int(self._run.historyLineCount or 0)

    def rows(self) -> int:
        """Return the number, which the server is asked for every 15 s while there is something to know.

        Raises:
            NotNow: The server does not answer, or refuses to.
            ConnectionError: W&B's service has stopped sending.
        """
        if self._rows < self.sent and time.monotonic() - self._asked_at >= self._every:
            self._ask()
        if self._rows < self.sent and self._why:
            raise ConnectionError(f"W&B's service has stopped sending: {self._why}")
        return self._rows

    def wait_for_end(self, params: Iterable[str], timeout: float) -> None:
        """Wait until the server has all rows and shows that the run has ended; check that it has the parameters.

        Raises:
            NotNow: The server does not answer, or refuses to.
            ConnectionError: W&B's service has stopped sending.
            TimeoutError: The server does not have it all in time.
        """
        deadline = time.monotonic() + timeout
        self._ask()
        while self._rows < self.sent or self._run.state == "running":
            if self._why:
                raise ConnectionError(f"W&B's service has stopped sending: {self._why}")
            if time.monotonic() > deadline:
                has = f"{self._rows} of {self.sent} rows, and the run is {self._run.state}"
                raise TimeoutError(f"W&B's server has {has} after its service has finished")
            time.sleep(_LOOK_S)
            self._ask()
        if missing := set(params) - set(self._run.config) - _INTERNAL:  # its service has sent them before the end
            raise TimeoutError(f"W&B's server has not got the parameters {sorted(missing)[:3]}")

    def _ask(self) -> None:
        with self._asking():
            # Without `force`, W&B's client repeats its first answer.
            self._run.load(force=True)
        self._rows = int(self._run.historyLineCount or 0) - self._before
        self._why = self._why_stopped()

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            cause = _why_unreachable(self._url) or error  # W&B says that its service is busy
            raise NotNow(f"W&B's server does not say what it has of {self._path}: {cause}") from error
        finally:
            self._asked_at = time.monotonic()

    def _why_stopped(self) -> str:
        """Return the error after which W&B's service sends nothing more, from its own log; empty if there is none."""
        try:
            # No API says that the service gave up: it keeps the run open and logs one line in debug-internal.log.
            lines = self._log.read_text("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return next((str(json.loads(line)["msg"]).partition(_STOPPED)[2] for line in lines if _STOPPED in line), "")


def _why_unreachable(url: str) -> str:
    """Return why there is no connection to a server; empty if there is one."""
    try:
        http_client.ask(url, within=_CONNECTS_WITHIN_S)
    except (OSError, ValueError) as error:
        return str(error)
    return ""
