"""Rows as scalars of a SwanLab experiment: in the cloud, on a local board, or in files to be sent later."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from otel_rl.export import Ended, Machine, Params, Refused, Row, Table, values_of
from otel_rl.recorder.errors.sinks import ACTIVE, shortened
from otel_rl.recorder.files.atomic_files import write_atomically
from otel_rl.recorder.files.modes import make_directory
from otel_rl_exporters import swanlab_api, swanlab_files
from otel_rl_exporters.in_place import WatchedFile
from otel_rl_exporters.leveldb_log import PendingItems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_rl.export import Item, RunInfo

Mode = Literal["cloud", "online", "local", "offline", "disabled"]
_LONGEST_NAME, _LONGEST_PROJECT = 512, 100
_LARGEST_STEP = 1 << 48
_LARGEST_TEXT = 10 * 1024**2
_STATES: dict[str, str] = {"finished": "success", "cancelled": "aborted"}
"""The state of an experiment by the outcome of the run; crashed for the other outcomes."""


class SwanlabExporter:
    """Logs each row to a SwanLab experiment with the run's id; a restarted run resumes it.

    Steps and names are unchanged, except that `escape` replaces characters that SwanLab would trim. NaN and infinities
    stay. Numbers are floats. A point has the time of its row. Tables are text, as Markdown. SwanLab replaces the config
    when a run restarts, so `swanlab.params.json` keeps the parameters and they are set again. SwanLab's own monitoring
    of hardware and program is off, because this process is not the trainer.

    Without a cloud, an item is durable when it is in the log that SwanLab writes below `logdir`. After a kill, items in
    these logs are not logged again. In the cloud, an item is durable when the server has taken it. A restarted run
    sends what the server lacks: SwanLab accepts no step before the last one of an earlier session.

    Args:
        run: The run.
        mode: `"cloud"` (or `"online"`), `"local"` (its board needs `swanlab[dashboard]`), `"offline"` or
            `"disabled"`; by default `SWANLAB_MODE`, else offline if there is no API key
            (`SWANLAB_API_KEY`, `swanlab login`).
        project: The project; by default the run's. Characters that SwanLab does not allow become dashes.
        workspace: The user or team that owns the experiment.
        experiment_name: The name of the experiment; by default the run's.
        description: A description of the experiment.
        tags: Labels of the experiment.
        logdir: The directory of SwanLab's files, relative to the run directory.
    """

    batch_size = 1
    shows_end = True
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
        import swanlab

        self._swanlab: Any = swanlab
        self._attempt = 0
        self._end: tuple[str, str | None] = ("success", None)
        self._kept = Path(run.directory, "swanlab.params.json")
        self._config: dict[str, Any] = json.loads(self._kept.read_bytes()) if self._kept.exists() else {}
        self._given = 0
        self._pending = PendingItems()
        self._flushed = swanlab_files.callback()
        logs = Path(run.directory, logdir)
        make_directory(logs)
        earlier = sorted(logs.glob("run-*/run-*.swanlab"), key=lambda path: path.stat().st_mtime_ns)
        resolved = _mode(mode)
        # Not the id of the trainer's own experiment.
        id_ = _run_id(run.id if run.id != os.environ.get("SWANLAB_RUN_ID") else f"{run.id}-otel-rl")
        self._held = swanlab_files.HeldItems(earlier if resolved in ("local", "offline") else (), id_)
        if resolved == "online":
            swanlab_api.check_login()
        self._run: Any = swanlab.init(
            mode=resolved,
            log_dir=str(logs),
            project=_project(project or run.project),
            workspace=workspace,
            name=shortened(experiment_name or run.name, _LONGEST_NAME) or None,
            description=description,
            tags=tags,
            config=self._config,
            id=id_,
            resume="allow",
            reinit=True,
            callbacks=[self._flushed],
            settings=swanlab.Settings(
                interactive=False,
                terminal={"proxy_type": "none"},
                probe={"hardware": False, "runtime": False, "requirements": False, "git": False, "monitor": False},
            ),
        )
        self._upload = swanlab_api.upload_of(self._run) if resolved == "online" else None
        self._clock = swanlab_files.EventClock(self._run)
        self._is_written = resolved != "disabled"
        # In the cloud, SwanLab's server has the contents.
        self._watched = WatchedFile(swanlab_files.file(self._run) if resolved in ("local", "offline") else None)

    def durable(self) -> int:
        """Return the number of items that SwanLab's server has; without one, those in SwanLab's log.

        Parameters are in another file.

        Raises:
            Gone: The log of a run without a cloud was removed or replaced.
            NotNow: The server does not answer.
            ConnectionError: The server refuses the run.
        """
        if not self._is_written:
            return self._given
        self._watched.check()
        # Counted before the flush: the flush makes durable what was counted; what is logged meanwhile counts next time.
        safe = self._pending.count(self._flushed.scalars, self._flushed.media)
        swanlab_files.flush(self._run)
        return safe if self._upload is None else self._upload.safe(safe)

    def holds(self, item: Item) -> bool:
        """Return whether a log of an earlier session has the complete item."""
        return isinstance(item, Row | Machine | Table) and not self._held.missing(item, _points(item))

    def export(self, items: Sequence[Item]) -> None:
        """Log the rows and tables among `items`, and update the config.

        Raises:
            Refused: SwanLab does not accept the step, or a table of this size.
        """
        for item in items:
            scalars = media = 0
            if isinstance(item, Row | Machine):
                scalars = self._log(item, {name: float(value) for name, value in _points(item).items()})
            elif isinstance(item, Table):
                text = _markdown(item)
                if (size := len(text.encode("utf-8", "replace"))) > _LARGEST_TEXT:
                    raise Refused(f"table {item.name!r} has {size} bytes; SwanLab takes {_LARGEST_TEXT}")
                media = self._log(item, {escape(item.name): self._swanlab.Text(text)})
            elif isinstance(item, Params):
                self._config |= {name: "None" if value is None else value for name, value in item.values.items()}
                write_atomically(self._kept, json.dumps(self._config).encode())
                self._run.config.update(self._config)
            elif isinstance(item, Ended) and item.attempt >= self._attempt:
                self._attempt = item.attempt
                is_fine = item.outcome == "finished"
                self._end = _STATES.get(item.outcome, "crashed"), None if is_fine else item.error or item.outcome
            self._given += 1
            self._pending.add(scalars, media)

    def shutdown(self) -> None:
        """Finish the experiment, with the state "aborted" if it was cancelled, or "crashed" if it ended badly.

        Raises:
            Gone: The log of a run without a cloud was removed or replaced.
            NotNow: The server does not answer.
            ConnectionError: The server refuses the run, or its end.
        """
        state, error = self._end
        if self._upload is not None:
            self._upload.end()
        self._run.finish(state=state, error=error)
        if self._upload is not None:
            self._upload.check_end()
        self._watched.check()

    def _log(self, item: Row | Machine | Table, points: dict[str, Any]) -> int:
        """Log the points that no log holds; return their number."""
        if not 0 <= item.step <= _LARGEST_STEP:
            raise Refused(f"step {item.step} is out of SwanLab's range, 0 to {_LARGEST_STEP}")
        if isinstance(item, Row) and item.attempt > self._attempt:
            self._attempt, self._end = item.attempt, ("success", None)
        missing = self._held.missing(item, points)
        if missing:
            self._clock.at = item.time_unix_nano
            self._run.log({name: points[name] for name in missing}, step=item.step)
            self._clock.at = None
        return len(missing)


def _points(item: Row | Machine | Table) -> dict[str, Any]:
    """Return the names that the item has in SwanLab, with its values."""
    if isinstance(item, Table):
        return {escape(item.name): None}
    return {escape(name): value for name, value in values_of(item).items()}


_TRIMMED = re.compile(
    rf"""^[ ./] | [ ./]\Z             # characters that SwanLab trims
    | [{ACTIVE}]               # or does not accept, or prints as they are
    | ^_(?=_swanlab__\.)            # or uses itself
    | %(?=[0-9A-Fa-f]{{2}}) | ^%\Z    # a percent sign that would look like an escape
    """,
    re.VERBOSE,
)


_ENCODED = re.compile("(?:%[0-9A-F]{2})+")


def escape(name: str) -> str:
    """Return the name with percent-encoding where SwanLab would trim it; `unescape` is the inverse.

    `loss/` is `loss%2F` and so another metric than `loss`; an empty name is `%`. Beyond 512 characters a name
    is cut and ends in a hash of itself, which `unescape` cannot undo.
    """
    escaped = _TRIMMED.sub(_percent_encoded, name) or "%"
    return shortened(escaped, _LONGEST_NAME)


def unescape(escaped: str) -> str:
    """Return the name from which `escape` made this one."""
    if escaped == "%":
        return ""
    return _ENCODED.sub(lambda match: bytes.fromhex(match[0].replace("%", "")).decode(), escaped)


def _percent_encoded(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "backslashreplace"))


def _mode(asked: Mode | None) -> str:
    mode = asked or os.environ.get("SWANLAB_MODE")
    if mode is None:
        import swanlab

        mode = "online" if swanlab.Settings(interactive=False).api_key else "offline"  # wherever it finds one
    return "online" if mode == "cloud" else mode


def _project(name: str) -> str:
    return shortened(re.sub(r"[^0-9A-Za-z_\-+.]", "-", name), _LONGEST_PROJECT) or "otel-rl"


def _run_id(id_: str) -> str:
    """Return an id that SwanLab accepts; different ids stay different."""
    return shortened(re.sub(r"[^A-Za-z0-9_-]", "-", id_), 64, of=id_)


def _markdown(table: Table) -> str:
    lines = [table.columns, ["---"] * len(table.columns), *table.rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: object) -> str:
    """Return the text of a cell, escaped for a table in Markdown."""
    text = "" if value is None else str(value)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r", "").replace("\n", "<br>")
