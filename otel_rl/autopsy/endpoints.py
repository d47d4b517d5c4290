"""Whether inference servers answer, and what they have to do: by the metrics endpoints that the settings name."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from otel_rl import semconv
from otel_rl.autopsy.evidence import EndpointSeen
from otel_rl.recorder.agent.input import engine_pages
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WITHIN_S, _BETWEEN_S = 2.0, 0.5
_MOST = 64
_HERE = ("localhost", "127.0.0.1", "::1", "0.0.0.0")
_SILENT = f"no answer within {wording.seconds(_WITHIN_S)}"


def port_of(url: str) -> int | None:
    """Return the port of an endpoint on this machine; `None` if it is on another one, or names no port."""
    with suppress(ValueError):
        parts = urlsplit(url)
        return parts.port if parts.hostname in _HERE or parts.hostname == socket.gethostname() else None
    return None


def look_at(urls: Iterable[str]) -> tuple[EndpointSeen, ...]:
    """Return what each endpoint says, all at once; one that says nothing within 2 s is silent."""
    chosen = tuple(dict.fromkeys(urls))[:_MOST]
    answers: dict[str, EndpointSeen] = {}
    threads = [threading.Thread(target=_look, args=(url, answers), daemon=True) for url in chosen]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 2 * _WITHIN_S + _BETWEEN_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return tuple(answers.get(url) or EndpointSeen(url=url, error=_SILENT) for url in chosen)


def _look(url: str, answers: dict[str, EndpointSeen]) -> None:
    try:
        first, began = _loads(url), time.monotonic()
        time.sleep(_BETWEEN_S)
        last, seconds = _loads(url), time.monotonic() - began
        tokens = _sum(last, engine_pages.GENERATED), _sum(first, engine_pages.GENERATED)
        rate = None if None in tokens else ((tokens[0] or 0.0) - (tokens[1] or 0.0)) / seconds
        cache = [load.value for load in last if load.quantity == semconv.METRIC_ENGINE_KV_CACHE_UTILIZATION]
        answers[url] = EndpointSeen(
            url=url,
            running=_sum(last, semconv.METRIC_ENGINE_REQUESTS_RUNNING),
            waiting=_sum(last, semconv.METRIC_ENGINE_REQUESTS_WAITING),
            cache=max(cache, default=None),
            rate=rate,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        answers[url] = EndpointSeen(url=url, error=_SILENT if isinstance(reason, TimeoutError) else str(reason))


def _loads(url: str) -> list[engine_pages.Load]:
    return engine_pages.fetch(engine_pages.address_of(url), url, _WITHIN_S)


def _sum(loads: Sequence[engine_pages.Load], quantity: str) -> float | None:
    values = [load.value for load in loads if load.quantity == quantity]
    return sum(values) if values else None
