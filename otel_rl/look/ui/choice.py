"""Which runs the list shows, in which order, with which further columns: `GET found`, in the language of `ls`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.look.insight.run_values import RunValues, in_order
from otel_rl.look.insight.selection import Value, column_of, selection_of
from otel_rl.recorder.otlp.answers import MALFORMED, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.recorder.archive.present import RunPresent

_MOST_COLUMNS = 20


class ChosenRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that a search has found."""

    keys: tuple[str, ...] = ()  # their keys, in order
    values: dict[str, tuple[Value, ...]] = {}  # by key, what it has in the further columns; `None` without a value
    refused: str = ""  # why the search cannot be read; empty if it can


class RunChoice:
    """Chooses runs; their parameters are read once for each state of a run."""

    def __init__(self) -> None:
        self._known: dict[str, RunValues] = {}

    def found(
        self,
        runs: Mapping[str, RunPresent],
        at: int,
        find: str = "",
        *,
        sort: str = "",
        reverse: bool = False,
        columns: Sequence[str] = (),
        with_archived: bool = False,
    ) -> ChosenRuns:
        """Return the runs that a text finds.

        Args:
            runs: The runs by their keys.
            at: The time, in Unix nanoseconds.
            find: The text, as of `otel-rl ls --where`.
            sort: The column by which they are sorted, as of `--sort`; as they are without one.
            reverse: If true, in the other order.
            columns: Further columns, as of `--columns`.
            with_archived: Whether archived runs are shown, as with `--all`.

        Raises:
            Refusal: There are too many columns.
        """
        if len(columns) > _MOST_COLUMNS:
            raise Refusal(MALFORMED, f"at most {_MOST_COLUMNS} columns are shown")
        self._known = {key: self._values(key, run, at) for key, run in runs.items()}
        try:
            selection, shown = selection_of(find), [column_of(column) for column in columns]
            some = {
                key: run
                for key, run in self._known.items()
                if (with_archived or not run.run.marks.archived) and selection.admits(run.texts, run.value)
            }
            keys = {id(run): key for key, run in some.items()}
            ordered = in_order([*some.values()], column_of(sort), reverse=reverse) if sort else [*some.values()]
            values = {key: tuple(run.value(column) for column in shown) for key, run in some.items()} if shown else {}
        except ValueError as error:
            return ChosenRuns(refused=str(error))
        return ChosenRuns(keys=tuple(keys[id(run)] for run in ordered), values=values)

    def _values(self, key: str, run: RunPresent, at: int) -> RunValues:
        known = self._known.get(key)
        return known if known is not None and known.run is run else RunValues(run, at)
