"""Records with hostile values in every field, within what MessagePack and the types allow."""

from __future__ import annotations

import math
import random
import struct
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

import otel_rl
from otel_rl.recorder.journal import records
from otel_rl.recorder.journal.records import AnyRecord, Record
from otel_rl.recorder.journal.writer import Writer
from tests.processes import local_of

KINDS: tuple[type[Record], ...] = get_args(AnyRecord)
_INTEGERS = (0, 1, 2, 7, -1, -(1 << 63), (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 31, 1_700_000_000_000_000_000)
_FLOATS = (0.0, 1.5, -1.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324)
_TEXTS = (
    "",
    "x",
    "loss",
    "generate",
    "rl.loop",
    "rl.rollout",
    "trained",
    "\0",
    "\n",
    "ü/💥",
    "a" * 5000,
    "loss@max",
    "@",
)
_BYTES = (b"", b"\0", b"x" * 7, b"\xff" * 8, b"y" * 16, b"\1" * 24, b"123 45 6", struct.pack("<3q", 0, 1, 2))
_BYTES += (struct.pack("<3d", 1.0, math.nan, math.inf), struct.pack("<3q", 9, -5, -7), b"z" * 100_000)


def value(kind: Any, dice: random.Random) -> Any:
    """Return a value of a type; mostly a strange one."""
    origin, of = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return value(dice.choice(of), dice)
    if origin is Literal:
        return dice.choice(of)
    if origin is dict:
        return {value(of[0], dice): value(of[1], dice) for _ in range(dice.choice((0, 1, 3)))}
    if origin is list:
        return [value(of[0], dice) for _ in range(dice.choice((0, 1, 3)))]
    if origin is tuple:
        if of[-1] is Ellipsis:
            return tuple(value(of[0], dice) for _ in range(dice.choice((0, 1, 3))))
        return tuple(value(one, dice) for one in of)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return of_kind(kind, dice)
    choices: Mapping[Any, Sequence[Any]] = {int: _INTEGERS, float: _FLOATS, str: _TEXTS, bytes: _BYTES}
    if kind in choices:
        return dice.choice(choices[kind])
    return dice.choice((True, False)) if kind is bool else None


def of_kind(kind: type[Any], dice: random.Random, sane: float = 0.6) -> Any:
    """Return a struct in which each field is hostile, or with the probability `sane` as a trainer writes it."""
    hints = get_type_hints(kind, vars(records))
    usual: dict[str, Any] = {"step": 3, "time": 10**18, "trace_id": b"t" * 16, "span_id": 5, "parent_id": 0}
    usual |= {"memory": b"100 50 3 1 0 4 0", "kind": None, "devices": None, "name": "generate", "world_size": 1}
    fields = {}
    for name, hint in hints.items():
        if name in kind.__struct_fields__:
            is_sane = name in usual and dice.random() < sane
            fields[name] = usual[name] if is_sane else value(hint, dice)
    return kind(**fields)


def recorded(
    directory: Path,
    journals: Mapping[str, Sequence[Record | bytes]],
    exporters: Sequence[Any],
    *,
    idle_timeout: float = 60,
    **settings: Any,
) -> otel_rl.Run:
    """Return a run whose journals hold these records, and frames of these payloads; no agent has read them."""
    settings = {"quiet": True, "hardware": False, "rows": {"deadline": 0.2}, **settings}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_RL_IDLE_TIMEOUT", str(idle_timeout))
        run = otel_rl.init(agent="off", exporters=[*exporters], dir=directory, **settings)
    run.finish(0)
    write(run.dir, journals)
    return run


def write(run_dir: Path, journals: Mapping[str, Sequence[Record | bytes]]) -> None:
    """Write journals of these records, and frames of these payloads, into a run."""
    for name, found in journals.items():
        place = local_of(run_dir) / "journals" / name
        place.mkdir()
        writer = Writer(place)
        for record in found:
            writer.append(msgspec.Raw(record) if isinstance(record, bytes) else record)  # type: ignore[arg-type]
        writer.close()
