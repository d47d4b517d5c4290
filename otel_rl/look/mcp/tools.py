"""The tools of a coding agent: each reads runs below one directory, and returns facts.

Their docstrings and the descriptions of their arguments are what the agent reads.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from pydantic import Field

from otel_rl.cli.options import StepInterval, steps_in
from otel_rl.look.insight.compare.columns import compare_each
from otel_rl.look.insight.compare.comparison import Comparison
from otel_rl.look.insight.compare.conclude import compare as concluded_difference
from otel_rl.look.insight.compare.gates import gates_of
from otel_rl.look.insight.run_values import RunValues, chosen
from otel_rl.look.insight.why.answer import Why
from otel_rl.look.insight.why.of_run import why as concluded_reasons
from otel_rl.look.mcp.lines import MOST_LINES, Lines, lines_of
from otel_rl.look.mcp.query import ask
from otel_rl.look.mcp.search import Matches
from otel_rl.look.mcp.search import find as found_in
from otel_rl.look.reader.runs import in_steps, named, open_run
from otel_rl.look.terminal.listing import Listing, agreeing, facts_by_path, listed, runs_below
from otel_rl.look.terminal.show import RunStatus
from otel_rl.look.terminal.show import status as status_of
from otel_rl.recorder.archive.runs import NEWEST, directory_of, place_of

Run = Annotated[
    str, Field(description="The id, the name or the directory of a run, or `newest` for the one that started last.")
]
Steps = Annotated[
    str, Field(description="Steps as `A:B`, both included, `A:`, `:B`, or one step `A`; all if it is empty.")
]
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
        self,
        text: Annotated[
            str,
            Field(
                description="Conditions, all of which hold: a text in the project, name, id, tags, notes or path;"
                " `state:hung`, `project:math`, `tag:good`; `lr>1e-6`, `reward:best>0.5`."
            ),
        ] = "",
        *,
        archived: Annotated[bool, Field(description="If true, archived runs are listed too.")] = False,
    ) -> Listing:
        """List the training runs, the most recent first: verdict, state, steps, and the main metrics."""
        at = time.time_ns()
        every = [run for run in runs_below([self._root], at) if self._is_inside(Path(run.path))]
        some = chosen((RunValues(run, at) for run in every), text, with_archived=archived).runs
        facts = facts_by_path(some)
        runs = agreeing((values.run for values in some), facts, at)
        return Listing(runs=tuple(listed(run, facts.get(run.path)) for run in runs))

    def status(self, run: Run = NEWEST) -> RunStatus:
        """Say how a run stands: its state, open phases of each rank, the findings with advice, and where time went.

        Begin here when a run is slow, hangs, died, or does not learn.
        """
        return status_of(place_of(self._directory(run)))

    def why(
        self,
        run: Run = NEWEST,
        steps: Steps = "",
        phase: Annotated[str, Field(description="Explain this phase of the steps, instead of whole steps.")] = "",
    ) -> Why:
        """Say why a run is slow, stuck or dead: who is awaited, how it died, and the critical path of slow steps.

        With steps or a phase, it says why these took their time, compared with usual steps, and what would save time.
        """
        return concluded_reasons(open_run(self._directory(run)), _range(steps), phase)

    owes = why  # an older name, which is not listed

    def compare(
        self,
        base: Annotated[
            list[str], Field(description="The runs of the base, each as in the other tools.", min_length=1)
        ],
        new: Annotated[
            list[str],
            Field(
                description="The runs to compare with the base: a column each, or one side if the base has several.",
                min_length=1,
            ),
        ],
        gates: Annotated[str, Field(description="Limits, such as `throughput:-3%,reward:-0.01,memory:+5%`.")] = "",
        steps: Steps = "",
        by: Annotated[Literal["step", "tokens"], Field(description="The axis on which runs are aligned.")] = "step",
    ) -> Comparison:
        """Say how runs differ and how sure that is: metrics with intervals, phases, parameters, packages and commit."""
        before, after = ([open_run(self._directory(name)) for name in side] for side in (base, new))
        if len(before) == 1:
            return compare_each(before[0], after, gates_of(gates), _range(steps), by_tokens=by == "tokens")
        return concluded_difference(before, after, gates_of(gates), _range(steps), by_tokens=by == "tokens")

    def find(
        self,
        text: Annotated[str, Field(description="A part of a name; case does not matter. Empty for everything.")],
        run: Run = NEWEST,
    ) -> Matches:
        """Find findings, metrics, spans, phases and events by a part of their name, with their ranges and times."""
        return found_in(open_run(self._directory(run)), text)

    def rows(self, names: Names = None, run: Run = NEWEST, steps: Steps = "", most: Most = 200) -> Lines:
        """Return the values of metrics in steps, reduced over ranks, in the order of the steps."""
        where = _where(named(["name"], names), in_steps(_range(steps) or StepInterval()))
        query = f"SELECT step, name, value, attempt FROM rows {where} ORDER BY step, attempt, part, place"
        return self._lines(run, query, most)

    def spans(
        self,
        names: Names = None,
        run: Run = NEWEST,
        steps: Steps = "",
        rank: Annotated[int | None, Field(description="A rank; all by default.")] = None,
        order: Annotated[Literal["time", "longest"], Field(description="By start, or the longest first.")] = "time",
        most: Most = 200,
    ) -> Lines:
        """Return spans of steps: phases of each rank, steps, trajectories and tools, with their times and errors."""
        of_steps = in_steps(_range(steps) or StepInterval())
        where = _where(named(["name", "phase"], names), of_steps, "" if rank is None else f"rank = {rank}")
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
        directory = directory_of(str(place) if inside and place.is_dir() else name, self._root) if inside else place
        if isinstance(directory, str):
            raise ValueError(directory)
        # Again: an id or a name can be that of a run to which a link below the root leads (look/mcp/test_server.py).
        if not self._is_inside(directory):
            raise ValueError(f"{name} is not below {self._root}: only runs in there can be read")
        return directory

    def _is_inside(self, place: Path) -> bool:
        return place.resolve().is_relative_to(self._root)


def _range(steps: str) -> StepInterval | None:
    return steps_in(steps) if steps else None


def _where(*conditions: str) -> str:
    return f"WHERE {' AND '.join(filter(None, conditions))}" if any(conditions) else ""
