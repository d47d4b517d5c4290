"""The time of trajectories by kind of part, and by tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_rl.recorder.convert.known_names import OTHER, KnownNames

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_rl.recorder.journal.records import Consumed

_MOST_TOOLS = 16


class TrajectoryTime:
    """The values of steps for the parts of trajectories. The first 16 tools of a run have values of their own."""

    def __init__(self) -> None:
        self._tools = KnownNames("tools", _MOST_TOOLS)

    def add(self, records: Iterable[Consumed]) -> dict[str, float]:
        """Return the values by name, over the trajectories that the step trained on or dropped.

        A fraction is the seconds of a kind divided by the duration of all trajectories that have parts.
        """
        parts: dict[str, float] = {}
        tools: dict[str, tuple[int, float, float]] = {}
        for record in records:
            for kind, seconds in record.parts.items():
                parts[kind] = parts.get(kind, 0.0) + seconds
            for name, (calls, seconds, longest) in record.tools.items():
                tool = self._label(name)
                known = tools.get(tool, (0, 0.0, 0.0))
                tools[tool] = known[0] + calls, known[1] + seconds, max(known[2], longest)
        total = sum(parts.values())
        values = {f"trajectories/time/{kind}": seconds for kind, seconds in parts.items()}
        if total:
            values |= {f"trajectories/time_fraction/{kind}": seconds / total for kind, seconds in parts.items()}
        for tool, (calls, seconds, longest) in tools.items():
            values |= {
                f"trajectories/tool/{tool}/calls": calls,
                f"trajectories/tool/{tool}/time": seconds,
                f"trajectories/tool/{tool}/longest": longest,
            }
        return values

    def _label(self, name: str) -> str:
        label = name.replace("/", ".")
        return label if label != OTHER and self._tools.admits(label) else OTHER
