"""GPUs and hosts, as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.insight import wording
from otel_rl.view.terminal import drawing
from otel_rl.view.terminal.lines import Span, fit, fit_line, right, safe, width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.archive.now import DeviceNow
    from otel_rl.view.terminal.lines import Line
    from otel_rl.view.terminal.present import Present

_FULL = 0.95


def draw(present: Present, cells: int, most: int) -> list[Line]:
    """Draw the GPUs and hosts in at most so many lines: of many GPUs several in a line, or all as one."""
    gpus = [one for one in present.devices if one.name.startswith("GPU ")]
    hosts = [_host(one) for one in present.devices if not one.name.startswith("GPU ")][:2]
    for drawn in ([_gpu(one) for one in gpus], [_small_gpu(one) for one in gpus]):
        lines = _in_lines(drawn, cells) + _in_lines(hosts, cells)
        if len(lines) <= most:
            return lines
    return [(Span(_all(gpus)),), *_in_lines(hosts, cells)][:most]


def _in_lines(drawn: Sequence[Line], cells: int) -> list[Line]:
    """Return as many in each line as there is room for."""
    if not drawn:
        return []
    size = max(width(one) for one in drawn) + 2
    in_line = max(1, (cells + 2) // size)
    rows = [drawn[n : n + in_line] for n in range(0, len(drawn), in_line)]
    return [fit_line([span for one in row for span in fit_line(one, size)], cells) for row in rows]


def _small_gpu(device: DeviceNow) -> Line:
    used = device.memory
    memory = "" if used is None else f" {used / 2**30:.0f} GiB"
    return (
        Span(f" {fit(device.name.removeprefix('GPU '), 2)}"),
        *_load(device.utilization, 4),
        Span(memory, "dim"),
    )


def _gpu(device: DeviceNow) -> Line:
    watts = "" if device.watts is None else f" {device.watts:.0f} W"
    return (
        Span(f" {fit(device.name, 6)} "),
        *_load(device.utilization, 6),
        *_memory(device),
        Span(watts, "dim"),
    )


def _host(device: DeviceNow) -> Line:
    return (
        Span(f" {fit(safe(device.name), 14).rstrip()} CPU "),
        *_load(device.utilization, 6, "note"),
        Span("  memory" if device.memory is not None else ""),
        *_memory(device),
    )


def _load(share: float | None, width: int, category: str = "training") -> Line:
    """Return how busy a device is, as a bar of some characters and in percent."""
    text = "" if share is None else f"{100 * share:.0f} %"
    return (*drawing.gauge(share, width, category), Span(" " + right(text, 5)))


def _memory(device: DeviceNow) -> Line:
    if device.memory is None:
        return ()
    if not device.memory_limit:
        return (Span(f" {wording.memory(device.memory)}"),)
    is_full = device.memory > _FULL * device.memory_limit
    return (Span(f" {wording.memory_of(device.memory, device.memory_limit)}", "bad" if is_full else ""),)


def _all(gpus: Sequence[DeviceNow]) -> str:
    shares = [one.utilization for one in gpus if one.utilization is not None]
    if not shares:
        return f" {len(gpus)} GPUs"
    low, high, mean = min(shares), max(shares), sum(shares) / len(shares)
    return f" all {len(gpus)} GPUs: {100 * mean:.0f} % busy on average, {100 * low:.0f} to {100 * high:.0f} %"
