"""Measurements of machines, in groups of lines that have the same unit, and the memory of processes by step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from otel_rl.look.insight import CATEGORIES, category_of
from otel_rl.look.page.packed import packed, packed_steps, packed_times

if TYPE_CHECKING:
    from otel_rl.look.page.steps import StepAxis
    from otel_rl.look.reader.runs import RunReader

_POINTS = 150_000
_MOST_LINES = 12
"""A group of more lines is drawn as its lowest, median and highest value."""
_MOST_GROUPS = 24
_NUMBER = re.compile(r"\d+")
_RANGES = """
SELECT name, min(value) AS low, arg_min(time_unix_nano, value) AS low_at,
    max(value) AS high, arg_max(time_unix_nano, value) AS high_at
FROM measurements WHERE isfinite(value) GROUP BY name, (time_unix_nano - {origin}) // {width}
ORDER BY name, min(time_unix_nano)
"""
_SPREAD = """
SELECT (time_unix_nano - {origin}) // {width} AS place,
    min(value) AS lowest, median(value) AS median, max(value) AS highest
FROM measurements WHERE isfinite(value) AND regexp_replace(name, '[0-9]+', '#', 'g') = '{group}'
GROUP BY place ORDER BY place
"""
_MEMORY = """
SELECT phase, (step - {first}) // {every} AS place,
    max(greatest(memory_start_bytes, memory_end_bytes)) AS bytes
FROM spans WHERE phase IS NOT NULL AND step IS NOT NULL AND memory_end_bytes IS NOT NULL AND role IS NULL
GROUP BY ALL ORDER BY phase, place
"""
_TITLES = {
    "util": ("GPU utilization", "%"),
    "mem_gb": ("Memory in use", "GiB"),
    "mem_total_gb": ("Memory of the host in all", "GiB"),
    "power_w": ("Power", "W"),
    "temp_c": ("Temperature", "°C"),
}


def machines_of(run: RunReader, origin: int, end: int) -> list[dict[str, Any]]:
    """Return the measurements of machines, as groups of lines over seconds since the origin."""
    names = run.sql("SELECT DISTINCT name FROM measurements ORDER BY name")["name"].tolist()
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_NUMBER.sub("#", name), []).append(name)
    if not groups:
        return []
    count = sum(min(len(group), _MOST_LINES) for group in groups.values())
    width = max(1_000_000_000, (end - origin) // max(50, min(2_000, _POINTS // count)) + 1)
    lines = _lines(run, origin, width)
    return [
        {**_head(group), "width": width / 1e9, "lines": _of_group(run, group, members, lines, origin, width)}
        for group, members in list(groups.items())[:_MOST_GROUPS]
    ]


def memory_of(run: RunReader, steps: StepAxis) -> list[dict[str, Any]]:
    """Return the highest memory of a process at the borders of each phase, over steps."""
    if not len(steps.numbers):
        return []
    every = steps.every(2_000)
    rows = run.sql(_MEMORY.format(first=steps.first, every=every))
    phases = rows["phase"].astype(str)
    lines = []
    for name in sorted(set(phases.tolist()), key=lambda phase: (CATEGORIES.index(category_of(phase)), phase)):
        chosen = phases == name
        at = packed_steps(steps.first + rows["place"][chosen] * every)
        values = packed(np.ma.getdata(rows["bytes"])[chosen])
        lines.append({"name": name, "category": category_of(name), "every": every, "steps": at, "values": values})
    return lines


def _head(group: str) -> dict[str, str]:
    last = group.replace("/", ".").rpartition(".")[2]
    title, unit = _TITLES.get(last, (group, ""))
    place = "GPU" if ".gpu." in group else "host"
    return {"title": f"{title} ({place})" if last == "mem_gb" else title, "unit": unit, "group": group}


def _of_group(
    run: RunReader, group: str, members: list[str], lines: dict[str, dict[str, Any]], origin: int, width: int
) -> list[dict[str, Any]]:
    if len(members) <= _MOST_LINES:
        return [lines[name] for name in members if name in lines]
    rows = run.sql(_SPREAD.format(origin=origin, width=width, group=group.replace("'", "''")))
    times = packed_times(rows["place"] * width / 1e9)
    return [
        {"name": f"{name} of {len(members)}", "times": times, "values": packed(rows[name])}
        for name in ("lowest", "median", "highest")
    ]


def _lines(run: RunReader, origin: int, width: int) -> dict[str, dict[str, Any]]:
    ranges = run.sql(_RANGES.format(origin=origin, width=width))
    owners = ranges["name"].astype(str)
    lines = {}
    for name in dict.fromkeys(owners.tolist()):
        part = owners == name
        at = np.column_stack((ranges["low_at"][part], ranges["high_at"][part]))
        values = np.column_stack((ranges["low"][part], ranges["high"][part]))
        order = np.argsort(at, axis=1, kind="stable")
        at, values = np.take_along_axis(at, order, 1).ravel(), np.take_along_axis(values, order, 1).ravel()
        twice = np.append(False, at[1:] == at[:-1])
        times = (at[~twice] - origin) / 1e9
        lines[name] = {"name": name, "times": packed_times(times), "values": packed(values[~twice], "f4")}
    return lines
