"""Measures how many of a framework's metric names its dialect knows: `python -m otel_rl.frameworks.drift PATH`.

`PATH` is a run directory, or Python source: a file, or the folder of a package. Names of a run are those of its rows.
Names of a source are its string keys with a slash: `{"actor/loss": …}`, `metrics["actor/loss"] = …`, `update(…)`,
`metrics["actor/loss"].append(…)` and f-strings. Keys without a slash get their prefix elsewhere, so they are not
measured, nor are f-strings without a name of their own. A key with a slash may get a prefix too: it is known if it is
known after a prefix of the dialect. A name is one of

* mapped: a pattern of the dialect gives its meaning;
* declared: `passing` of the dialect gives the reason why it has none, by a pattern that is not a catch-all;
* unknown: all others. A catch-all is a pattern such as `{prefix}/{name}` or `actor/{name}`, with nothing but a
  placeholder after the first component. It matches future names too, so it shows nothing.

It prints the counts, the unknown names by file, and phases without a goodput category. The exit status is 1 if the
known share is below `--at-least`.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from otel_rl import semconv
from otel_rl.recorder.errors.sinks import one_line
from otel_rl.semconv.dialect import OWN, dialect, placeholders
from otel_rl.semconv.frameworks import dialects
from otel_rl.semconv.phase_categories import is_listed
from otel_rl.semconv.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_ROWS, _MANIFEST = "rows.jsonl", "run.json"
_NAME = re.compile(r"[\w.@:{}*<>-]+(/[\w.@:{}*<>-]+)+")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_HOLE = "\0"
"""A replaced value in an f-string."""
_VALUES = ("example", "mean", "1")
"""Values that are tried for each replaced value: text, a statistic and a number."""
_MOST_HOLES = 3
_STATISTICS = (_HOLE, "mean", "max", "min", "std", "sum")
_STORES = ("update", "setdefault", "log", "log_scalar", "add_scalar")
"""Methods whose first argument is a name, or holds names as keys."""
_ADDS = ("append", "extend")
"""Methods of the lists in which values are collected under their names."""
_NO_TESTS = frozenset({"tests", "test", "examples", "docs"})


class Names(NamedTuple):
    """Names, by how much the dialect knows of them."""

    mapped: list[str]
    declared: list[str]
    unknown: list[str]
    uncategorized: list[str]
    """Phases without a goodput category."""

    @property
    def known(self) -> float:
        """The share of names that are mapped or declared; 1 without names."""
        known = len(self.mapped) + len(self.declared)
        return known / (known + len(self.unknown)) if known or self.unknown else 1.0


def sorted_out(names: Iterable[str], framework: str, *, whole: bool = True) -> Names:
    """Return the names by how much the dialect of a framework knows of them, without the names of otel-rl itself.

    Args:
        names: Metric names. Values replaced in an f-string are null characters.
        framework: Name of the dialect.
        whole: If false, the framework may put one of its prefixes before a name.
    """
    sorted_names = Names([], [], [], [])
    for name in sorted(set(names)):
        spelled = list(_spellings(name, framework, whole=whole))
        declared = any(dialect(framework).declares(each) for each in spelled)
        if not declared and all(dialect(OWN).read(each) is not None for each in spelled):
            continue
        readings = [reading for each in spelled if (reading := dialect(framework).read(each)) is not None]
        shown = name.replace(_HOLE, "*")
        if readings:
            sorted_names.mapped.append(shown)
            phases = [dict(reading.attributes).get(semconv.PHASE) for reading in readings]
            is_known = any(phase in (None, "step") or is_listed(str(phase)) for phase in phases)
            if not is_known and _HOLE not in name:
                sorted_names.uncategorized.append(shown)
        elif declared:
            sorted_names.declared.append(shown)
        else:
            sorted_names.unknown.append(shown)
    return sorted_names


def of_run(directory: Path) -> set[str]:
    """Return the metric names in the rows of a run."""
    lines = (directory / _ROWS).read_bytes().splitlines()
    return {name for line in lines for name in msgspec.json.decode(line)["values"]}


def of_source(path: Path) -> dict[str, set[str]]:
    """Return the string keys with a slash in Python source, by file; tests and examples of a folder are left out."""
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    by_file = {}
    for file in files:
        place = file.relative_to(path if path.is_dir() else path.parent)
        if path.is_file() or _NO_TESTS.isdisjoint(place.parts):
            try:
                tree = ast.parse(file.read_bytes())
            except (SyntaxError, ValueError):  # a template, or another version of Python
                continue
            if names := {name for name in _keys(tree) if _is_a_name(name)}:
                by_file[str(place)] = names
    return by_file


def _is_a_name(text: str) -> bool:
    """Return whether a text is a name, with more than its first component or a statistic in the source."""
    first, *others = text.split("/")
    known = _STATISTICS if first == _HOLE else (_HOLE,)
    return _NAME.fullmatch(text.replace(_HOLE, "*")) is not None and not all(part in known for part in others)


def _keys(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        keys: Sequence[ast.expr | None] = ()
        if isinstance(node, ast.Dict):
            keys = node.keys
        elif isinstance(node, ast.DictComp):
            keys = [node.key]
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            keys = list(_subscripts(node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            keys = node.args[:1] if node.func.attr in _STORES else ()
            keys = list(_subscripts(node.func.value)) if node.func.attr in _ADDS else keys
        yield from (text for key in keys if (text := _text(key)))


def _subscripts(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the keys of `values[key]` and `values[key][0]`."""
    while isinstance(node, ast.Subscript):
        yield node.slice
        node = node.value


def _text(key: ast.expr | None) -> str:
    """Return the text of a string or f-string, with null characters for replaced values; else nothing."""
    if isinstance(key, ast.Constant):
        return key.value if isinstance(key.value, str) else ""
    if isinstance(key, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else _HOLE for part in key.values)  # type: ignore[misc]
    if isinstance(key, ast.BinOp) and isinstance(key.op, ast.Add):
        left, right = _text(key.left) or _HOLE, _text(key.right) or _HOLE
        return "" if left == right == _HOLE else left + right
    return ""


def _spellings(name: str, framework: str, *, whole: bool) -> Iterator[str]:
    """Yield a name with values in place of those that an f-string replaces, also after the dialect's prefixes."""
    if name.startswith(_HOLE) and name[1] != "/":  # a variable with a prefix, which may be empty
        yield from _spellings(name[1:], framework, whole=whole)
    parts = name.split(_HOLE)
    if len(parts) > 1 + _MOST_HOLES:
        parts = [*parts[:_MOST_HOLES], _VALUES[0].join(parts[_MOST_HOLES:])]
    for values in product(_VALUES, repeat=len(parts) - 1):
        spelled = parts[0] + "".join(value + part for value, part in zip(values, parts[1:], strict=True))
        yield spelled
        if not whole:
            ending = spelled.partition("/")[2] if name.startswith(f"{_HOLE}/") else spelled
            yield from (prefix + ending for prefix, rest in _endings(framework) if rest.fullmatch(ending))


@cache
def _endings(framework: str) -> list[tuple[str, re.Pattern[str]]]:
    """Return the beginnings of the dialect's patterns, filled with examples, and what the rest of each one matches.

    A rest of placeholders alone is left out, since it would match nearly everything.
    """
    endings = []
    for pattern in (*dialect(framework).patterns, *dialect(framework).declared):
        components = pattern.split("/")
        for length in range(1, len(components)):
            prefix, rest = "/".join(components[:length]), "/".join(components[length:])
            if _PLACEHOLDER.sub("", rest).strip("/"):
                filled = _PLACEHOLDER.sub(lambda match: placeholders()[match[1]].example, prefix)
                literals, names = _PLACEHOLDER.split(rest)[::2], [*_PLACEHOLDER.findall(rest), ""]
                matches = [placeholders()[name].matches if name else "" for name in names]
                regex = "".join(f"{re.escape(a)}(?:{b})" for a, b in zip(literals, matches, strict=True))
                endings.append((f"{filled}/", re.compile(regex)))
    return endings


def _of_manifest(run: Path) -> str | None:
    """Return the dialect in the settings of a run; `None` if it is detected, or if this is not a run."""
    try:
        chosen = msgspec.json.decode((run / _MANIFEST).read_bytes())["dialect"]
    except (OSError, msgspec.DecodeError, KeyError):
        return None
    return chosen if chosen in dialects() else None


def _detected(names: Iterable[str]) -> str | None:
    vocabulary = Vocabulary("auto")
    vocabulary.learn(names)
    return vocabulary.chosen


def main(arguments: Sequence[str]) -> str | None:
    """Print what a dialect knows of the names; return an error, or `None` if it knows enough of them."""
    parser = argparse.ArgumentParser(
        prog="python -m otel_rl.frameworks.drift",
        description="Measure how many metric names of a framework's source, or of a run, its dialect knows.",
    )
    parser.add_argument("path", type=Path, help="a run directory, a Python file, or the folder of a package")
    parser.add_argument("--dialect", choices=dialects(), help="the run's by default, else detected from the names")
    parser.add_argument("--at-least", type=float, default=100, metavar="PERCENT", help="known share; 100 by default")
    given = parser.parse_args(arguments)
    path: Path = given.path
    if not path.exists():
        parser.error(f"no such file or directory: {path}")
    is_run = (path / _ROWS).is_file()
    places = {_ROWS: of_run(path)} if is_run else of_source(path)
    names = {name for found in places.values() for name in found}
    framework = given.dialect or _of_manifest(path) or _detected(names)
    if framework is None:
        parser.error(f"cannot detect the dialect of {path}: use --dialect {{{','.join(dialects())}}}")
    found = sorted_out(names, framework, whole=is_run)
    write = sys.stdout.write
    write(f"{path}: {len(names)} names, dialect {framework}\n")
    for kind in ("mapped", "declared", "unknown"):
        write(f"{len(getattr(found, kind)):>6} {kind}\n")
    for place, names_of_place in places.items():
        of_file = sorted_out(names_of_place, framework, whole=is_run)
        for title, listed in (
            ("unknown", of_file.unknown),
            ("phase without a goodput category", of_file.uncategorized),
        ):
            write("".join(f"{place}: {title}: {one_line(name)}\n" for name in listed))
    if 100 * found.known < given.at_least:
        return f"{100 * found.known:.1f} % of the names are known, less than {given.at_least:g} %"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
