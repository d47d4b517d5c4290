"""The rule by which all listeners answer a request or not, from its headers alone."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from otel_rl.recorder.errors.texts import shown
from otel_rl.recorder.otlp.answers import MISDIRECTED, TOO_MUCH, UNAUTHENTICATED, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from otel_rl.recorder.settings.tokens import Tokens

_MOST_WRONG = 10
"""Wrong tokens of one address in a minute that are answered with 401; further ones are answered with 429."""
_PERIOD_S = 60.0
_MOST_ADDRESSES = 4096
"""The largest number of addresses whose wrong tokens are counted one by one."""
_OTHERS = "other addresses"


class Gate:
    """Decides whether a request is answered: with tokens by its token, without them by the name of the server in it.

    A listener without tokens is on loopback, where a browser reaches it: the page of a stranger can use it through a
    name of its own that resolves to 127.0.0.1. So it has to be called by an address, or by a name of this machine.

    Args:
        tokens: The bearer tokens, of which requests must have one.
        host: The name or address of the listener as configured.
        clock: The time in seconds.
        readers: Further tokens that are let in; which requests they may make, the site decides.
        open_paths: Paths of answers that are the same for everybody, and need no token.
    """

    def __init__(
        self,
        tokens: Tokens,
        host: str = "",
        clock: Callable[[], float] = time.monotonic,
        *,
        readers: Tokens | None = None,
        open_paths: Collection[str] = (),
    ) -> None:
        self._tokens, self._readers, self._clock, self._open_paths = tokens, readers, clock, open_paths
        own = socket.gethostname().lower()
        self._names = {"", "localhost", own, own.partition(".")[0], host.strip("[]").lower()}
        self._wrong: Counter[str] = Counter()
        self._since = clock()
        self._lock = threading.Lock()

    def check(self, peer: str, host: str, headers: Mapping[str, str], path: str = "") -> None:
        """Check a request for `path` of the client at the address `peer` to `host`, with or without a port.

        Raises:
            Refusal: It has no valid token, or comes from another site.
        """
        if path in self._open_paths:
            return
        if self._tokens:
            self._check_token(peer, headers.get("authorization", ""))
            return
        origin = headers.get("origin", "")
        if not self._is_own(_name(host)) or (origin and not self._is_own(_name(urlsplit(origin).netloc) or origin)):
            raise Refusal(
                MISDIRECTED,
                f"{shown(origin or host)} is not a name of this machine: use its address or localhost in the URL; or "
                "run `otel-rl token`, start this listener again, and send the token",
            )

    def _is_own(self, name: str) -> bool:
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name.partition("%")[0])
        except ValueError:
            return False
        return True

    def _check_token(self, peer: str, authorization: str) -> None:
        if self._tokens.accept(authorization) or (self._readers and self._readers.accept(authorization)):
            return
        if authorization and self._count_wrong(peer) > _MOST_WRONG:  # the right one passes: addresses are shared
            raise Refusal(TOO_MUCH, f"{peer} has sent more than {_MOST_WRONG} wrong tokens in a minute")
        text = f"the header 'Authorization: Bearer TOKEN' is missing or has another token; {self._tokens.fix}"
        raise Refusal(UNAUTHENTICATED, text, {"WWW-Authenticate": "Bearer"})

    def _count_wrong(self, peer: str) -> int:
        with self._lock:
            if self._clock() - self._since > _PERIOD_S:
                self._wrong.clear()
                self._since = self._clock()
            sender = peer if peer in self._wrong or len(self._wrong) < _MOST_ADDRESSES else _OTHERS
            self._wrong[sender] += 1
            return self._wrong[sender]


def _name(host: str) -> str:
    """Return the host in `host:port`, in lower case and without brackets."""
    name = host.lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].removesuffix(".") if name.count(":") < 2 else name
