"""The verbs of `otel-rl`: modules of packages, each with the command of its own name.

`cli` has those of the recorder, and each wing its own. The entry points of a group name the packages, so a new verb is
one new file that no list has.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import sys
from functools import cached_property
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal

import click

from otel_rl.cli.extras import absent_package, how_to_get
from otel_rl.cli.output import say
from otel_rl.recorder.errors.sinks import one_line
from otel_rl.recorder.errors.texts import meant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

ENTRY_POINT_GROUP = "otel_rl_verbs"
_ARGUMENTS = "otel_rl.arguments"
Section = Literal["record", "look", "explain", "send", "operate"]
SECTIONS: dict[Section, str] = {
    "record": "run -- python train.py",
    "look": "top",
    "explain": "why",
    "send": "export newest --to wandb",
    "operate": "stack up",
}
"""The headings of the help in their order, with an example each."""
_EARLIER_NAMES = {"replay": "export"}
"""Names that verbs had before, which help does not show."""


class Verb(click.Command):
    """A command of `otel-rl`.

    Args:
        section: The heading of the help under which it stands.
        examples: Arguments of `otel-rl`, each with what they do. Help has them, and so has the reference.
        extra: The extra of the distribution that has the packages it imports; empty if it needs none.
        is_rare: If true, the help of `otel-rl` has its name alone.
        attributes: Those of click, such as `short_help` and `hidden`.
    """

    failure: type[click.ClickException] = click.ClickException
    """The error if a package is absent."""

    def __init__(
        self,
        *args: Any,
        section: Section,
        examples: Mapping[str, str],
        extra: str = "",
        is_rare: bool = False,
        **attributes: Any,
    ) -> None:
        attributes["help"] = _with_examples(attributes.get("help") or "", examples)
        super().__init__(*args, **attributes)
        self.section = section
        self.examples = examples
        self.extra = extra
        self.is_rare = is_rare

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and remember them as they were given."""
        ctx.meta[_ARGUMENTS] = [*args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a package that is absent is an error that says how to get it."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            package = absent_package(error)
            if not (self.extra and package):
                raise
            command = ["otel-rl", self.name or "", *ctx.meta[_ARGUMENTS]]
            raise self.failure(f"{package} is not installed: {how_to_get(self.extra, command)}") from error


class VerbGroup(Verb, click.Group):
    """A verb with verbs of its own."""


class _UnknownVerbError(click.ClickException):
    exit_code = 2


class Commands(click.Group):
    """All verbs. Their errors, those of files too, are one line each without control characters."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command line with the standard streams that were closed; those are `None` in Python."""
        # Under `>&-`, `sys.stdout.isatty()` and the like would fail (test_an_output_that_cannot_be_written).
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:
                setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115
        try:
            return super().main(*args, **options)
        except OSError as error:  # not a broken pipe, as of `| head`, after which click ends quietly
            where = f"{error.filename}: " if error.filename else ""
            say(f"Error: {where}{error.strerror or error}", err=True)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.message = one_line(error.message)  # type: ignore[misc] # its subclasses are shown in other ways
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all verbs."""
        del ctx
        return sorted(module.name for package in self._wings.values() if package for module in _modules(package))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a verb, of which only the module is imported; `None` if there is none of this name."""
        del ctx
        name = _EARLIER_NAMES.get(cmd_name, cmd_name)
        return next(filter(None, (_command(package, name) for package in self._wings.values() if package)), None)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb that was called; an unknown one may be of a wing that is not here."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            absent = [name for name, package in self._wings.items() if package is None]
            if not self._wings:  # an editable installation keeps the entry points that it was installed with
                raise _UnknownVerbError("no command is registered: install this version of otel-rl again") from error
            if absent:
                where = f"{', '.join(absent)} of otel-rl {'is' if len(absent) == 1 else 'are'} not installed"
                fix = how_to_get("all", ["otel-rl", *args])
                raise _UnknownVerbError(f"no command {args[0]!r} is here, but {where}: {fix}") from error
            shown = [name for name, _ in self._shown(ctx)]
            raise click.UsageError(f"no command {args[0]!r}{meant(args[0], shown)}", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs under the headings of their sections, each with an example."""
        shown = self._shown(ctx)
        room = formatter.width - 6 - max((len(name) for name, _ in shown), default=0)
        for section, example in SECTIONS.items():
            of_section = [(name, verb) for name, verb in shown if verb.section == section]
            rows = [(name, verb.get_short_help_str(room)) for name, verb in of_section if not verb.is_rare]
            if rare := [name for name, verb in of_section if verb.is_rare]:
                rows.append(("also", ", ".join(rare)))
            if rows:
                formatter.write(f"\n{section.capitalize()}: $ otel-rl {example}\n")
                formatter.indent()
                formatter.write_dl(rows, col_max=30)
                formatter.dedent()

    def _shown(self, ctx: click.Context) -> list[tuple[str, Verb]]:
        verbs = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        return [(name, verb) for name, verb in verbs if isinstance(verb, Verb) and not verb.hidden]

    @cached_property
    def _wings(self) -> dict[str, ModuleType | None]:
        """The packages of verbs, by the names of their wings; `None` for one that is not here."""
        return {point.name: _package(point.value) for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}


def _package(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only the package itself may be absent: a module that it imports and that is missing is an error.
        if error.name is None or not name.startswith(error.name):
            raise
        return None


def _modules(package: ModuleType) -> Sequence[pkgutil.ModuleInfo]:
    return [*pkgutil.iter_modules(package.__path__)]


def _command(package: ModuleType, name: str) -> click.Command | None:
    """Return the verb of this name in a package."""
    if not any(module.name == name for module in _modules(package)):
        return None
    command = getattr(importlib.import_module(f"{package.__name__}.{name}"), name)
    assert isinstance(command, click.Command), f"{package.__name__}.{name} has no command of its name"
    return command


def _with_examples(text: str, examples: Mapping[str, str]) -> str:
    """Return a help text with examples at its end, as lines that are not wrapped."""
    room = max(map(len, examples), default=0)
    lines = [f"    otel-rl {command:<{room}}  # {what}" for command, what in examples.items()]
    return "\n\n".join((inspect.cleandoc(text), "Examples:", "\n".join(("\b", *lines)))) if lines else text
