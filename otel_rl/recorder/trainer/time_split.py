"""The time of a trajectory in the model, tools, the environment and the verifier."""

from __future__ import annotations

import math
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

from otel_rl.recorder.convert.known_names import OTHER
from otel_rl.recorder.convert.values import to_number, to_whole
from otel_rl.recorder.errors.texts import name_of, shown
from otel_rl.recorder.journal.records import PART_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Tools = dict[str, tuple[int, float, float]]
"""Calls, their seconds, and the seconds of the longest call, by tool."""

_MOST_TOOLS = 64
"""Names of tools in a ticket or a record; the calls of all others are added up as "other"."""
_LONGEST_S = 1e9


class Split(NamedTuple):
    """The seconds of trajectories by kind of part, with "other", and the calls of their tools."""

    parts: dict[str, float]
    tools: Tools


class TimeSplit:
    """The time of a trajectory that is open, by kind of part.

    While several parts are open, time counts for the last one that began. So the kinds, with "other", add up to the
    duration, also if tools run at the same time in threads. The seconds of a tool are those of its calls.
    """

    def __init__(self, began: int) -> None:
        self.is_open = True
        self._until = began
        self._nanoseconds: dict[str, int] = {}
        self._open: dict[object, str] = {}
        self._tools: Tools = {}
        self._has_parts = False
        self._lock = RLock()  # a signal handler that interrupts may end the parts

    def enter(self, part: object, kind: str, time: int) -> None:
        """Record that a part begins."""
        with self._lock:
            self._advance(time)
            self._open[part] = kind
            self._has_parts = True

    def exit(self, part: object, tool: str, seconds: float, time: int) -> None:
        """Record that a part ends; if it was a call of a tool, it has a name and seconds."""
        with self._lock:
            self._advance(time)
            if self._open.pop(part, None) is not None and tool:
                _add_tool(self._tools, tool, (1, seconds, seconds))

    def close(self, time: int) -> None:
        """Record that the trajectory ends; a second call does nothing."""
        with self._lock:
            self._advance(time)
            self.is_open = False

    def ticket(self, time: int) -> dict[str, Any]:
        """Return the fields of a ticket: the seconds up to `time`, or to the end; nothing if there were no parts."""
        with self._lock:
            self._advance(time)
            if not self._has_parts:
                return {}
            ticket: dict[str, Any] = {"parts": {kind: count / 1e9 for kind, count in self._nanoseconds.items()}}
            return ticket | ({"tools": {tool: [*calls] for tool, calls in self._tools.items()}} if self._tools else {})

    def _advance(self, time: int) -> None:
        """Add the time since the last call to the part that began last."""
        if self.is_open and time > self._until:
            kind = next(reversed(self._open.values()), OTHER)
            self._nanoseconds[kind] = self._nanoseconds.get(kind, 0) + time - self._until
            self._until = time


def split_of(ticket: Mapping[str, Any]) -> Split:
    """Return the time that a ticket holds.

    Raises:
        Exception: The ticket is invalid.
    """
    parts = {_kind_of(kind): _seconds(value) for kind, value in (ticket.get("parts") or {}).items()}
    tools: Tools = {}
    for tool, (calls, seconds, longest) in (ticket.get("tools") or {}).items():
        _add_tool(tools, name_of(tool), (to_whole(calls, 0), _seconds(seconds), _seconds(longest)))
    return Split(parts, tools)


def merged(splits: Iterable[Split]) -> Split:
    """Return the sum over trajectories."""
    parts: dict[str, float] = {}
    tools: Tools = {}
    for split in splits:
        for kind, seconds in split.parts.items():
            parts[kind] = parts.get(kind, 0.0) + seconds
        for tool, calls in split.tools.items():
            _add_tool(tools, tool, calls)
    return Split(parts, tools)


def _add_tool(tools: Tools, tool: str, more: tuple[int, float, float]) -> None:
    known = tool if tool in tools or len(tools) < _MOST_TOOLS else OTHER
    calls, seconds, longest = tools.get(known, (0, 0.0, 0.0))
    tools[known] = calls + more[0], seconds + more[1], max(longest, more[2])


def _kind_of(kind: object) -> str:
    if kind not in (*PART_KINDS, OTHER):
        raise ValueError(f"unknown kind of part {shown(kind)}")
    return str(kind)


def _seconds(value: object) -> float:
    seconds = float(to_number(value))
    if not 0 <= seconds < _LONGEST_S or math.isnan(seconds):
        raise ValueError(f"{seconds} is not a number of seconds")
    return seconds
