"""The autopsies of a run, in `autopsy/`: one for each time that somebody asked why it hangs.

Each has a text and this as JSON, both named by its time, and a folder with the evidence of each machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from otel_rl.journal.atomic_files import read_shown_json

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "autopsy"
Sure = Literal["certain", "likely", "unknown"]
"""How sure a verdict is: seen, inferred from what was seen, or nothing that was seen explains it."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run does not go on.

    Attributes:
        kind: The cause, such as `stopped`, `lock` or `silent`; `well` if nothing is overdue.
        sentence: Who waits, for whom, and what the awaited one does.
        who: The processes or servers that are the cause, the first one first.
        sure: How sure this is.
        consequences: Who waits because of it.
        evidence: What was seen that says so.
        advice: What to do.
    """

    kind: str
    sentence: str
    who: tuple[str, ...] = ()
    sure: Sure = "unknown"
    consequences: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    advice: str = ""

    @property
    def names_cause(self) -> bool:
        """Whether something is wrong: the run neither is well nor has ended."""
        return self.kind not in ("well", "ended")


class StackGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Processes whose main threads have equal stacks: their names, what they do, the innermost frames first."""

    who: tuple[str, ...]
    does: str
    stack: tuple[str, ...] = ()


class Autopsy(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an autopsy.

    Attributes:
        run: The run directory.
        time_unix_nano: When.
        cause: Why it was made; empty if somebody asked for it.
        hosts: The machines that were looked at.
        verdict: Why the run does not go on.
        groups: The processes by their stacks, the odd one first.
        missing: What could not be seen, and why.
        file: The text of the autopsy; empty if it could not be written.
    """

    run: str
    time_unix_nano: int
    cause: str = ""
    hosts: tuple[str, ...] = ()
    verdict: Verdict
    groups: tuple[StackGroup, ...] = ()
    missing: tuple[str, ...] = ()
    file: str = ""


def read_autopsies(run: Path, most: int = 20) -> list[Autopsy]:
    """Return the autopsies of a run, the newest first."""
    files = sorted((run / FOLDER).glob("*.json"), reverse=True)[:most]
    found = (read_shown_json(file, Autopsy) for file in files)
    return [one for one in found if one is not None]
