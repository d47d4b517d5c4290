"""Which runs the list shows, in which order, with which further columns: `GET found`, in the language of `ls`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.look.insight.run_groups import groups_of
from otel_rl.look.insight.run_values import RunValues, chosen
from otel_rl.look.insight.selection import SelectionError, Value, column_of
from otel_rl.recorder.otlp.answers import MALFORMED, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_rl.look.insight import Facts
    from otel_rl.recorder.archive.present import RunPresent

_MOST_COLUMNS = 20


class ChosenGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that share a value, in the words of `ls --group`."""

    label: str  # the value
    keys: tuple[str, ...]  # their keys, in order
    spent: str  # what they cost together
    best: tuple[str, ...]  # the key of the best run of each project, where that can be said
    sentences: tuple[str, ...]  # which one is the best, by what, and which seem better and are not


class ChosenRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that a search has found."""

    keys: tuple[str, ...] = ()  # their keys, in order
    values: dict[str, tuple[Value, ...]] = {}  # by key, what it has in the further columns; `None` without a value
    groups: tuple[ChosenGroup, ...] = ()  # their groups, or one of all without any
    refused: str = ""  # why the search cannot be read; empty if it can


class RunChoice:
    """Chooses runs; their parameters are read once for each state of a run."""

    def __init__(self) -> None:
        self._known: dict[str, RunValues] = {}

    def found(
        self,
        runs: Mapping[str, tuple[RunPresent, Facts | None]],
        at: int,
        find: str = "",
        *,
        sort: str = "",
        reverse: bool = False,
        columns: Sequence[str] = (),
        group: str = "",
        with_archived: bool = False,
    ) -> ChosenRuns:
        """Return the runs that a text finds.

        Args:
            runs: The runs and their facts, as far as they are known, by their keys.
            at: The time, in Unix nanoseconds.
            find: The text, as of `otel-rl ls --where`.
            sort: The column by which they are sorted, as of `--sort`; as they are without one.
            reverse: If true, in the other order.
            columns: Further columns, as of `--columns`.
            group: The value that the runs of a group share, as of `--group`; without one, all are one group.
            with_archived: Whether archived runs are shown, as with `--all`.

        Raises:
            Refusal: There are too many columns.
        """
        if len(columns) > _MOST_COLUMNS:
            raise Refusal(MALFORMED, f"at most {_MOST_COLUMNS} columns are shown")
        self._known = {key: self._values(key, *known, at) for key, known in runs.items()}
        try:
            order = f"-{sort}" if sort and reverse else sort
            some, shown, _ = chosen(self._known.values(), find, order, columns, with_archived=with_archived)
            keys = {run.run.path: key for key, run in self._known.items()}
            values = {keys[run.run.path]: tuple(map(run.value, shown)) for run in some} if shown else {}
            groups = groups_of(some, column_of(group) if group else None, lambda run: runs[keys[run.run.path]][1])
        except SelectionError as error:
            return ChosenRuns(refused=str(error))
        return ChosenRuns(
            keys=tuple(keys[run.run.path] for run in some),
            values=values,
            groups=tuple(
                ChosenGroup(
                    label=group.label,
                    keys=tuple(keys[path] for path in group.runs),
                    spent=group.spent,
                    best=tuple(keys[path] for path in group.best),
                    sentences=group.sentences,
                )
                for group in groups
            ),
        )

    def _values(self, key: str, run: RunPresent, facts: Facts | None, at: int) -> RunValues:
        known = self._known.get(key)
        is_same = known is not None and known.run is run and known.known_facts is facts
        return known if known is not None and is_same else RunValues(run, at, facts=facts)
