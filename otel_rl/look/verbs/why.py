"""`otel-rl why`: why a run is slow, stuck or dead."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from otel_rl.cli.commands import Verb
from otel_rl.cli.options import StepInterval, takes_steps
from otel_rl.cli.output import Output, shows
from otel_rl.cli.runs import RunArgument
from otel_rl.recorder.archive.runs import NEWEST, place_of
from otel_rl.recorder.files import asked_programs, programs

if TYPE_CHECKING:
    from pathlib import Path

    from otel_rl.recorder.archive.runs import Place

_LOOKS_S = 30.0
"""Seconds that an autopsy may take."""


@click.command(
    cls=Verb,
    section="explain",
    extra="look",
    short_help="Say why a run is slow, stuck or dead.",
    examples={
        "why": "the newest run",
        "why newest --steps 100:200": "the slow steps of a range",
        "why newest --steps 14 --phase update_actor": "a phase of one step",
    },
)
@click.argument("run", default=NEWEST, type=RunArgument())
@click.argument("step", required=False, type=int, metavar="")
@takes_steps("Explain the slow ones of these steps.", old_ends=("--from", "--to"))
@click.option("--phase", default="", help="Explain this phase of the steps, instead of whole steps.")
@shows
def why(run: Path, step: int | None, phase: str, steps: StepInterval | None, *, output: Output) -> None:
    """Say why RUN is slow, stuck or dead; by default, the newest run.

    A run that goes on and is stuck: who is awaited, since when, and what the newest autopsy says. One is made if a rank
    is far longer in a phase than usual. This takes no time-out: a wait can never end if its debtor is dead, has ended,
    or waits in turn for the one who waits. A run that ended badly: how, in which phase, and why. Otherwise: what became
    slow, and why slow steps took their time. The critical path of a step leads through ranks, trajectories, queues,
    engines and weight syncs. It is compared with the paths of usual steps, and a replay says how much time a step would
    save. A run that is well has its verdict.
    """
    from otel_rl.look.insight.why.of_run import why as conclude
    from otel_rl.look.reader.runs import open_run  # loads NumPy and DuckDB
    from otel_rl.look.terminal.reasons import lines

    if step is not None and steps is not None:
        raise click.UsageError("give --steps alone")
    if step is None and steps is None and not phase:
        _look_at(place_of(run))
    try:
        answer = conclude(open_run(run), steps if step is None else StepInterval(step, step), phase)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    output.show(answer, lambda width: lines(answer, width))


def _look_at(place: Place) -> None:
    """Make an autopsy of a run that goes on here and is far longer in a phase than usual: its agent still waits."""
    from otel_rl.look.insight.owed import unusual_phases
    from otel_rl.recorder.agent.autopsies import autopsy_module
    from otel_rl.recorder.archive.present import present_of

    present = present_of(place)
    is_here = any(process.host == socket.gethostname() for process in present.processes if process.outcome is None)
    if present.state == "live" and is_here and unusual_phases(present) and (module := autopsy_module()):
        with suppress(OSError, programs.TooLate):
            looks = programs.start_python(f"{module}.__main__", str(place.path), output=programs.NULL, is_detached=True)
            asked_programs.finish(looks, within=_LOOKS_S)
