"""The options that several verbs have, each with one name for one idea, and the names that they had before."""

from __future__ import annotations

import math
import re
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from click.parser import _OptionParser

_STEPS = re.compile(r"(\d*)(:?)(\d*)")
_LAST = 1 << 62


class StepInterval(NamedTuple):
    """The first and the last step of a range."""

    first: int = 0  # the first step
    last: int = _LAST  # the last step; larger than any if the range has no end


def steps_in(text: str) -> StepInterval:
    """Return the range of steps in a text: `A:B`, both included, `A:`, `:B`, or one step `A`.

    Raises:
        ValueError: The text is another one, or the first step is behind the last one.
    """
    match = _STEPS.fullmatch(text.strip())
    if match is None or not (match[1] or match[3]):
        raise ValueError(f"{text!r} is not a range of steps: give A:B, A:, :B, or one step A")
    first = int(match[1] or 0)
    steps = StepInterval(first, int(match[3] or _LAST) if match[2] else first)
    if steps.first > steps.last:
        raise ValueError(f"the first step, {steps.first}, is behind the last one, {steps.last}")
    return steps


class StepsType(click.ParamType):  # type: ignore[type-arg] # generic for type checkers, since click 8.4
    """A range of steps, as `steps_in` reads it."""

    name = "steps"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> StepInterval:
        """Return the range."""
        try:
            return value if isinstance(value, StepInterval) else steps_in(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class PriceType(click.FloatRange):
    """A price: a finite number above 0."""

    def __init__(self) -> None:
        super().__init__(0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the price."""
        price = float(super().convert(value, param, ctx))
        return price if math.isfinite(price) else self.fail(f"{value} is not a finite number.", param, ctx)


class RenamedOption(click.Option):
    """An option that still has names of earlier versions, which help does not show.

    Args:
        old: The earlier names.
        attributes: Those of click.
    """

    def __init__(self, *args: Any, old: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._old = [*old]

    def add_to_parser(self, parser: _OptionParser, ctx: click.Context) -> None:
        """Let the parser know the earlier names too."""
        shown, self.opts = self.opts, [*self.opts, *self._old]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


def takes_steps(
    text: str, *, old: Sequence[str] = (), old_ends: tuple[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb the option `--steps`, as the keyword `steps`, which is `None` without it.

    Args:
        text: Its help.
        old: Earlier names of an option for one step.
        old_ends: Earlier names of two options for the first and the last step.
    """
    text = f"{text} Both ends are included; one step, A: and :B work too."

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.option("--steps", cls=RenamedOption, old=old, type=StepsType(), metavar="A:B", help=text)
        @wraps(command)
        def shown(*args: Any, steps: StepInterval | None, **options: Any) -> None:
            first, last = options.pop("first_step", None), options.pop("last_step", None)
            if first is not None or last is not None:
                ends = f"{'' if first is None else first}:{'' if last is None else last}"
                steps = StepsType().convert(ends, None, None)
            command(*args, steps=steps, **options)

        for name, end in zip(("first_step", "last_step"), old_ends or (), strict=False):
            shown = click.option(end, name, type=int, hidden=True)(shown)
        return shown

    return decorate


class NamesType(click.ParamType):  # type: ignore[type-arg]
    """Names, separated by commas.

    Args:
        known: Returns the names that a shell completes.
    """

    name = "names"

    def __init__(self, known: Callable[[], Iterable[str]] = tuple) -> None:
        self._known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return the names."""
        del param, ctx
        return value if isinstance(value, tuple) else tuple(filter(None, (name.strip() for name in value.split(","))))

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str | None:
        """Return the known names, if none was given."""
        del param, ctx
        return f"Give one or several of {', '.join(self._known())}."

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the known names that complete the last one."""
        del ctx, param
        before, comma, begun = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{name}") for name in self._known() if name.startswith(begun)]


def exporters() -> list[str]:
    """Return the names of exporters that can be given; every run has the archive."""
    from otel_rl.export import ENTRY_POINT_GROUP
    from otel_rl.recorder.delivery import plugins

    return sorted({*plugins.public(ENTRY_POINT_GROUP), "otlp"} - {"archive"})


def takes_exporters(default: Sequence[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb that records runs the option `--to`, as the keyword `exporters`."""

    def joined(ctx: click.Context, param: click.Parameter, given: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        del ctx, param
        return tuple(name for names in given for name in names)

    text = f"Exporters of its runs, separated by commas.  [default: {','.join(default)}]"
    return click.option(
        "--to",
        "exporters",
        cls=RenamedOption,
        old=["--exporter"],
        type=NamesType(exporters),
        multiple=True,
        default=[",".join(default)],
        callback=joined,
        metavar="NAMES",
        help=text,
    )
