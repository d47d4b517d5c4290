"""The autopsies of a run, in `autopsy/`: one for each time that somebody asked why it hangs.

Each has a text and this as JSON, both named by its time, and a folder with the evidence of each machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from otel_rl.recorder.facts.states import Sure
from otel_rl.recorder.files.atomic_files import read_shown_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FOLDER = "autopsy"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run does not go on."""

    kind: str  # the cause, such as `stopped`, `lock` or `silent`; `well` if nothing is overdue
    sentence: str  # who waits, for whom, and what the awaited one does
    who: tuple[str, ...] = ()  # the processes or servers that are the cause, the first one first
    sure: Sure = "unknown"  # how sure this is
    consequences: tuple[str, ...] = ()  # who waits because of it
    evidence: tuple[str, ...] = ()  # what was seen that says so
    advice: str = ""  # what to do

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
    """The result of an autopsy."""

    run: str  # the run directory
    time_unix_nano: int  # when
    cause: str = ""  # why it was made; empty if somebody asked for it
    hosts: tuple[str, ...] = ()  # the machines that were looked at
    verdict: Verdict  # why the run does not go on
    groups: tuple[StackGroup, ...] = ()  # the processes by their stacks, the odd one first
    missing: tuple[str, ...] = ()  # what could not be seen, and why
    file: str = ""  # the text of the autopsy; empty if it could not be written


def read_autopsies(run: Path, most: int = 20) -> list[Autopsy]:
    """Return the autopsies of a run, the newest first."""
    files = sorted((run / FOLDER).glob("*.json"), reverse=True)[:most]
    autopsies = (read_shown_json(file, Autopsy, run) for file in files)
    return [autopsy for autopsy in autopsies if autopsy is not None]


def telling(autopsies: Sequence[Autopsy]) -> Autopsy | None:
    """Return the first autopsy that names a cause, else the first that saw a process; `None` if none did."""
    seen = [autopsy for autopsy in autopsies if autopsy.verdict.kind != "ended"]
    return next((autopsy for autopsy in seen if autopsy.verdict.names_cause), next(iter(seen), None))
