"""Which runs the list shows, in which order, with which further columns: `GET found`, in the language of `ls`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.look.insight.run_values import RunValues, chosen
from otel_rl.look.insight.selection import SelectionError, Value
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
            order = f"-{sort}" if sort and reverse else sort
            some, shown, _ = chosen(self._known.values(), find, order, columns, with_archived=with_archived)
            keys = {id(run): key for key, run in self._known.items()}
            values = {keys[id(run)]: tuple(map(run.value, shown)) for run in some} if shown else {}
        except SelectionError as error:
            return ChosenRuns(refused=str(error))
        return ChosenRuns(keys=tuple(keys[id(run)] for run in some), values=values)

    def _values(self, key: str, run: RunPresent, at: int) -> RunValues:
        known = self._known.get(key)
        return known if known is not None and known.run is run else RunValues(run, at)
