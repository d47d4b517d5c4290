"""Fixes of errors of a network: one line per cause, for every tracker."""

from __future__ import annotations

import re

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


def with_fix(cause: str) -> str:
    """Return the cause of a failed delivery, with what fixes it if that is known; the delivery is retried anyway."""
    fix = next((fix for pattern, fix in _FIXES if re.search(pattern, cause, re.IGNORECASE)), "")
    return f"{cause}; {fix}" if fix else cause
