"""The file by which a Prometheus finds this run: the agent's own page, and those of its inference servers.

Source: Prometheus's file-based service discovery (`file_sd_configs`); its answer to a file that is gone is to forget
what was in it.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from otel_rl import semconv
from otel_rl.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

logger = logging.getLogger(__name__)
ENGINE = "engine"
"""The role of inference servers in the labels of their targets."""


def write(path: Path, run_id: str, own: str | None, engines: Iterable[str]) -> None:
    """Write the file; the label `rl_run_id` joins what the targets say.

    Args:
        path: Where.
        run_id: Identity of the run.
        own: URL of the agent's page, if it has one.
        engines: URLs of the pages of inference servers, such as `http://node1:8000/metrics`.
    """
    label = semconv.RUN_ID.replace(".", "_")
    groups: list[dict[str, object]] = []
    for url in engines:
        try:
            groups.append(_group(url, {label: run_id, semconv.ROLE.replace(".", "_"): ENGINE}))
        except ValueError as error:
            logger.warning("invalid engines URL %r: %s; give one such as http://node1:8000/metrics", url, error)
    if own is not None:
        groups.insert(0, _group(own, {}))  # its series have their labels
    with contextlib.suppress(OSError):  # a full disk: the run goes on without being found
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, msgspec.json.format(msgspec.json.encode(groups)))


def _group(url: str, labels: dict[str, str]) -> dict[str, object]:
    parts = urlsplit(url)
    if not parts.netloc or not parts.scheme:
        raise ValueError("it needs a scheme and a host")
    place = {"__scheme__": parts.scheme, "__metrics_path__": parts.path or "/metrics"}
    return {"targets": [parts.netloc], "labels": {**place, **labels}}
