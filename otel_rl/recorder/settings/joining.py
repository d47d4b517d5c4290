"""A process that joins the run of another one: it has its parent from `Run.environment`.

A child inherits the variables by which its parent has a rank (`RANK`, `SLURM_PROCID`, `OTEL_RL_RANK`). They are the
place of the parent, so they count only if another launcher has set them to something else since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_rl.recorder.settings.launcher import Placement, find_place

if TYPE_CHECKING:
    from collections.abc import Mapping

PARENT_VARIABLE = "OTEL_RL_PARENT"
WORKER = "worker"
"""The role of a child of a rank that is given none."""
_RANK, _WORLD_SIZE = "OTEL_RL_RANK", "OTEL_RL_WORLD_SIZE"


class Parent(NamedTuple):
    """The parent of a process that joins its run."""

    rank: str  # label of the rank that started it, or that started its parent, such as `rank3`; empty if none did
    places: frozenset[str]  # rank and size, such as "0/2", that the variables of the parent had

    def has(self, place: Placement) -> bool:
        """Return whether a place is that of the parent."""
        return _text(place.rank, place.world_size) in self.places


def find_parent(environ: Mapping[str, str]) -> Parent | None:
    """Return the parent whose run this process joins; `None` if nobody asked it to join one."""
    text = environ.get(PARENT_VARIABLE)
    rank, *places = text.split() if text else ("",)
    return Parent("" if rank == "-" else rank, frozenset(places)) if text else None


def for_children(rank: str, environ: Mapping[str, str]) -> str:
    """Return the variable for the children of a process; `rank` is its label if it is a rank, otherwise empty."""
    above = find_parent(environ)
    launched = find_place(environ)
    places = {_text(launched.rank, launched.world_size), _text(environ.get(_RANK), environ.get(_WORLD_SIZE))}
    return " ".join([rank or (above.rank if above else "") or "-", *sorted(filter(None, places))])


def own_place(environ: Mapping[str, str]) -> tuple[Placement, bool]:
    """Return the place that a launcher describes, and whether it is that of the parent.

    A place of a parent on one machine is left out. Among several machines it stays: children of different ranks count
    from different numbers.
    """
    place, parent = find_place(environ), find_parent(environ)
    if parent is None or place.rank is None or not parent.has(place):
        return place, False
    is_here = place.local_world_size == place.world_size
    return (Placement(node=place.node) if is_here else place), True


def without_inherited(environ: Mapping[str, str]) -> tuple[Mapping[str, str], bool]:
    """Return the environment without the parent's `OTEL_RL_RANK`, and whether that was there."""
    parent = find_parent(environ)
    given = _text(environ.get(_RANK), environ.get(_WORLD_SIZE))
    if parent is None or not given or given not in parent.places:
        return environ, False
    left_out = (_RANK, _WORLD_SIZE, "OTEL_RL_LOCAL_WORLD_SIZE")
    return {name: value for name, value in environ.items() if name not in left_out}, True


def _text(rank: object, world_size: object) -> str:
    return "" if rank in (None, "") else f"{rank}/{world_size or ''}"
