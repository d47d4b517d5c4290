"""Dialects: the names of metrics and phases in each framework, and their meanings.

A dialect is a table of patterns such as `critic/score/{statistic}`. A placeholder matches a part of the name, which
becomes an attribute; `placeholders.yaml` defines them. A part in brackets is optional, as in
`rewards/[train/]{statistic}`; the preferred name is the one without it. A dialect may have prefixes for all patterns
but those that begin with a slash. The same table converts a metric with attributes back to the framework's spelling.
"""

from __future__ import annotations

import re
from functools import cache, cached_property, lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from otel_rl import semconv
from otel_rl.semconv import registry
from otel_rl.semconv.frameworks import package_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OWN = "otel_rl"
"""The dialect of values that otel-rl derives; it is used in addition to the framework's."""
AttributeMap = dict[str, str | int]
Axis = Literal["rollout", "optimizer", "tokens", "time"]
"""The second axes, over which values can be drawn: batches of prompts, updates, trained tokens, seconds."""

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_OPTIONAL = re.compile(r"\[([^\]]*)\]")
_CATCH_ALL = re.compile(r"([^/]*/)?\{\w+\}")
"""Matches patterns that have only a placeholder after their first component, or no other component."""
_MOST_REMEMBERED = 20_000
_FACTORS = {  # between UCUM codes
    ("GiBy", "By"): 2.0**30,
    ("MiBy", "By"): 2.0**20,
    ("KiBy", "By"): 2.0**10,
    ("GBy", "By"): 1e9,
    ("MBy", "By"): 1e6,
    ("ms", "s"): 1e-3,
    ("us", "s"): 1e-6,
    ("min", "s"): 60.0,
    ("h", "s"): 3600.0,
    ("%", "1"): 1e-2,
    ("{TFLOP}", "{FLOP}"): 1e12,
    ("{TFLOP}/s", "{FLOP}/s"): 1e12,
    ("{GFLOP}/s", "{FLOP}/s"): 1e9,
    ("s/{token}", "s"): 1.0,
    ("ms/{token}", "s"): 1e-3,
    ("us/{token}", "s"): 1e-6,
}
_DIMENSIONLESS = frozenset({"", "1", "nat"})


class Placeholder(msgspec.Struct, frozen=True):
    """A placeholder in patterns: the attribute that it becomes, and the regular expression that it matches."""

    attribute: str
    matches: str = "[^/]+"
    integer: bool = False
    example: str = "example"


class Meaning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The meaning of a pattern."""

    metric: str  # the name of the metric in the registry
    attributes: AttributeMap = {}  # attributes in addition to those of the placeholders
    unit: str = ""  # the unit of the framework, if it differs from the registry's
    reduce: str = ""  # the reduction over ranks, if it differs from the registry's


class Reading(msgspec.Struct, frozen=True):
    """The meaning of a name."""

    metric: str  # the name of the metric in the registry
    attributes: tuple[tuple[str, str | int], ...] = ()  # its attributes, sorted by name
    factor: float = 1.0  # the factor that converts the value to the registry's unit
    reduce: str = ""  # the reduction over ranks; empty if neither the dialect nor the registry defines it
    over_steps: str = ""  # the reduction over steps, if the dialect has another one
    alias: int = 0  # the index of the name in `Dialect.spellings`


class DialectFile(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a dialect's file."""

    framework: dict[str, Any] = {}  # the fields of `Framework`, and what tables of the docs show
    metrics: dict[str, str | Meaning] = {}  # patterns, with their meanings
    prefixes: tuple[str, ...] = ("",)
    phases: dict[str, str] = {}  # otel-rl's names of phases, by the framework's
    passing: dict[str, str] = {}  # patterns of names without a meaning, with the reason
    so_far: tuple[str, ...] = ()  # patterns of those that count since the start, unless their shape says it
    over_steps: dict[str, str] = {}  # how a framework reduces statistics over steps, such as `max: mean`
    axes: dict[Axis, str] = {}  # metrics over which others can be drawn
    hardware: str = "hardware"  # the first part of the names of hardware values in trackers
    phase_memory: bool = False  # if true, the memory of phases is among the usual metrics


class _PatternRule:
    """A pattern with one prefix, for both directions."""

    def __init__(self, pattern: str, entry: Meaning, phases: Mapping[str, str]) -> None:
        self.pattern = pattern
        self.entry = entry
        self.names: list[str] = _PLACEHOLDER.findall(pattern)
        self._literals: list[str] = _PLACEHOLDER.split(pattern)[::2]
        self.begins, self.ends = self._literals[0], self._literals[-1]
        self.literal_length = sum(map(len, self._literals))
        self._phases = phases
        self._phase_names = {phase: name for name, phase in reversed(list(phases.items()))}

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The compiled pattern; few of the 2,400 are ever needed, and all of them take an agent 0.1 s at its start."""
        known = placeholders()
        groups = [f"(?P<{name}>{known[name].matches})" for name in self.names]
        parts = [re.escape(literal) for literal in self._literals]
        return re.compile("".join(a + b for a, b in zip(parts, [*groups, ""], strict=True)))

    def read(self, name: str) -> AttributeMap | None:
        """Return the attributes in `name`; `None` if the rule does not match."""
        match = self.regex.fullmatch(name)
        if match is None:
            return None
        attributes = dict(self.entry.attributes)
        for placeholder, text in match.groupdict().items():
            known = placeholders()[placeholder]
            value = self._phases.get(text, text) if placeholder == "phase" else text
            attributes[known.attribute] = int(value) if known.integer else value
        return attributes

    def spell(self, attributes: Mapping[str, str | int]) -> str | None:
        """Return the name with exactly these attributes; `None` if the rule cannot express them."""
        texts: dict[str, str] = {}
        for placeholder in self.names:
            value = attributes.get(placeholders()[placeholder].attribute)
            if value is None:
                return None
            text = str(value)
            texts[placeholder] = self._phase_names.get(text, text) if placeholder == "phase" else text
        name = _PLACEHOLDER.sub(lambda match: texts[match[1]], self.pattern)
        return name if self.read(name) == attributes else None


class Dialect:
    """The names of metrics and phases in one framework.

    Attributes:
        phases: The names of otel-rl's phases, by the framework's names.
        patterns: Its patterns, each with and without its optional parts.
        read: Returns the meaning of a name; `None` if the dialect does not have it.
        declared: Patterns of names without a meaning, except catch-alls such as `actor/{name}`.
    """

    def __init__(self, name: str, file: DialectFile) -> None:
        self.name = name
        self.phases = file.phases
        self._passing = [
            (_PatternRule(full, Meaning(""), {}), reason)
            for pattern, reason in file.passing.items()
            for full in _in_full(pattern)
        ]
        self._so_far = [_PatternRule(full, Meaning(""), {}) for pattern in file.so_far for full in _in_full(pattern)]
        self._over_steps = file.over_steps
        entries = {pattern: Meaning(e) if isinstance(e, str) else e for pattern, e in file.metrics.items()}
        rules = [
            _PatternRule(full, entry, file.phases)
            for pattern, entry in entries.items()
            for full in _in_full(pattern, file.prefixes)
        ]
        self.patterns = tuple(rule.pattern for rule in rules)
        self.declared = tuple(rule.pattern for rule, _ in self._passing if not _CATCH_ALL.fullmatch(rule.pattern))
        self._exact = {rule.pattern: rule for rule in rules if not rule.names}
        # A rule with more literal characters is more specific, so it comes first.
        self._patterns = sorted((r for r in rules if r.names), key=lambda r: (-r.literal_length, len(r.names)))
        self._by_metric: dict[str, list[_PatternRule]] = {}
        for rule in rules:
            self._by_metric.setdefault(rule.entry.metric, []).append(rule)
        self.read = lru_cache(_MOST_REMEMBERED)(self._reading)

    def pattern(self, name: str) -> str | None:
        """Return the pattern that matches a name."""
        match = self._first_rule(name)
        return None if match is None else match[0].pattern

    def spellings(self, metric: str, attributes: Mapping[str, str | int]) -> list[str]:
        """Return the names of a metric with exactly these attributes, the preferred one first."""
        names = (rule.spell(attributes) for rule in self._by_metric.get(metric, ()))
        return [name for name in dict.fromkeys(names) if name is not None and self._is_first(name, metric, attributes)]

    def passes(self, name: str) -> str | None:
        """Return the reason why a name is not translated, if the dialect has one."""
        return next((reason for rule, reason in self._passing if rule.regex.fullmatch(name)), None)

    def declares(self, name: str) -> bool:
        """Return whether a name passes by a pattern that is not a catch-all, such as `actor/{name}`."""
        return any(rule.pattern in self.declared and rule.regex.fullmatch(name) for rule, _ in self._passing)

    def is_so_far(self, name: str) -> bool:
        """Return whether a name without a meaning counts since the start."""
        return any(rule.regex.fullmatch(name) for rule in self._so_far)

    def _first_rule(self, name: str) -> tuple[_PatternRule, AttributeMap] | None:
        exact = self._exact.get(name)
        for rule in [exact] if exact is not None else self._patterns:
            if name.startswith(rule.begins) and name.endswith(rule.ends):
                attributes = rule.read(name)
                if attributes is not None:
                    return rule, attributes
        return None

    def _is_first(self, name: str, metric: str, attributes: Mapping[str, str | int]) -> bool:
        match = self._first_rule(name)
        return match is not None and match[0].entry.metric == metric and match[1] == attributes

    def _reading(self, name: str) -> Reading | None:
        match = self._first_rule(name)
        if match is None:
            return None
        rule, attributes = match
        names = self.spellings(rule.entry.metric, attributes)
        if name not in names:  # such as `timing/generate`, if the phase is logged as `timing/gen`
            return None
        metric = registry.metrics()[rule.entry.metric]
        reduce = rule.entry.reduce or _reducer(attributes) or metric.reduce
        return Reading(
            metric=rule.entry.metric,
            attributes=tuple(sorted(attributes.items())),
            factor=factor(rule.entry.unit, metric.unit) if rule.entry.unit else 1.0,
            reduce=reduce,
            over_steps=self._over_steps.get(reduce, ""),
            alias=names.index(name),
        )


def _reducer(attributes: Mapping[str, str | int]) -> str:
    """Return the reduction over ranks for names that contain a statistic; empty for others."""
    statistic = attributes.get(semconv.STATISTIC)
    return str(statistic) if statistic in ("max", "min", "sum") else ""


def factor(given: str, wanted: str) -> float:
    """Return the factor that converts a number from the unit `given` to `wanted`.

    Raises:
        ValueError: The conversion is unknown, or impossible.
    """
    if given == wanted or _DIMENSIONLESS.issuperset((given, wanted)):
        return 1.0
    if (given, wanted) not in _FACTORS:
        raise ValueError(f"unknown conversion from {given!r} to {wanted!r}")
    return _FACTORS[given, wanted]


def _in_full(pattern: str, prefixes: Iterable[str] = ("",)) -> list[str]:
    """Return a pattern with each prefix, with and without its optional parts; after a slash it has no prefix."""
    named = [pattern[1:]] if pattern.startswith("/") else [prefix + pattern for prefix in prefixes]
    return list(dict.fromkeys(_OPTIONAL.sub(kept, name) for name in named for kept in ("", r"\1")))


@cache
def placeholders() -> dict[str, Placeholder]:
    """Return the placeholders by name."""
    return msgspec.yaml.decode(registry.content("placeholders.yaml"), type=dict[str, Placeholder])


@cache
def dialect(name: str) -> Dialect:
    """Return the dialect of this name. It knows nothing if no installed package has it."""
    return Dialect(name, dialect_file(name))


@cache
def dialect_file(name: str) -> DialectFile:
    """Return the content of a dialect's file; an empty one if no installed package has it."""
    if name == OWN:
        return parse(registry.content(f"{OWN}.yaml"))
    package = package_of(name)
    return parse(resources.files(package).joinpath(f"{name}.yaml").read_bytes()) if package else DialectFile()


def parse(content: bytes) -> DialectFile:
    """Decode the file of a dialect.

    Raises:
        msgspec.ValidationError: A field is unknown, or has another type.
    """
    return msgspec.yaml.decode(content, type=DialectFile)
