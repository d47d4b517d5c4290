"""The answer of an export."""

from __future__ import annotations

import msgspec

from otel_rl.recorder.archive.delivered import Counts


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """The files that an export wrote, or the items that exporters got."""

    files: dict[str, int] = {}  # number of lines, events or trajectories by file or directory
    refused: tuple[str, ...] = ()  # why files were not read
    new: dict[str, Counts] = {}
    """Number of items by exporter and kind that were new to it, those that its destination had already included."""
    complete: bool = True  # whether everything was written, or each destination has everything
