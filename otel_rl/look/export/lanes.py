"""Lanes for spans that come in the order of their starts: in a lane, each span is inside of another or after it."""

from __future__ import annotations

import heapq


class TraceLanes:
    """The lanes of one process. It holds the spans that are open, and no others."""

    def __init__(self) -> None:
        self._open: dict[
            int, list[tuple[int, str]]
        ] = {}  # ends and ids of the open spans of a lane, the outermost first
        self._lane_of: dict[str, int] = {}
        self._busy: list[tuple[int, int]] = []  # ends of the outermost spans, with their lanes
        self._free: list[int] = []
        self.count = 0

    def place(self, start: int, end: int, span_id: str, parent_id: str) -> int:
        """Return the lane of a span: that of its parent, if it ends inside of it, or the first that is free."""
        while self._busy and self._busy[0][0] <= start:
            _, lane = heapq.heappop(self._busy)
            self._close(lane, start)
            heapq.heappush(self._free, lane)
        lane = self._lane_of.get(parent_id, -1)
        if lane >= 0:
            self._close(lane, start)
        if lane < 0 or not self._open[lane] or self._open[lane][-1][0] < end:
            lane = heapq.heappop(self._free) if self._free else self.count
            self.count = max(self.count, lane + 1)
            heapq.heappush(self._busy, (end, lane))
        self._open.setdefault(lane, []).append((end, span_id))
        self._lane_of[span_id] = lane
        return lane

    def _close(self, lane: int, now: int) -> None:
        opened = self._open[lane]
        while opened and opened[-1][0] <= now:
            _, span_id = opened.pop()
            self._lane_of.pop(span_id, None)
