"""Finds the registered analyses, and passes on what they take and give. One that raises does not stop the others."""

from __future__ import annotations

import importlib.metadata
from collections import defaultdict
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from otel_rl import semconv
from otel_rl.analysis import ENTRY_POINT_GROUP, Analysis, Basis, Conclusion, Point
from otel_rl.export import Item
from otel_rl.recorder.errors.sinks import log_of
from otel_rl.recorder.settings.settings import AgentSettings
from otel_rl.semconv import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from otel_rl.analysis import ClosedStep, Handler, Journal, LoopTurn, Measurement, Probe, Record
    from otel_rl.export import AttributeValue, Event
    from otel_rl.recorder.agent.steps.state import State
    from otel_rl.recorder.delivery.quarantine import Quarantine
    from otel_rl.semconv.vocabulary import Vocabulary

logger = log_of(__name__)
_ITEMS: tuple[type, ...] = get_args(Item)


class Analyses:
    """The analyses of an agent, by name. The quarantine counts each call that raises."""

    def __init__(
        self,
        factories: Mapping[str, Callable[[Basis], Analysis]],
        basis: Basis,
        quarantine: Quarantine,
        saved: Mapping[str, msgspec.Raw],
    ) -> None:
        self.basis, self._quarantine = basis, quarantine
        self.by_name: dict[str, Analysis] = {}
        self._handlers: defaultdict[type, list[tuple[str, Handler]]] = defaultdict(list)
        for name in sorted(factories):
            with quarantine.guard("start of an analysis", name):
                analysis = factories[name](basis)
                if not isinstance(analysis, Analysis):
                    raise TypeError(f"{analysis!r} is not an otel_rl.analysis.Analysis")
                handlers = [*analysis.handlers().items()]
                self.by_name[name] = analysis
                for kind, handler in handlers:
                    self._handlers[kind].append((name, handler))
        for name, raw in saved.items():
            if name in self.by_name:
                with quarantine.guard("restoring of an analysis", name, bytes(raw)):
                    self.by_name[name].restore(bytes(raw))

    @property
    def urgent(self) -> tuple[object, ...]:
        """Changes when `now.json` has to be written at once."""
        return tuple(one.urgent for one in self.by_name.values())

    def take(self, name: str, journal: Journal, record: Record) -> list[Item]:
        """Pass on a record of a process, or a moment of it; return the items that this completes."""
        handlers = self._handlers.get(type(record))
        if not handlers:
            return []
        items: list[Item] = []
        for analysis, handle in handlers:
            try:
                if made := handle(name, journal, record):
                    items += _valid(made)
            except Exception as error:
                self._quarantine.put(f"analysis {analysis}", name, record, error)
        return items

    def attributes(self, name: str, event: Event) -> dict[str, AttributeValue]:
        """Return the attributes that analyses add to an event of a process."""
        return {key: value for _, more in self._ask("attributes", dict, name, event) for key, value in more.items()}

    def close(self, step: ClosedStep, values: Mapping[str, float]) -> Conclusion:
        """Return what all of them give at the close of a step."""
        columns: dict[str, float] = {}
        items: list[Item] = []
        for _, conclusion in self._ask("close", _numbers_and_items, step, values):
            columns |= {name: value for name, value in conclusion.values.items() if name not in columns}
            items += conclusion.items
        return Conclusion(columns, items)

    def see(self, items: Sequence[Item]) -> list[Item]:
        """Return what they make of items that were made."""
        return [item for _, made in self._ask("see", _valid, items) for item in made] if items else []

    def measured(self, measurements: Sequence[Measurement]) -> None:
        """Pass on measurements of this machine."""
        self._ask("measured", lambda nothing: nothing, measurements)

    def tick(self, turn: LoopTurn) -> list[Item]:
        """Return what they find in the processes that live, and what they make of that."""
        items = [item for _, made in self._ask("tick", _valid, turn) for item in made]
        return items + self.see(items)

    def probes(self) -> list[Probe]:
        """Return what the agent has to measure for them."""
        return [probe for _, probes in self._ask("probes", list) for probe in probes]

    def points(self, *, of_run: bool) -> Iterator[tuple[str, list[Point]]]:
        """Yield the points of each, those about the run only on demand."""
        for name, points in self._ask("points", list):
            if of_run or self.by_name[name].scope == "machine":
                yield name, [_known(point) for point in points]

    def now(self) -> dict[str, Any]:
        """Return what they show in `now.json`; one that JSON cannot hold must not hide the rest."""
        parts = self._ask("now", lambda part: (part, msgspec.json.encode(part))[0])
        return {key: value for _, part in parts for key, value in part.items()}

    def snapshots(self) -> dict[str, msgspec.Raw]:
        """Return the parts of the checkpoint by name."""
        encoded = self._ask("snapshot", lambda part: None if part is None else msgspec.msgpack.encode(part))
        return {name: msgspec.Raw(part) for name, part in encoded if part is not None}

    def _ask(self, method: str, convert: Callable[[Any], Any], *arguments: object) -> list[tuple[str, Any]]:
        """Call a method of those that define it; `convert` reads the result, which may raise while it is read."""
        answers: list[tuple[str, Any]] = []
        for name, analysis in self.by_name.items():
            if getattr(type(analysis), method) is not getattr(Analysis, method):
                try:
                    answers.append((name, convert(getattr(analysis, method)(*arguments))))
                except Exception as error:
                    self._quarantine.put(f"analysis {name}", method, None, error)
        return answers


def _numbers_and_items(conclusion: Conclusion) -> Conclusion:
    """Return a conclusion whose values the row can hold."""
    # An item that can be written and not read again would make its batch of the outbox a damaged one for exporters.
    values = msgspec.msgpack.decode(msgspec.msgpack.encode(conclusion.values), type=dict[str, int | float])
    return Conclusion(values, _valid(conclusion.items))


def _valid(items: Iterable[Item]) -> list[Item]:
    """Return items that can be written and read again.

    Raises:
        TypeError, OverflowError, msgspec.ValidationError: One of them cannot.
    """
    valid: list[Item] = []
    for item in items:
        if not isinstance(item, _ITEMS):
            raise TypeError(f"{item!r} is not an item of otel_rl.export")
        msgspec.msgpack.decode(msgspec.msgpack.encode(item), type=type(item))
        valid.append(item)
    return valid


def _known(point: Point) -> Point:
    """Return a point whose metric the registry has: a third party's is one of the metrics that no dialect knows."""
    if point.metric in registry.metrics():
        return point
    attributes = sorted((*point.attributes, (semconv.METRIC_NAME, point.metric)))
    return Point(semconv.METRIC_METRIC, point.value, tuple(attributes))


def none(state: State, vocabulary: Vocabulary, quarantine: Quarantine) -> Analyses:
    """Return no analyses, for a reducer that makes rows alone."""
    return Analyses({}, Basis(state=state, vocabulary=vocabulary, settings=AgentSettings()), quarantine, {})


def registered(quarantine: Quarantine) -> dict[str, Callable[[Basis], Analysis]]:
    """Return the classes of all registered analyses that are installed, by name."""
    factories: dict[str, Callable[[Basis], Analysis]] = {}
    for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        try:
            factories[point.name] = point.load()
        except Exception as error:  # its module may raise anything
            if isinstance(error, ModuleNotFoundError) and error.name and point.module.startswith(error.name):
                logger.info("the analysis %s is not installed", point.name)  # somebody deleted it on purpose
            else:
                quarantine.put("loading of an analysis", point.name, None, error)
    return factories
