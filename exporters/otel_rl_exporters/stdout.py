"""A line of JSON per row on standard output, for programs that read a log."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Literal

from otel_rl.export import Refused, Row
from otel_rl.recorder.convert.strict_json import spelled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.export import Item, RunInfo


class StdoutExporter:
    """Prints each row as `metrics_tag: {"step": 3, "metrics": {"loss": 0.5}}`.

    The text after the tag is strict JSON in ASCII. Non-finite numbers are strings: `"NaN"`, `"Infinity"`,
    `"-Infinity"`.

    Args:
        run: The run.
        tag: The text before the colon.
        stream: `"stdout"` or `"stderr"` of the process that delivers, usually the agent.
    """

    batch_size = 64

    def __init__(
        self, run: RunInfo, *, tag: str = "metrics_tag", stream: Literal["stdout", "stderr"] = "stdout"
    ) -> None:
        if stream not in ("stdout", "stderr"):
            raise ValueError(f"invalid stream={stream!r}: must be 'stdout' or 'stderr'")
        if "\n" in tag or "\r" in tag:
            raise ValueError(f"tag={tag!r} has more than one line")
        self._tag = tag
        self._stream = stream

    def export(self, items: Sequence[Item]) -> None:
        """Print the rows among `items`.

        Raises:
            Refused: The reader of the stream has closed it.
        """
        lines = [f"{self._tag}: {_json(item)}" for item in items if isinstance(item, Row)]
        if not lines:
            return
        try:
            print(*lines, sep="\n", flush=True, file=getattr(sys, self._stream))
        except BrokenPipeError as error:
            raise Refused(f"{self._stream} is closed") from error

    def shutdown(self) -> None:
        """Do nothing: others use the stream too."""


def _json(row: Row) -> str:
    metrics = {name: spelled(value) for name, value in row.values.items()}
    return json.dumps({"step": row.step, "metrics": metrics}, allow_nan=False)
