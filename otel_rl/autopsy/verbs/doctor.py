"""`otel-rl doctor`: what keeps a run from being recorded here, and how to fix it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.output import Output, shows
from otel_rl.cli.runs import RunArgument

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from otel_rl.autopsy.doctor.examination import Examination
    from otel_rl.cli.lines import Line

_SIGNS = {"failed": ("✗", "bad"), "warning": ("!", "warning"), "ok": ("○", "good"), "skipped": ("-", "dim")}


@click.command(
    cls=Verb,
    section="explain",
    short_help="Check what a run needs, and say how to fix it.",
    examples={"doctor": "this machine", "doctor newest": "a run too: its agent and its exporters"},
)
@click.argument("run", required=False, type=RunArgument())
@shows
def doctor(run: Path | None, *, output: Output) -> None:
    """Check settings, directories, ports, packages, GPUs, clocks, destinations, permissions and limits of this machine.

    With RUN, check its agent, its exporters and what was lost too. Nothing is recorded, and no row is sent.

    The exit code is 0 if all is well, 1 if a check failed, and 2 if a check could not be made, or there is no such run.
    """
    from otel_rl.autopsy.doctor.examination import examination
    from otel_rl.recorder.archive.runs import place_of

    try:
        _ = None if run is None else place_of(run)
    except FileNotFoundError as error:
        raise click.UsageError(str(error)) from error
    examined = examination(run)
    output.show(examined, lambda _width: lines(examined))
    sys.exit(examined.exit_code)


def lines(examined: Examination) -> Iterator[Line]:
    """Yield the lines of a terminal: what failed first, each with its fix; what is well in one line each."""
    from otel_rl.cli.lines import StyledText, line, safe

    names = max((len(check.name) for check in examined.checks), default=0)
    for check in examined.checks:
        sign, style = _SIGNS[check.state]
        yield (
            StyledText(f"{sign} ", style),
            StyledText(f"{check.name:<{names}}  ", "bold"),
            StyledText(safe(check.what)),
        )
        if check.fix and check.state in ("failed", "warning"):
            yield line(" " * (names + 4), ("→ ", "note"), safe(check.fix))
    counts = {state: sum(check.state == state for check in examined.checks) for state in _SIGNS}
    yield line()
    yield line((", ".join(f"{count} {state}" for state, count in counts.items() if count), "dim"))
