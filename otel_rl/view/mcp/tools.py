"""The tools of a coding agent: each reads runs below one directory, and returns facts.

Their docstrings and the descriptions of their arguments are what the agent reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from pydantic import Field

from otel_rl.archive.reader import in_steps, named, open_run
from otel_rl.archive.runs import NEWEST, directory_of, place_of
from otel_rl.insight.compare.comparison import Comparison
from otel_rl.insight.compare.conclude import compare as concluded_difference
from otel_rl.insight.compare.gates import gates_of
from otel_rl.insight.owed import Owed, owed
from otel_rl.insight.why.answer import Why
from otel_rl.insight.why.conclude import why as concluded_reasons
from otel_rl.view.mcp.found import Found
from otel_rl.view.mcp.found import find as found_in
from otel_rl.view.mcp.lines import MOST_LINES, Lines, lines_of
from otel_rl.view.mcp.query import ask
from otel_rl.view.terminal.listing import Listing, listed, runs_below
from otel_rl.view.terminal.show import Status
from otel_rl.view.terminal.show import status as status_of

_LAST = 1 << 62
Run = Annotated[
    str, Field(description="The id, the name or the directory of a run, or `newest` for the one that started last.")
]
First = Annotated[int, Field(description="The first step.")]
Last = Annotated[int | None, Field(description="The last step; by default, the last one of the run.")]
Names = Annotated[list[str] | None, Field(description="Names, or globs such as `time/*`; all by default.")]
Most = Annotated[int, Field(description="The largest number of lines.", ge=1, le=MOST_LINES)]


class Tools:
    """The tools.

    Args:
        root: The directory of the runs; nothing else is read.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def runs(
        self, text: Annotated[str, Field(description="A text in the project, the name, the id or the path.")] = ""
    ) -> Listing:
        """List the training runs, the most recent first: state, steps, time of a step, and the main metrics."""
        found = [listed(one) for one in runs_below([self._root]) if self._is_inside(Path(one.path))]
        wanted = [one for one in found if text.lower() in f"{one.project} {one.name} {one.id} {one.path}".lower()]
        return Listing(runs=tuple(wanted))

    def status(self, run: Run = NEWEST) -> Status:
        """Say how a run stands: its state, open phases of each rank, the findings with advice, and where time went.

        Begin here when a run is slow, hangs, died, or does not learn.
        """
        return status_of(place_of(self._directory(run)))

    def owes(self, run: Run = NEWEST) -> Owed:
        """Say what a run waits for right now and who owes it: tools, requests, ranks, groups; and what never ends."""
        return owed(place_of(self._directory(run)))

    def why(
        self,
        run: Run = NEWEST,
        first_step: Annotated[int | None, Field(description="The first step; by default, the slow steps.")] = None,
        last_step: Annotated[int | None, Field(description="The last step; by default, the first one.")] = None,
        phase: Annotated[str, Field(description="Explain this phase of the steps, instead of whole steps.")] = "",
    ) -> Why:
        """Explain why steps took their time: the critical path, compared with usual steps, and what would save time."""
        if first_step is None and last_step is not None:
            raise ValueError("last_step needs first_step")
        last_step = first_step if last_step is None else last_step
        steps = None if first_step is None or last_step is None else (first_step, last_step)
        return concluded_reasons(open_run(self._directory(run)), steps, phase)

    def compare(
        self,
        base: Annotated[
            list[str], Field(description="The runs of the base, each as in the other tools.", min_length=1)
        ],
        new: Annotated[list[str], Field(description="The runs to compare with the base.", min_length=1)],
        gates: Annotated[str, Field(description="Limits, such as `throughput:-3%,reward:-0.01,memory:+5%`.")] = "",
        by: Annotated[Literal["step", "tokens"], Field(description="The axis on which runs are aligned.")] = "step",
    ) -> Comparison:
        """Say how runs differ and how sure that is: metrics with intervals, phases, parameters, packages and commit."""
        before, after = ([open_run(self._directory(one)) for one in side] for side in (base, new))
        return concluded_difference(before, after, gates_of(gates), by_tokens=by == "tokens")

    def find(
        self,
        text: Annotated[str, Field(description="A part of a name; case does not matter. Empty for everything.")],
        run: Run = NEWEST,
    ) -> Found:
        """Find findings, metrics, spans, phases and events by a part of their name, with their ranges and times."""
        return found_in(open_run(self._directory(run)), text)

    def rows(
        self, names: Names = None, run: Run = NEWEST, first_step: First = 0, last_step: Last = None, most: Most = 200
    ) -> Lines:
        """Return the values of metrics in steps, reduced over ranks, in the order of the steps."""
        where = _where(named(["name"], names), in_steps((first_step, _LAST if last_step is None else last_step)))
        query = f"SELECT step, name, value, attempt FROM rows {where} ORDER BY step, attempt, part, place"
        return self._lines(run, query, most)

    def spans(
        self,
        names: Names = None,
        run: Run = NEWEST,
        first_step: First = 0,
        last_step: Last = None,
        rank: Annotated[int | None, Field(description="A rank; all by default.")] = None,
        order: Annotated[Literal["time", "longest"], Field(description="By start, or the longest first.")] = "time",
        most: Most = 200,
    ) -> Lines:
        """Return spans of steps: phases of each rank, steps, trajectories and tools, with their times and errors."""
        steps = in_steps((first_step, _LAST if last_step is None else last_step))
        where = _where(named(["name", "phase"], names), steps, "" if rank is None else f"rank = {rank}")
        by = "duration_ns DESC" if order == "longest" else "start_unix_nano"
        columns = "step, role, rank, phase, name, start_unix_nano, duration_ns / 1e9 AS seconds, error, attributes"
        return self._lines(run, f"SELECT {columns} FROM spans {where} ORDER BY {by}", most)

    def sql(
        self,
        query: Annotated[str, Field(description="One query in DuckDB's SQL. It can only read the tables of the run.")],
        run: Run = NEWEST,
        most: Most = 200,
    ) -> msgspec.Raw:
        """Return what a query in DuckDB's SQL finds in the tables of a run."""
        return ask(self._directory(run), query, most)

    def _lines(self, run: str, query: str, most: int) -> Lines:
        return lines_of(open_run(self._directory(run)).sql(f"{query} LIMIT {most + 1}"), most)

    def _directory(self, name: str) -> Path:
        """Return the directory of a run.

        Raises:
            ValueError: There is none, or it is not below the root.
        """
        place = self._root / name
        inside = self._is_inside(place)
        found = directory_of(str(place) if inside and place.is_dir() else name, self._root) if inside else place
        if isinstance(found, str):
            raise ValueError(found)
        if not self._is_inside(found):
            raise ValueError(f"{name} is not below {self._root}: only runs in there can be read")
        return found

    def _is_inside(self, place: Path) -> bool:
        return place.resolve().is_relative_to(self._root)


def _where(*conditions: str) -> str:
    return f"WHERE {' AND '.join(filter(None, conditions))}"
