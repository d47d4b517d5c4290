"""A run that was named: is its agent alive, are exporters behind, was anything lost, and do clocks agree."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from otel_rl.autopsy.doctor.check import Check
from otel_rl.recorder.archive.now import Now, machines_of, place_of, read_now
from otel_rl.recorder.archive.reports import reports_of, signs_of
from otel_rl.recorder.directory.agent_start import agent_is_alive, lost, read_status
from otel_rl.recorder.facts import wording
from otel_rl.recorder.facts.standing import lives, standing
from otel_rl.recorder.files.atomic_files import read_shown_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from otel_rl.autopsy.doctor.check import CheckedMachine

_AGENT, _EXPORTERS, _LOSSES, _CLOCKS = "agent", "exporters", "losses", "clocks"
_BEHIND = 10
"""Items below which an exporter is not behind; some are always on their way."""
_APART_S = 1.0
"""Seconds between two clocks from which on times of machines cannot be compared."""
_SAMPLED_S = 0.2
_JUMP_S = 0.05


def recording(machine: CheckedMachine) -> Iterator[Check]:
    """Check the agent of this machine, the exporters, and what was lost."""
    run = machine.run
    if run is None:
        return
    now, status, is_alive = read_now(run.path), read_status(run), agent_is_alive(run)
    at, agents = time.time_ns(), reports_of(now)
    stands = standing(signs_of(run.path, now, at), at)
    running = [process for state in now for process in state.processes if process.outcome is None]
    if status.state == "failed":
        yield Check(_AGENT, "failed", f"the agent could not start: {status.error}", f"See {run.agent_log}.")
    elif is_alive or any(lives(agent, at) for agent in agents):
        yield Check(_AGENT, "ok", "the agent is alive")
    elif running:
        what = f"no agent is alive, and {wording.count(len(running), 'process', 'processes')} did not end"
        fix = f"A trainer starts it again with its next record. See {run.agent_log}, or run: otel-rl agent {run.path}"
        yield Check(_AGENT, "warning", what, fix)
    elif stands.lacks == "report" and stands.state == "lost":
        fix = f"Deliver it with: otel-rl agent {run.path} --once"
        yield Check(_AGENT, "warning", "the run was recorded, and no agent has read it", fix)
    else:
        yield Check(_AGENT, "ok", "the run has ended")
    if stands.state == "hung" or (stands.state == "live" and stands.lacks in ("machine", "process")):
        what = f"the run hangs: {stands.reason}" if stands.state == "hung" else stands.reason
        yield Check(_AGENT, "failed", what, f"otel-rl top {run.path}")
    yield from (Check(_AGENT, "warning", text, f"See {run.agent_log}.") for text in status.warnings)
    yield from _exporters(machine)
    losses = lost(status)
    for text in losses:
        what, _, fix = text.partition(" (")
        yield Check(_LOSSES, "warning", what, fix.rstrip(")").capitalize() or f"See {run.agent_log}.")
    if not losses:
        yield Check(_LOSSES, "ok", "nothing was lost")


def _exporters(machine: CheckedMachine) -> Iterator[Check]:
    assert machine.run is not None
    behind = 0
    for state in read_now(machine.run.path):
        for exporter in state.exporters:
            if exporter.waiting >= _BEHIND and (exporter.failures or state.state == "ended"):
                behind += 1
                error = " ".join(exporter.last_error.split()) or "no error"
                what = f"{exporter.name} is {wording.count(exporter.waiting, 'item')} behind: {error}"
                fix = f"Nothing is lost. Repair the destination; after the run: otel-rl agent {machine.run.path} --once"
                yield Check(_EXPORTERS, "failed", what, fix)
    if not behind:
        yield Check(_EXPORTERS, "ok", "no exporter is behind")


def clocks(machine: CheckedMachine) -> Iterator[Check]:
    """Check that the wall clock runs with the monotonic one, and that the machines of the run agree."""
    wall, steady = time.time(), time.monotonic()
    time.sleep(_SAMPLED_S)
    jump = time.time() - wall - (time.monotonic() - steady)
    fix = "Let one program alone set the clock: chronyd, ntpd or systemd-timesyncd."
    if abs(jump) > _JUMP_S:
        yield Check(
            _CLOCKS,
            "warning",
            f"the wall clock moved by {wording.signed_seconds(jump)} in {wording.seconds(_SAMPLED_S)}",
            fix,
        )
    apart = {} if machine.run is None else offsets(machine.run.path)
    spread = max(apart.values(), default=0.0) - min(apart.values(), default=0.0)
    if spread > _APART_S:
        first, last = min(apart, key=apart.__getitem__), max(apart, key=apart.__getitem__)
        what = f"the clock of {last} is {wording.seconds(spread)} ahead of that of {first}"
        yield Check(_CLOCKS, "warning", what, "Synchronize both: `chronyc tracking`, `timedatectl`.")
    elif abs(jump) <= _JUMP_S:
        what = f"the clocks of {len(apart)} machines agree" if len(apart) > 1 else "the wall clock runs evenly"
        yield Check(_CLOCKS, "ok", what)


def offsets(run: Path) -> dict[str, float]:
    """Return how far each machine's clock is ahead of the file server's, in seconds, by what it wrote last."""
    ahead: dict[str, float] = {}
    for host in machines_of(run):
        place = place_of(run, host)
        state = read_shown_json(place, Now, run)
        if state is not None:
            ahead[host] = state.time_unix_nano / 1e9 - place.stat().st_mtime
    return ahead
