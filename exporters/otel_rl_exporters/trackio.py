"""Rows as the metrics of a trackio run: in a local database, or in a Hugging Face Space."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_rl.directory import write_atomically
from otel_rl.export import Machine, Params, Row, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.export import Item, RunInfo


class TrackioExporter:
    """Logs each row to a trackio run that is named by our run's id; a restarted run goes on in it.

    NaN and infinities are kept by name, as trackio does. It gives a point the time at which it is handed
    over, and puts `__` before the names that it uses itself: `project`, `run`, `timestamp`, `step`, `time`,
    `metrics`, and all that begin with `__`. A parameter that begins with `_` is called `%5F…`.

    Its config is what is known when its run begins; parameters that come after the first row are a table
    called `config`. A restarted run replaces the config: what was in it is kept in `trackio.params.json` and
    handed over again.

    Args:
        run: The run that is shown.
        project: The project; by default the run's. Where trackio reserves such a name, a `-` or `_` in it
            becomes the other.
        name: The run's name; by default its id, which a restarted run finds again.
        group: What trackio groups runs by.
        space_id: The Hugging Face Space that shows the run; none by default.
        dir: Where the database lies, relative to the run directory; by default what `TRACKIO_DIR` says,
            else `trackio`.
    """

    batch_size = 1
    requires = ("trackio",)
    extra = "trackio"

    def __init__(
        self,
        run: RunInfo,
        *,
        project: str | None = None,
        name: str | None = None,
        group: str | None = None,
        space_id: str | None = None,
        dir: str | None = None,  # noqa: A002 - what trackio's variable calls it
    ) -> None:
        if dir is not None or "TRACKIO_DIR" not in os.environ:  # read once, when trackio is imported
            os.environ["TRACKIO_DIR"] = str(Path(run.directory, dir or "trackio"))
        try:
            import trackio
        except ImportError as error:
            raise ImportError("the trackio exporter needs: pip install 'otel-rl[trackio]'") from error
        self._trackio: Any = trackio
        self._options = {"project": _project(project or run.project), "name": name or run.id, "group": group}
        self._space = {"space_id": space_id} if space_id else {}
        self._kept = Path(run.directory, "trackio.params.json")
        self._config: dict[str, object] = json.loads(self._kept.read_bytes()) if self._kept.exists() else {}
        self._run: Any = None

    def export(self, items: Sequence[Item]) -> None:
        """Log the row or the table, or take note of the parameters, that are in `items`."""
        for item in items:
            if isinstance(item, Row | Machine):
                self._opened().log(dict(item.values), step=item.step)
            elif isinstance(item, Table):
                table = self._trackio.Table(columns=list(item.columns), data=[list(row) for row in item.rows])
                self._opened().log({item.name: table}, step=item.step)
            elif isinstance(item, Params):
                self._config |= {_parameter(name): value for name, value in item.values.items()}
                write_atomically(self._kept, json.dumps(self._config).encode())
                if self._run is not None:
                    rows = [[name, str(value)] for name, value in item.values.items()]
                    self._run.log({"config": self._trackio.Table(columns=["name", "value"], data=rows)})

    def shutdown(self) -> None:
        """Finish the run: trackio writes what its own thread still holds."""
        if self._run is not None:
            self._run.finish()

    def _opened(self) -> Any:
        """Return the run, begun with the parameters that are known by then."""
        if self._run is None:
            self._run = self._trackio.init(
                **self._options,
                **self._space,
                config=self._config,
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        return self._run


_RESERVED_SUFFIX = re.compile(r"_(?=(?:system|configs|traces|artifacts?\w*)$)")


def _project(name: str) -> str:
    """Return the name without what would be another project's file, or trackio's registry."""
    return _RESERVED_SUFFIX.sub("-", name.replace("registry-", "registry_", 1)) or "otel-rl"


def _parameter(name: str) -> str:
    """Return the name without an underscore at its start, which trackio does not take; names stay different."""
    return re.sub("^(?:_|%(?=5F|25))", lambda found: f"%{ord(found[0]):02X}", name)
