"""Memory at the boundaries of phases: peaks of phases, and values for rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from otel_rl.recorder.agent.steps.state import OpenPhase
from otel_rl.recorder.devices.host_memory import parse_snapshot
from otel_rl.recorder.journal.records import DeviceMemory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from otel_rl.export import Row
    from otel_rl.recorder.agent.steps.state import Journal
    from otel_rl.recorder.journal.records import DeviceSeen, SpanEnded, SpanStarted, StepEnded, StepStarted

_GIB = 1 << 30
_DEVICES = "memory/device/"
"""The beginning of names of the memory of a device, whatever the phase."""
_BEFORE_ONLOAD, _BEFORE, _AFTER, _AFTER_OFFLOAD = "start/offload", "start/onload", "end/onload", "end/offload"
"""ROLL's suffixes: before or after the work, with states on the device or off."""
_PLACES = {"onload": _BEFORE, "execute": _AFTER, "offload": _AFTER_OFFLOAD}
"""The suffix for the end of a part."""


def cross(journal: Journal, record: SpanStarted | SpanEnded | StepStarted | StepEnded) -> None:
    """Apply the memory at a boundary, before the phase that begins or ends there does so.

    The peak of an open phase rises to the allocator's own peak if that peak rose since the last boundary, or was
    reset in between. Otherwise only the levels at both ends are known.
    """
    memory = parse_snapshot(record.memory, journal.started.page_size)
    if memory is not None:
        journal.resident, journal.virtual = memory
    for device in record.devices or ():
        peak = highest_between(journal, device)
        for open_ in journal.phases.values():
            known = open_.peaks.get(device.index, (0, 0))
            open_.peaks[device.index] = (max(known[0], peak[0]), max(known[1], peak[1]))
        journal.on_devices[device.index] = device
        journal.highest[device.index] = max(journal.highest.get(device.index, 0), peak[1])


def open_phase(begun: SpanStarted) -> OpenPhase:
    """Return the state of a phase, or of a part of one, that begins."""
    return OpenPhase(begun.name, {d.index: (d.allocated, d.reserved) for d in begun.devices or ()})


def close_phase(
    journal: Journal, begun: SpanStarted, ended: SpanEnded, open_: OpenPhase, labels: Mapping[int, int]
) -> dict[str, float]:
    """Return the values for the row of a phase, or of a part of one, that ends; in ROLL's names and GiB."""
    whole = journal.phases.get(begun.parent_id)
    if begun.part and whole is not None and whole.name == begun.name:
        if not whole.parts or (begun.part in _PLACES and begun.part not in whole.parts):
            whole.parts.append(begun.part)
        if begun.part in _PLACES:
            return _at(begun.name, _PLACES[begun.part], ended.devices, whole.peaks, journal.devices, labels)
    if begun.part:
        return _change(begun, ended)
    values = _of_process(journal, begun, ended)
    before = open_phase(begun).peaks
    places = [(_BEFORE_ONLOAD, begun.devices, before)] if open_.parts else []
    if "onload" not in open_.parts:
        places.append((_BEFORE, begun.devices, before))
    if "execute" not in open_.parts:
        places.append((_AFTER, ended.devices, open_.peaks))
    if open_.parts and "offload" not in open_.parts:
        places.append((_AFTER_OFFLOAD, ended.devices, open_.peaks))
    for place, devices, peaks in places:
        values |= _at(begun.name, place, devices, peaks, journal.devices, labels)
    return values


def at_end_of_step(journal: Journal, labels: Mapping[int, int]) -> dict[str, float]:
    """Return headroom and fragmentation of each device in GiB."""
    values: dict[str, float] = {}
    for index, memory in journal.on_devices.items():
        place = f"{_DEVICES}{labels.get(index, index)}"
        values[f"{place}/fragmentation"] = (memory.reserved - memory.allocated) / _GIB
        total = journal.devices[index].total if index in journal.devices else 0
        if total:
            values[f"{place}/headroom"] = (total - max(journal.highest.get(index, 0), memory.reserved)) / _GIB
    return values


def without_phase_memory(row: Row) -> Row:
    """Return a row without the memory around phases, which is dozens of values for each device."""
    left_out = {name for name in row.measured if name.startswith("memory/") and not name.startswith(_DEVICES)}
    if not left_out:
        return row
    return replace(
        row,
        values={name: value for name, value in row.values.items() if name not in left_out},
        measured=tuple(name for name in row.measured if name not in left_out),
    )


def labels(journal: Journal, known: dict[str, int]) -> dict[int, int]:
    """Return the index of each device of a process in metric names: its own index, if that is free.

    Another process may use the same index for another device. `known` has the index of each device so far, by its UUID
    or another identity; new devices are added to it.
    """
    indices: dict[int, int] = {}
    for index, seen in journal.devices.items():
        key = seen.uuid or f"{journal.started.host}/{index}"
        if key not in known:
            known[key] = index if index not in known.values() else max(known.values()) + 1
        indices[index] = known[key]
    return indices


def highest_between(journal: Journal, after: DeviceMemory) -> tuple[int, int]:
    """Return the highest levels, allocated and reserved, since the last boundary: the allocator's if it changed."""
    before = journal.on_devices.get(after.index, DeviceMemory(after.index, 0, 0, 0, 0))
    allocated, reserved = max(before.allocated, after.allocated), max(before.reserved, after.reserved)
    return (
        allocated if after.peak_allocated == before.peak_allocated else after.peak_allocated,
        reserved if after.peak_reserved == before.peak_reserved else after.peak_reserved,
    )


def _at(
    phase: str,
    place: str,
    devices: Iterable[DeviceMemory] | None,
    peaks: Mapping[int, tuple[int, int]],
    seen: Mapping[int, DeviceSeen],
    labels: Mapping[int, int],
) -> dict[str, float]:
    values: dict[str, float] = {}
    head = f"memory/{phase}/{place}"
    for memory in devices or ():
        label = labels.get(memory.index, memory.index)
        allocated, reserved = peaks.get(memory.index, (memory.allocated, memory.reserved))
        values[f"{head}/allocated/{label}"] = memory.allocated / _GIB
        values[f"{head}/reserved/{label}"] = memory.reserved / _GIB
        values[f"{head}/max_allocated/{label}"] = allocated / _GIB
        values[f"{head}/max_reserved/{label}"] = reserved / _GIB
        total = seen[memory.index].total if memory.index in seen else 0
        if place == _AFTER and total:
            values[f"{head}/max_allocated_frac/{label}"] = allocated / total
            values[f"{head}/max_reserved_frac/{label}"] = reserved / total
    return values


def _of_process(journal: Journal, begun: SpanStarted, ended: SpanEnded) -> dict[str, float]:
    values: dict[str, float] = {}
    for moment, raw in (("start", begun.memory), ("end", ended.memory)):
        memory = parse_snapshot(raw, journal.started.page_size)
        if memory is not None:
            values[f"memory/cpu/{begun.name}/{moment}/rss"] = memory.resident / _GIB
            values[f"memory/cpu/{begun.name}/{moment}/vms"] = memory.virtual / _GIB
    return values


def _change(begun: SpanStarted, ended: SpanEnded) -> dict[str, float]:
    """Return how much device memory a part allocated or freed, over all processes."""
    before = {device.index: device.used for device in begun.devices or () if device.used >= 0}
    changes = [abs(d.used - before[d.index]) for d in ended.devices or () if d.used >= 0 and d.index in before]
    return {f"memory/{begun.name}/{begun.part}": max(changes) / _GIB} if changes else {}
