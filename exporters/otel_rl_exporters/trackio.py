"""Rows as the metrics of a trackio run: in a local database, or in a Hugging Face Space."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_rl.export import Params, Row, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.export import Item, RunInfo


class TrackioExporter:
    """Logs each row to a trackio run that is named by our run's id; a restarted run goes on in it.

    NaN and infinities are kept by name, as trackio does. It gives a point the time at which it is handed
    over. Its config is what is known when its run begins; parameters that come after the first row are a
    table called `config`.

    Args:
        run: The run that is shown.
        project: The project; by default the run's.
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
        self._options = {"project": project or run.project, "name": name or run.id, "group": group}
        self._space = {"space_id": space_id} if space_id else {}
        self._config: dict[str, object] = {}
        self._run: Any = None

    def export(self, items: Sequence[Item]) -> None:
        """Log the row or the table, or take note of the parameters, that are in `items`."""
        for item in items:
            if isinstance(item, Row):
                self._opened().log(dict(item.values), step=item.step)
            elif isinstance(item, Table):
                table = self._trackio.Table(columns=list(item.columns), data=[list(row) for row in item.rows])
                self._opened().log({item.name: table}, step=item.step)
            elif isinstance(item, Params) and self._run is None:
                self._config |= item.values
            elif isinstance(item, Params):
                rows = [[name, str(value)] for name, value in item.values.items()]
                self._run.log({"config": self._trackio.Table(columns=["name", "value"], data=rows)})

    def shutdown(self) -> None:
        """Finish the run: trackio writes what its own thread still holds."""
        self._opened().finish()

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
