"""Certificates of a server, good ones and bad ones, of an authority that exists for one test."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import trustme

BadCertificate = Literal["expired", "not yet valid", "self-signed", "wrong host"]


class Certificates:
    """A good certificate of a host, and bad ones.

    Attributes:
        contexts: The TLS of a server by what is wrong with its certificate; "" if it is good.
        environment: Variables by which clients trust the authority.
    """

    def __init__(self, directory: Path, host: str) -> None:
        authority, now, day = trustme.CA(), datetime.now(UTC), timedelta(days=1)
        file = directory / "authority.pem"
        authority.cert_pem.write_to_path(file)
        self.environment = {"SSL_CERT_FILE": str(file), "REQUESTS_CA_BUNDLE": str(file)}
        self.contexts: dict[BadCertificate | Literal[""], ssl.SSLContext] = {
            "": _context(authority.issue_cert(host)),
            "expired": _context(authority.issue_cert(host, not_before=now - 2 * day, not_after=now - day)),
            "not yet valid": _context(authority.issue_cert(host, not_before=now + day, not_after=now + 2 * day)),
            "self-signed": _context(trustme.CA().issue_cert(host)),
            "wrong host": _context(authority.issue_cert("another.test")),
        }


def _context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    return context
