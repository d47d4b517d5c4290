"""Finds backlogs of earlier attempts on other machines, and the commands that deliver them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from otel_rl.recorder.directory import parts
from otel_rl.recorder.directory.directory import RunDirectory
from otel_rl.recorder.journal.claim import attempt_of, is_journal, noted, who_of
from otel_rl.recorder.settings.launcher import is_in_job

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_NAMED = 3
"""Maximum number of machines that are named."""


def deliver_with(directory: RunDirectory) -> tuple[str, str]:
    """Return the machine on which the backlog of a part can be delivered, and the command for it."""
    part = parts.read(directory.path, directory.host)
    host = part.machine.host if part is not None and part.machine is not None else directory.host
    return host, f"otel-rl agent {shlex.quote(str(directory.path))} --once"


def left_behind(directory: RunDirectory, environ: Mapping[str, str]) -> list[str]:
    """Return warnings about machines with records that may not be delivered, of earlier attempts or of moved ranks.

    Machines that take part in this attempt deliver their own records. At most three machines are named.

    Raises:
        OSError: The journals of this machine cannot be listed.
    """
    own = {(who_of(path.name), attempt_of(path.name)) for path in directory.journals.iterdir() if is_journal(path.name)}
    attempt = max((number for _, number in own), default=0)
    warnings = []
    for name, journals in sorted(noted(directory.attempts).items()):
        part = parts.read_or_new(directory.path, name)
        host = part.machine.host if part.machine is not None else name
        ended = [
            journal
            for journal in journals
            if attempt_of(journal) < attempt or (who_of(journal), attempt_of(journal)) in own
        ]
        if name in ("", directory.host) or not ended or part.is_delivered or is_in_job(host, environ):
            continue
        command = deliver_with(RunDirectory(directory.path, part.place, name))[1]
        is_here = not part.is_elsewhere or (directory.path / parts.ARCHIVE / name).is_dir()
        number = max(map(attempt_of, ended))
        warnings.append(
            f"attempt {number} of the run was recorded on {host}, and not all of it is known to be delivered; "
            f"if {host} does not take part in this attempt, run {'here' if is_here else f'on {host}'}: {command}"
        )
    return warnings[:_MOST_NAMED]
