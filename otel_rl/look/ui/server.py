"""The server of the page: where it listens, its token, and the link that is printed."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from otel_rl.look.ui.index import RunIndex
from otel_rl.look.ui.range_cache import RangeCache
from otel_rl.look.ui.routes import routes_of
from otel_rl.look.ui.run_page import RunPages
from otel_rl.look.ui.shell import page
from otel_rl.look.ui.site import PageSite
from otel_rl.look.ui.verdicts import cache_directory
from otel_rl.recorder.otlp.answers import RefusalCounter
from otel_rl.recorder.otlp.gate import Gate
from otel_rl.recorder.otlp.serving import Serving, listen
from otel_rl.recorder.settings.tokens import Tokens

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable
    from pathlib import Path

PORT = 9470
_PORTS = 100
_IDLE_S, _BODY_S = 60.0, 5.0
_MOST_CONNECTIONS = 256
_TOKEN_BYTES = 32


class PageServer:
    """Serves the page over the runs of directories, from its creation until `close`.

    Attributes:
        link: The address with the token in its fragment, which no server, log or other page gets to see.

    Args:
        directories: The directories.
        host: The address at which it listens.
        port: The first port that is tried.
        tokens: The valid tokens; one that is made for this server by default.
        tls: The TLS configuration, if connections are encrypted.

    Raises:
        OSError: No port is free, or the address is that of another machine.
    """

    def __init__(
        self,
        directories: Iterable[Path],
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        tokens: Tokens | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        tokens = tokens or Tokens(secrets.token_urlsafe(_TOKEN_BYTES))
        cache = cache_directory()
        self.index = RunIndex(directories, cache)
        self._pages = RunPages()
        self._site = PageSite(page(), routes_of(self.index, self._pages, RangeCache(cache)))
        self._serving, actual = self._serve(host, port, tokens, tls)
        shown = "127.0.0.1" if host in ("", "0.0.0.0", "::") else host.strip("[]")
        shown = f"[{shown}]" if ":" in shown else shown
        self.link = f"{'https' if tls else 'http'}://{shown}:{actual}/#token={tokens.first}"

    def _serve(self, host: str, port: int, tokens: Tokens, tls: ssl.SSLContext | None) -> tuple[Serving, int]:
        """Listen on the first free port."""
        last = port if port == 0 else min(port + _PORTS, 1 << 16) - 1
        for candidate in range(port, last + 1):
            try:
                sockets = listen(host, candidate)
            except OSError as error:
                if candidate == last:
                    raise OSError(f"no port from {port} to {last} is free on {host}: {error.strerror}") from error
                continue
            serving = Serving(
                sockets,
                self._site,
                Gate(tokens, host, open_paths=("/",)),
                RefusalCounter(),
                name="otel-rl-ui",
                tls=tls,
                idle_s=_IDLE_S,
                body_s=_BODY_S,
                most=_MOST_CONNECTIONS,
            )
            return serving, int(sockets[0].getsockname()[1])
        raise ValueError(f"invalid port {port}: must be between 0 and 65535")

    def close(self) -> None:
        """Close the port."""
        self._serving.close()
        self._site.close()
        self._pages.close()
        self.index.close()
