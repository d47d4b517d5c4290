"""PyTorch's Flight Recorder of processes: at which collective of each process group a rank is."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from otel_rl.autopsy.evidence import Collective
from otel_rl.autopsy.questions import put
from otel_rl.errors import UNDECODABLE
from otel_rl.journal.own_files import read_shown
from otel_rl.journal.signals import FLIGHT, FLIGHT_ANSWER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_WITHIN_S, _POLL_S = 1.0, 0.02
_MOST_GROUPS = 64


class _Entry(msgspec.Struct):
    process_group: tuple[str, str] = ("", "")
    collective_seq_id: int = 0
    is_p2p: bool = False
    profiling_name: str = ""
    input_sizes: list[list[int]] = []


class _Dump(msgspec.Struct):
    entries: list[_Entry] = []


def ask(journals: Mapping[int, Path], missing: list[str]) -> dict[int, tuple[Collective, ...]]:
    """Return the last collective of each process group of processes whose PyTorch records it, by process id."""
    before = {pid: _mark(journal) for pid, journal in journals.items()}
    waiting = {pid: mark for pid, mark in before.items() if mark and put(pid, journals[pid], FLIGHT)}
    deadline = time.monotonic() + _WITHIN_S
    found: dict[int, tuple[Collective, ...]] = {}
    while waiting and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        for pid in [pid for pid, mark in waiting.items() if _mark(journals[pid]) != mark]:
            del waiting[pid]
            found[pid] = tuple(_last(journals[pid] / FLIGHT_ANSWER))
    missing += [f"process {pid}: PyTorch's Flight Recorder, because it does not run Python code" for pid in waiting]
    return found


def _mark(journal: Path) -> int:
    with suppress(OSError):
        return (journal / FLIGHT_ANSWER).stat().st_ino
    return 0


def _last(place: Path) -> Iterable[Collective]:
    found: dict[str, Collective] = {}
    with suppress(OSError, *UNDECODABLE):
        for one in msgspec.json.decode(read_shown(place), type=_Dump).entries:
            if not one.is_p2p:
                name, about = one.process_group
                group = f"group {name}" if about in ("", "undefined") else f"group {name} ({about})"
                operation = one.profiling_name.rpartition(":")[2]
                found.pop(group, None)  # the group that was used last comes last
                found[group] = Collective(group, one.collective_seq_id, operation, str(one.input_sizes)[:80])
    yield from list(found.values())[-_MOST_GROUPS:]
