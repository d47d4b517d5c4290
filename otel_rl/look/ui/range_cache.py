"""The ranges of the runs that somebody has looked at: in memory, and on disk for the next server."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from otel_rl.look.ui.kept_files import RANGES, keep, kept_bytes
from otel_rl.look.ui.run_ranges import NameRanges, RunRanges, StepLines
from otel_rl.look.ui.step_ranges import read_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from otel_rl.look.ui.run_ranges import Column

_MOST_RUNS = 100
_MOST_NAMES = 64
"""Runs in memory, and names of each that are kept; a name of a long run takes 100 kB."""
_HEAD = "head"


class _KeptHead(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a file of the cache, before its columns."""

    made_by: str  # the version of otel-rl that wrote it
    signature: str
    every: int
    origin: int
    names: tuple[str, ...]
    has_holes: bool
    known: tuple[str, ...]  # the names whose values are in the file


class RangeCache:
    """The values of runs in ranges of steps, as files have them now.

    Args:
        directory: Where they are kept; `None` to keep none. Several servers may share it: each file is written whole,
            and says what it was read from.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._runs: OrderedDict[str, RunRanges] = OrderedDict()
        self._lock = threading.Lock()
        self._of_run: dict[str, threading.Lock] = {}

    def ranges(self, key: str, path: Path, names: Sequence[str] = ()) -> RunRanges:
        """Return a run with the values of these names, and maybe others.

        Raises:
            FileNotFoundError: The run directory is there no more.
        """
        with self._lock:
            of_run = self._of_run.setdefault(key, threading.Lock())
        with of_run:
            known = self._runs.get(key) or self._kept(key)
            if known is not None and len(known.values.keys() | {*names}) > _MOST_NAMES:
                known = known._replace(values={name: known.values[name] for name in names if name in known.values})
            read = read_ranges(path, names, known)
            if read is not known:
                self._keep(key, read)
        with self._lock:
            self._runs[key] = read
            self._runs.move_to_end(key)
            while len(self._runs) > _MOST_RUNS:
                self._runs.popitem(last=False)
        return read

    def _kept(self, key: str) -> RunRanges | None:
        content = kept_bytes(self._directory, key, RANGES)
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                head = msgspec.json.decode(file[_HEAD].tobytes(), type=_KeptHead)
                if head.made_by != version("otel-rl"):
                    return None
                steps = StepLines(*(file[f"steps.{field}"] for field in StepLines._fields))
                values = {
                    name: NameRanges(*(file[f"{number}.{field}"] for field in NameRanges._fields))
                    for number, name in enumerate(head.known)
                }
        except Exception:  # it is not there, was cut, or is of another version: the run is read
            return None
        return RunRanges(head.signature, head.every, head.origin, steps, head.names, head.has_holes, values)

    def _keep(self, key: str, run: RunRanges) -> None:
        if self._directory is None:
            return
        head = _KeptHead(
            made_by=version("otel-rl"),
            signature=run.signature,
            every=run.every,
            origin=run.origin,
            names=run.names,
            has_holes=run.has_holes,
            known=tuple(run.values),
        )
        columns: dict[str, Column] = {_HEAD: np.frombuffer(msgspec.json.encode(head), np.uint8)}
        columns |= {f"steps.{field}": column for field, column in run.steps._asdict().items()}
        for number, values in enumerate(run.values.values()):
            columns |= {f"{number}.{field}": column for field, column in values._asdict().items()}
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **columns)
        keep(self._directory, key, RANGES, file.getvalue())
