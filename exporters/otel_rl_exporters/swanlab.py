"""Rows as scalars of a SwanLab experiment: in the cloud, on a local board, or in files to be sent later."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from otel_rl.export import Params, Row, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.export import Item, RunInfo

Mode = Literal["cloud", "online", "local", "offline", "disabled"]


class SwanlabExporter:
    """Logs each row to a SwanLab experiment with our run's id; a restarted run resumes it.

    Names and steps are ours, NaN and infinities stay, numbers are floats. SwanLab gives a point the time at
    which it is handed over. Tables are text, as Markdown. SwanLab's own measuring of hardware and program is
    off, since this is not the trainer's process.

    Args:
        run: The run that is shown.
        mode: `"cloud"` (or `"online"`), `"local"`, `"offline"` or `"disabled"`; by default what
            `SWANLAB_MODE` says, else offline where there is no API key (`SWANLAB_API_KEY`, `swanlab login`).
        project: The project; by default the run's.
        workspace: Whose it is.
        experiment_name: Its name; by default the run's.
        description: What it is about.
        tags: Labels.
        logdir: Where its files lie, relative to the run directory.
    """

    batch_size = 1
    requires = ("swanlab",)
    extra = "swanlab"

    def __init__(
        self,
        run: RunInfo,
        *,
        mode: Mode | None = None,
        project: str | None = None,
        workspace: str | None = None,
        experiment_name: str | None = None,
        description: str | None = None,
        tags: list[str] | None = None,
        logdir: str = "swanlab",
    ) -> None:
        try:
            import swanlab
        except ImportError as error:
            raise ImportError("the swanlab exporter needs: pip install 'otel-rl[swanlab]'") from error
        self._swanlab: Any = swanlab
        self._run: Any = swanlab.init(
            mode=_mode(mode),
            log_dir=str(_made(Path(run.directory, logdir))),
            project=project or run.project,
            workspace=workspace,
            name=experiment_name or run.name,
            description=description,
            tags=tags,
            id=_run_id(run.id),
            resume="allow",
            reinit=True,
            settings=swanlab.Settings(
                interactive=False,
                terminal={"proxy_type": "none"},
                probe={"hardware": False, "runtime": False, "requirements": False, "git": False, "monitor": False},
            ),
        )

    def export(self, items: Sequence[Item]) -> None:
        """Log the row or the table, or update the config, that is in `items`."""
        for item in items:
            if isinstance(item, Row):
                self._run.log({name: float(value) for name, value in item.values.items()}, step=item.step)
            elif isinstance(item, Table):
                self._run.log({item.name: self._swanlab.Text(_markdown(item))}, step=item.step)
            elif isinstance(item, Params):
                self._run.config.update({name: "None" if v is None else v for name, v in item.values.items()})

    def shutdown(self) -> None:
        """Finish the experiment."""
        self._run.finish()


def _mode(asked: Mode | None) -> str:
    mode = asked or os.environ.get("SWANLAB_MODE")
    if mode is None:
        stored = Path(os.environ.get("SWANLAB_SAVE_DIR", Path.home() / ".swanlab"), ".netrc")
        mode = "online" if "SWANLAB_API_KEY" in os.environ or stored.exists() else "offline"
    return "online" if mode == "cloud" else mode


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _run_id(id_: str) -> str:
    """Return the id that SwanLab accepts; ids that differ stay different."""
    allowed = re.sub(r"[^A-Za-z0-9_-]", "-", id_)
    if allowed == id_ and len(id_) <= 64:
        return id_
    return f"{allowed[:47]}-{hashlib.sha256(id_.encode()).hexdigest()[:16]}"


def _markdown(table: Table) -> str:
    lines = [table.columns, ["---"] * len(table.columns), *table.rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: object) -> str:
    """Return the cell as text that stays in its cell."""
    text = "" if value is None else str(value)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r", "").replace("\n", "<br>")
