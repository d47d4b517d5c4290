"""`otel-rl doctor`: what keeps a run from being recorded here, and how to fix it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from otel_rl.cli.runs import Run
from otel_rl.cli.terminal import Output, shows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from otel_rl.autopsy.doctor.examination import Examination
    from otel_rl.view.terminal.lines import Line

_SIGNS = {"failed": ("✗", "bad"), "warning": ("!", "warning"), "ok": ("○", "good"), "skipped": ("-", "dim")}


@click.command(short_help="Check what a run needs, and say how to fix it.")
@click.argument("run", required=False, type=Run())
@shows
def doctor(run: Path | None, *, output: Output) -> None:
    """Check settings, directories, ports, packages, GPUs, clocks, destinations, permissions and limits of this machine.

    With RUN, check its agent, its exporters and what was lost too. Nothing is recorded, and no row is sent.

    The exit code is 0 if all is well, 1 if a check failed, and 2 if a check could not be made, or there is no such run.
    """
    from otel_rl.archive.runs import place_of
    from otel_rl.autopsy.doctor.examination import examination

    try:
        _ = None if run is None else place_of(run)
    except FileNotFoundError as error:
        raise click.UsageError(str(error)) from error
    found = examination(run)
    output.show(found, lambda _width: lines(found))
    sys.exit(found.exit_code)


def lines(found: Examination) -> Iterator[Line]:
    """Yield the lines of a terminal: what failed first, each with its fix; what is well in one line each."""
    from otel_rl.view.terminal.lines import Span, line, safe

    names = max((len(one.name) for one in found.checks), default=0)
    for one in found.checks:
        sign, style = _SIGNS[one.state]
        yield (Span(f"{sign} ", style), Span(f"{one.name:<{names}}  ", "bold"), Span(safe(one.what)))
        if one.fix and one.state in ("failed", "warning"):
            yield line(" " * (names + 4), ("→ ", "note"), safe(one.fix))
    counts = {state: sum(one.state == state for one in found.checks) for state in _SIGNS}
    yield line()
    yield line((", ".join(f"{count} {state}" for state, count in counts.items() if count), "dim"))
