"""The server of the page: where it listens, its token, and the link that is printed."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from otel_rl.look.ui.index import RunIndex
from otel_rl.look.ui.kept_files import cache_directory
from otel_rl.look.ui.range_cache import RangeCache
from otel_rl.look.ui.routes import routes_of
from otel_rl.look.ui.run_page import RunPages
from otel_rl.look.ui.shell import page
from otel_rl.look.ui.site import PageSite
from otel_rl.recorder.otlp.answers import RefusalCounter
from otel_rl.recorder.otlp.gate import Gate
from otel_rl.recorder.otlp.serving import Serving, listen_from
from otel_rl.recorder.settings.tokens import Tokens

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable
    from pathlib import Path

_IDLE_S, _BODY_S = 60.0, 5.0
_MOST_CONNECTIONS = 256
_MOST_HELD = 1 << 20
_TOKEN_BYTES = 32
_WHERE = "that of the link that `otel-rl ui` printed"


class PageServer:
    """Serves the page over the runs of directories, from its creation until `close`.

    Attributes:
        link: The address with the token in its fragment, which no server, log or other page gets to see.

    Args:
        directories: The directories.
        host: The address at which it listens.
        port: The first port that is tried; any free one by default.
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
        port: int = 0,
        tokens: Tokens | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        tokens = tokens or Tokens(secrets.token_urlsafe(_TOKEN_BYTES), where=_WHERE)
        cache = cache_directory()
        self.index = RunIndex(directories, cache)
        self._pages = RunPages(self.index, cache)
        self._site = PageSite(page(), routes_of(self.index, self._pages, RangeCache(cache)), tokens)
        sockets, actual = listen_from(host, port)
        self._serving = Serving(
            sockets,
            self._site,
            Gate(tokens, host, readers=tokens.for_reading(), open_paths=("/",)),
            RefusalCounter(),
            name="otel-rl-ui",
            tls=tls,
            idle_s=_IDLE_S,
            body_s=_BODY_S,
            most=_MOST_CONNECTIONS,
            most_held=_MOST_HELD,
        )
        shown = "127.0.0.1" if host in ("", "0.0.0.0", "::") else host.strip("[]")
        shown = f"[{shown}]" if ":" in shown else shown
        self.link = f"{'https' if tls else 'http'}://{shown}:{actual}/#token={tokens.first}"

    def close(self) -> None:
        """Close the port."""
        self._serving.close()
        self._site.close()
        self._pages.close()
        self.index.close()
