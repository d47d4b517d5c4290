"""A run that was named: is its agent alive, are exporters behind, was anything lost, and do clocks agree."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from otel_rl.archive.now import Now, machines_of, place_of, read_now
from otel_rl.autopsy.doctor.check import Check
from otel_rl.insight import wording
from otel_rl.insight.hang import going, lives
from otel_rl.journal.atomic_files import read_shown_json
from otel_rl.setup.agent_start import agent_is_alive, lost, read_status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from otel_rl.autopsy.doctor.check import Machine

_AGENT, _EXPORTERS, _LOSSES, _CLOCKS = "agent", "exporters", "losses", "clocks"
_BEHIND = 10
"""Items below which an exporter is not behind; some are always on their way."""
_APART_S = 1.0
"""Seconds between two clocks from which on times of machines cannot be compared."""
_SAMPLED_S = 0.2
_JUMP_S = 0.05


def recording(machine: Machine) -> Iterator[Check]:
    """Check the agent of this machine, the exporters, and what was lost."""
    run = machine.run
    if run is None:
        return
    now, status, is_alive = read_now(run.path), read_status(run), agent_is_alive(run)
    at = time.time_ns()
    running = [one for state in now for one in state.processes if one.outcome is None]
    if status.state == "failed":
        yield Check(_AGENT, "failed", f"the agent could not start: {status.error}", f"See {run.agent_log}.")
    elif is_alive or any(lives(state, at) for state in now):
        yield Check(_AGENT, "ok", "the agent is alive")
    elif running:
        what = f"no agent is alive, and {wording.count(len(running), 'process', 'processes')} did not end"
        fix = f"A trainer starts it again with its next record. See {run.agent_log}, or run: otel-rl agent {run.path}"
        yield Check(_AGENT, "warning", what, fix)
    elif not now and run.journals.is_dir() and any(run.journals.iterdir()):
        fix = f"Deliver it with: otel-rl agent {run.path} --once"
        yield Check(_AGENT, "warning", "the run was recorded, and no agent has read it", fix)
    else:
        yield Check(_AGENT, "ok", "the run has ended")
    if any(lives(state, at) for state in now) and (standing := going(now, at)).reason:
        what = f"the run hangs: {standing.reason}" if standing.state == "hung" else standing.reason
        yield Check(_AGENT, "failed", what, f"otel-rl top {run.path}")
    yield from (Check(_AGENT, "warning", text, f"See {run.agent_log}.") for text in status.warnings)
    yield from _exporters(machine)
    found = lost(status)
    for text in found:
        what, _, fix = text.partition(" (")
        yield Check(_LOSSES, "warning", what, fix.rstrip(")").capitalize() or f"See {run.agent_log}.")
    if not found:
        yield Check(_LOSSES, "ok", "nothing was lost")


def _exporters(machine: Machine) -> Iterator[Check]:
    assert machine.run is not None
    behind = 0
    for state in read_now(machine.run.path):
        for one in state.exporters:
            if one.waiting >= _BEHIND and (one.failures or state.state == "ended"):
                behind += 1
                error = " ".join(one.last_error.split()) or "no error"
                what = f"{one.name} is {wording.count(one.waiting, 'item')} behind: {error}"
                fix = f"Nothing is lost. Repair the destination; after the run: otel-rl agent {machine.run.path} --once"
                yield Check(_EXPORTERS, "failed", what, fix)
    if not behind:
        yield Check(_EXPORTERS, "ok", "no exporter is behind")


def clocks(machine: Machine) -> Iterator[Check]:
    """Check that the wall clock runs with the monotonic one, and that the machines of the run agree."""
    wall, steady = time.time(), time.monotonic()
    time.sleep(_SAMPLED_S)
    jump = time.time() - wall - (time.monotonic() - steady)
    fix = "Let one program alone set the clock: chronyd, ntpd or systemd-timesyncd."
    if abs(jump) > _JUMP_S:
        yield Check(_CLOCKS, "warning", f"the wall clock moved by {jump:+.2f} s in {_SAMPLED_S:g} s", fix)
    apart = {} if machine.run is None else offsets(machine.run.path)
    spread = max(apart.values(), default=0.0) - min(apart.values(), default=0.0)
    if spread > _APART_S:
        first, last = min(apart, key=apart.__getitem__), max(apart, key=apart.__getitem__)
        what = f"the clock of {last} is {spread:.1f} s ahead of that of {first}"
        yield Check(_CLOCKS, "warning", what, "Synchronize both: `chronyc tracking`, `timedatectl`.")
    elif abs(jump) <= _JUMP_S:
        of = f"the clocks of {len(apart)} machines agree" if len(apart) > 1 else "the wall clock runs evenly"
        yield Check(_CLOCKS, "ok", of)


def offsets(run: Path) -> dict[str, float]:
    """Return how far each machine's clock is ahead of the file server's, in seconds, by what it wrote last."""
    found: dict[str, float] = {}
    for host in machines_of(run):
        place = place_of(run, host)
        state = read_shown_json(place, Now)
        if state is not None:
            found[host] = state.time_unix_nano / 1e9 - place.stat().st_mtime
    return found
