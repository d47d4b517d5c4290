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
    """Draw the GPUs and hosts in at most so many lines; of many GPUs, several in a line."""
    gpus = [one for one in present.devices if one.name.startswith("GPU ")]
    hosts = [one for one in present.devices if not one.name.startswith("GPU ")]
    drawn = [_gpu(one) for one in gpus] + [_host(one) for one in hosts[:2]]
    if not drawn:
        return []
    size = max(width(one) for one in drawn) + 2
    in_line = max(1, cells // size)
    lines = [drawn[n : n + in_line] for n in range(0, len(drawn), in_line)]
    found = [fit_line([span for one in row for span in fit_line(one, size)], cells) for row in lines]
    if len(found) > most:
        return (
            [*found[: most - 1], fit_line((Span(_all(gpus), "dim"),), cells)] if most > 1 else [_one_line(gpus, cells)]
        )
    return found


def _gpu(device: DeviceNow) -> Line:
    share = device.utilization
    watts = "" if device.watts is None else f" {device.watts:.0f} W"
    return (
        Span(f" {fit(device.name, 6)} "),
        *drawing.gauge(share, 6, "training"),
        Span(" " + right("" if share is None else f"{100 * share:.0f} %", 5)),
        *_memory(device),
        Span(watts, "dim"),
    )


def _host(device: DeviceNow) -> Line:
    share = device.utilization
    return (
        Span(f" {fit(safe(device.name), 14).rstrip()} CPU "),
        *drawing.gauge(share, 6, "note"),
        Span(" " + right("" if share is None else f"{100 * share:.0f} %", 5)),
        *_memory(device),
    )


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


def _one_line(gpus: Sequence[DeviceNow], cells: int) -> Line:
    return fit_line((Span(_all(gpus)),), cells)
