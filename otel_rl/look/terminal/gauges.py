"""GPUs and hosts, as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.cli.lines import StyledText, fit_line, safe, width
from otel_rl.look.terminal import drawing
from otel_rl.recorder.convert.cells import fit, right
from otel_rl.recorder.facts import wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.cli.lines import Line
    from otel_rl.recorder.archive.now import DeviceNow
    from otel_rl.recorder.archive.present import RunPresent

_FULL = 0.95


def draw(present: RunPresent, cells: int, most: int) -> list[Line]:
    """Draw the GPUs and hosts in at most so many lines: of many GPUs several in a line, or all as one."""
    gpus = [device for device in present.devices if device.name.startswith("GPU ")]
    hosts = [_host(device) for device in present.devices if not device.name.startswith("GPU ")][:2]
    for drawn in ([_gpu(gpu) for gpu in gpus], [_small_gpu(gpu) for gpu in gpus]):
        lines = _in_lines(drawn, cells) + _in_lines(hosts, cells)
        if len(lines) <= most:
            return lines
    return [(StyledText(_all(gpus)),), *_in_lines(hosts, cells)][:most]


def _in_lines(drawn: Sequence[Line], cells: int) -> list[Line]:
    """Return as many in each line as there is room for."""
    if not drawn:
        return []
    size = max(width(gauge) for gauge in drawn) + 2
    in_line = max(1, (cells + 2) // size)
    rows = [drawn[n : n + in_line] for n in range(0, len(drawn), in_line)]
    return [fit_line([span for gauge in row for span in fit_line(gauge, size)], cells) for row in rows]


def _small_gpu(device: DeviceNow) -> Line:
    used = device.memory
    memory = "" if used is None else f" {wording.memory(used)}"
    return (
        StyledText(f" {fit(device.name.removeprefix('GPU '), 2)}"),
        *_load(device.utilization, 4),
        StyledText(memory, "dim"),
    )


def _gpu(device: DeviceNow) -> Line:
    watts = "" if device.watts is None else f" {wording.number(device.watts)} W"
    return (
        StyledText(f" {fit(device.name, 6)} "),
        *_load(device.utilization, 6),
        *_memory(device),
        StyledText(watts, "dim"),
    )


def _host(device: DeviceNow) -> Line:
    return (
        StyledText(f" {fit(safe(device.name), 14).rstrip()} CPU "),
        *_load(device.utilization, 6, "note"),
        StyledText("  memory" if device.memory is not None else ""),
        *_memory(device),
    )


def _load(share: float | None, width: int, category: str = "training") -> Line:
    """Return how busy a device is, as a bar of some characters and in percent."""
    text = "" if share is None else wording.percent(share)
    return (*drawing.gauge(share, width, category), StyledText(" " + right(text, 6)))


def _memory(device: DeviceNow) -> Line:
    if device.memory is None:
        return ()
    if not device.memory_limit:
        return (StyledText(f" {wording.memory(device.memory)}"),)
    is_full = device.memory > _FULL * device.memory_limit
    return (StyledText(f" {wording.memory_of(device.memory, device.memory_limit)}", "bad" if is_full else ""),)


def _all(gpus: Sequence[DeviceNow]) -> str:
    shares = [gpu.utilization for gpu in gpus if gpu.utilization is not None]
    if not shares:
        return f" {len(gpus)} GPUs"
    mean, low, high = map(wording.percent, (sum(shares) / len(shares), min(shares), max(shares)))
    return f" all {len(gpus)} GPUs: {mean} busy on average, {low} to {high}"
