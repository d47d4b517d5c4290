"""The failures of an exporter, for its status and for the log."""

from __future__ import annotations

import re
from collections import Counter

from otel_rl.recorder.delivery.handover import describe, error_type
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of

logger = log_of(__name__)
_FIXES = (
    (
        r"certificate|SSL:|x509|tls:",
        "check this machine's clock, and the certificates (SSL_CERT_FILE, REQUESTS_CA_BUNDLE)",
    ),
    (r"no such host|name resolution|not known|getaddrinfo", "check the address of the server, and DNS"),
    (r"\b401\b|unauthori[sz]ed|unauthenticated|no API key", "check the API key or token"),
    (r"\b403\b|forbidden|permission.denied", "check that this account may write to the project and team"),
    (r"\b404\b|not found|does.not.exist", "check the address, the project and the team; was the run deleted?"),
    (r"\b409\b|conflict", "end other processes that write this run"),
    (r"\b429\b|too many requests", "the server limits requests; they are retried more slowly"),
    (r"refused|unreachable|timed out|deadline exceeded|reset by peer", "check that the server runs, and the proxy"),
    (r"\b5\d\d\b", "check that the server is well"),
)
"""Fixes of errors of a network: one line per cause, for every tracker."""


class Failures:
    """The failures of an exporter that were retried, and the text of the last one."""

    def __init__(self, label: str) -> None:
        self.count = 0
        self.causes: Counter[str] = Counter()  # numbers of errors by type
        self.last_error = ""
        self.first_cause = ""  # the first failure since the cursor moved: the others may only follow from it
        self._label = label
        self._warnings = Occasional(logger)

    def add(self, error: BaseException) -> None:
        """Count an error."""
        self.count += 1
        self.causes[error_type(error)] += 1

    def note_failed(self, what: str, error: BaseException) -> None:
        """Note that a call failed, and the first cause if it is another one."""
        cause = describe(error)
        first = self.first_cause = self.first_cause or cause
        since = "" if cause == first else f"; the first failure was: {with_fix(first)}"
        self.note(f"{what} failed: {cause if since else with_fix(cause)}{since}")

    def note(self, text: str) -> None:
        """Log a message, at its 1st, 10th and 100th time, and keep it as the last error."""
        self.last_error = text
        self._warnings.warn(f"{self._label}: {text}")


def with_fix(cause: str) -> str:
    """Return the cause of a failed delivery, with what fixes it if that is known; the delivery is retried anyway."""
    fix = next((fix for pattern, fix in _FIXES if re.search(pattern, cause, re.IGNORECASE)), "")
    return f"{cause}; {fix}" if fix else cause
