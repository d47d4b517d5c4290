"""PyTorch's Flight Recorder of processes: at which collective of each process group a rank is."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from otel_rl.autopsy.evidence import Collective
from otel_rl.autopsy.questions import put
from otel_rl.recorder.errors import UNDECODABLE
from otel_rl.recorder.files.own_files import read_shown
from otel_rl.recorder.files.signals import FLIGHT, FLIGHT_ANSWER

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
    last: dict[int, tuple[Collective, ...]] = {}
    while waiting and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        for pid in [pid for pid, mark in waiting.items() if _mark(journals[pid]) != mark]:
            del waiting[pid]
            last[pid] = tuple(_last(journals[pid] / FLIGHT_ANSWER))
    missing += [f"process {pid}: PyTorch's Flight Recorder, because it does not run Python code" for pid in waiting]
    return last


def _mark(journal: Path) -> int:
    with suppress(OSError):
        # The inode, not the time: an answer replaces the file, within one tick of the file system's clock too.
        return (journal / FLIGHT_ANSWER).stat().st_ino
    return 0


def _last(place: Path) -> Iterable[Collective]:
    by_group: dict[str, Collective] = {}
    with suppress(OSError, *UNDECODABLE):
        for entry in msgspec.json.decode(read_shown(place, place.parent), type=_Dump).entries:
            if not entry.is_p2p:
                name, about = entry.process_group
                group = f"group {name}" if about in ("", "undefined") else f"group {name} ({about})"
                operation = entry.profiling_name.rpartition(":")[2]
                by_group.pop(group, None)  # the group that was used last comes last
                by_group[group] = Collective(group, entry.collective_seq_id, operation, str(entry.input_sizes)[:80])
    yield from list(by_group.values())[-_MOST_GROUPS:]
