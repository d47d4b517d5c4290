"""`otel_rl.ui`: the page over all runs for programs and notebooks."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from otel_rl.look.ui.server import PageServer

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEIGHT_PX = 900
_HUB_VARIABLE = "JUPYTERHUB_SERVICE_PREFIX"
"""Where JupyterHub serves this notebook; its proxy leads from there to ports of the machine."""


class LivePage:
    """The page over all runs, served by this process. As the value of a notebook's cell, it shows itself.

    The output of the cell has the token of the page, which means nothing once this process has ended.

    Attributes:
        link: The address, with its token: whoever has it reads, marks and deletes the runs.
    """

    def __init__(self, server: PageServer) -> None:
        self._server = server
        self.link = server.link

    def close(self) -> None:
        """End the server."""
        self._server.close()

    def __repr__(self) -> str:
        return f"<page over all runs at {self.link.partition('#')[0]}>"

    def _repr_html_(self) -> str:
        """Return a frame with the page; under JupyterHub, through the proxy of the hub."""
        place, prefix = urlsplit(self.link), os.environ.get(_HUB_VARIABLE, "")
        address = f"{prefix}proxy/{place.port}/#{place.fragment}" if prefix else self.link
        frame = f'<iframe src="{escape(address)}" width="100%" height="{_HEIGHT_PX}" style="border:0"'
        return f'{frame} title="All runs"></iframe>'


def ui(
    directories: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None, *, port: int = 0
) -> LivePage:
    """Serve the page over all runs below directories until the process ends, and show it in a notebook.

    Args:
        directories: One or several directories; without any, OTEL_RL_DIR (`runs`).
        port: The first port that is tried; any free one by default.

    Raises:
        OSError: No port is free.
    """
    if directories is None:
        directories = os.environ.get("OTEL_RL_DIR", "runs")
    places = [directories] if isinstance(directories, str | os.PathLike) else directories
    return LivePage(PageServer([Path(place) for place in places], port=port))
