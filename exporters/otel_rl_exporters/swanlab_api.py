"""What SwanLab's server has of a run, and why it takes no more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from otel_rl.export import NotNow
from otel_rl.recorder.errors.sinks import log_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

logger = log_of(__name__)
_EARLIER_S = 3600
"""Seconds before a session whose points its summary may have: the clocks of client and server differ."""


def check_login() -> None:
    """Log in once, since SwanLab's own login hides why it fails; its next run does not use an old session.

    Raises:
        OSError: The server does not answer, or refuses the key.
    """
    import swanlab
    from swanlab.exceptions import ApiError
    from swanlab.sdk.internal.core_python import client
    from swanlab.sdk.internal.pkg.client import session

    if client.exists():
        client.reset()
    settings = swanlab.Settings(interactive=False)
    url = f"{settings.api_host}/api/login/api_key"
    try:
        with session.create(default_retry=0) as once:
            once.post(url, headers={"authorization": settings.api_key or ""}, log_error=False)
    except ApiError as error:
        raise ConnectionError(_refusal("the login", error.response.status_code, error.message)) from error


def _refusal(what: str, status: int, message: str) -> str:
    return f"SwanLab's server refuses {what} with status {status}: {message}"


def upload_of(run: Any) -> Upload | None:
    """Return the upload of a run, or `None` if this version of SwanLab has another one."""
    try:
        return Upload(run)
    except (AttributeError, ImportError) as error:
        logger.warning("swanlab: unknown version (%s); points that its server refuses can be lost", error)
        return None


class Upload:
    """The upload of an online run, whose records stay in their order until SwanLab's server has them.

    SwanLab's client drops what its server refuses with a status from 400 to 499, and goes on. Here, it sends everything
    again from there. After a failure, only records that the server's summary lacks are sent again, since the server
    keeps a repeated point twice. At the end of the run, the first failure ends the upload: SwanLab's client would wait
    for its server without a limit.
    """

    def __init__(self, run: Any) -> None:
        from swanlab.sdk.internal.core_python.api.experiment import get_experiment_summary

        self._core = run._ctx.core
        self._transport = self._core._transport
        sender = self._transport._sender
        self._summary, self._began = get_experiment_summary, int(time.time())
        self._last: dict[str, int] = {}  # the last step of each key that the server has taken
        self._failure: Any = None  # the error of the last request
        self._is_ending = False
        self._safe = self._next = self._next_number = 0
        self._send, sender.upload = sender.upload, self._upload

    def safe(self, logged: int) -> int:
        """Return the number of items that the server has, of those that SwanLab has logged.

        Raises:
            NotNow: The server does not answer.
            ConnectionError: The server refuses them.
        """
        self._check()
        waiting = [record.num for record in self._transport.pending_records() if record.num > 0]
        if not waiting:
            self._safe = logged
        else:
            if min(waiting) > self._next_number:
                self._safe = self._next
            if self._next == self._safe:  # all before `logged` are safe when the last one of them is
                self._next, self._next_number = logged, max(waiting)
        return self._safe

    def end(self) -> None:
        """Let the first failure end the upload."""
        self._is_ending = True

    def check_end(self) -> None:
        """Check that the server has everything, and shows the end.

        Raises:
            NotNow: The server does not answer.
            ConnectionError: The server refuses them.
        """
        self._check()
        if self._core._transport is not None or self._core._pending_online_finish_record is not None:
            check_login()  # says why, if it still holds
            raise ConnectionError("SwanLab's server does not show the end of the run")

    def _check(self) -> None:
        if (error := self._failure) is None:
            return
        if error.response is None:
            raise NotNow(f"there is no answer of SwanLab's server: {error}")
        status: int = error.response.status_code
        text = _refusal("the run", status, getattr(error, "message", str(error)))
        raise NotNow(text) if status == 429 or status >= 500 else ConnectionError(text)

    def _upload(self, kind: str, records: Sequence[Any]) -> Any:
        """Send records of a kind, in SwanLab's own thread; return its result."""
        from requests import RequestException

        if self._is_ending and self._failure is not None:
            raise SystemExit  # it catches any `Exception`, and tries again
        # An empty upload makes SwanLab's own result, which is filled in below if the real one raises.
        result = self._send(kind, ())
        try:
            result = self._send(kind, records if self._failure is None else self._missing(kind, records))
        except RequestException as error:
            errors: list[Any] = [error]
        else:
            errors = [
                failure.exception for failure in result.failures if isinstance(failure.exception, RequestException)
            ]
        if errors:
            self._failure = errors[0]
            result.confirmed_records, result.remaining_records = [], list(records)
            return result
        self._failure = None
        for failure in result.failures:
            logger.warning("swanlab: %d record(s) cannot be sent: %s", len(failure.records), failure.message)
        for key, step in _points(kind, records):
            self._last[key] = max(step, self._last.get(key, -1))
        result.confirmed_records, result.remaining_records = list(records), []
        return result

    def _missing(self, kind: str, records: Sequence[Any]) -> list[Any]:
        """Return the records that the server lacks; those that are late count as missing."""
        ctx = self._core._ctx
        summary = self._summary(ctx.project_id, ctx.experiment_id, self._began - _EARLIER_S)
        last_step = {f"{kind} {metric['key']}": metric["step"] for metric in summary.get(kind) or ()}
        points = enumerate(_points(kind, records))
        held = {n for n, (key, step) in points if self._last.get(key, -1) < step <= last_step.get(key, -1)}
        return [record for n, record in enumerate(records) if n not in held]


def _points(kind: str, records: Sequence[Any]) -> Iterator[tuple[str, int]]:
    """Yield the key and step of each point; records of other kinds have none."""
    for record in records if kind in ("scalar", "media") else ():
        point = getattr(record, kind)
        yield f"{kind} {point.key}", point.step
