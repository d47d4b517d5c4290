"""The files that an addition touches: a field of a message and a kind of record are added to a copy, and work."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import otel_rl
from tests.processes import run

LIBRARY = Path(otel_rl.__file__).parent
Edits = Mapping[str, Sequence[tuple[str, str]]]
"""For each file, lines that have a text, and what comes behind them."""
FIELD: Edits = {
    "recorder/journal/records.py": [("    pieces: Annotated[", '    entropies: Doubles = b""\n')],
    "export.py": [("    pieces: tuple[str, ...]", '    entropies: bytes = b""\n')],
    "recorder/archive/tables.py": [
        ('Column("pieces"', 'Column("entropies", "doubles", "entropy of each token", can_be_null=True),\n')
    ],
    "recorder/trainer/trajectories.py": [
        ("        pieces: object = None,", "        entropies: object = None,\n"),
        ('        lists = {"tokens": tokens', '        lists["entropies"] = entropies\n'),
    ],
    "look/insight/samples/sample.py": [("    pieces: tuple[str, ...]", "    entropies: tuple[float, ...] = ()\n")],
}
"""A list of the tokens of a message: in the record, the item, the table, the API, and what viewers get."""
KIND: Edits = {
    "recorder/journal/records.py": [
        (
            "invalid numbers {sorted(counts)}",
            '\n\nclass Paused(Record, tag=40):\n    """A pause."""\n\n    time: Time\n',
        ),
    ],
    "recorder/agent/steps/apply.py": [
        ("from otel_rl.export import Params", "from otel_rl.export import Event\n"),
        ("    Observed,", "    Paused,\n"),
        ("            Configured: self._configure,", "            Paused: self._pause,\n"),
        (
            "        return (Params(record.time, record.values),)",
            "\n    def _pause(self, name, journal, record):\n        return (Event('paused', record.time),)\n",
        ),
    ],
    "recorder/trainer/run.py": [
        ("    Happened,", "    Paused,\n"),
        (
            "        self._end = RunEnd(",
            "        self.pause = lambda: self._recorder.write(Paused(self._recorder.clock.now()))\n",
        ),
    ],
}
"""A record: its class, the method that applies it, and the method of a run that writes it."""
PROGRAM = """
import otel_rl
from otel_rl.look.insight.samples.trajectories import trajectories

with otel_rl.init(dir="runs", exporters=["jsonl"], content=True) as run:
    with run.step(0):
        with run.trajectory() as trajectory:
            trajectory.message("assistant", "4", tokens=[1, 2], entropies=[0.5, 0.25])
        run.trained([trajectory.ticket()], policy_version=0)
        run.pause()
found = otel_rl.open_run(run.dir)
print(found.messages()["entropies"].tolist(), trajectories(found, [0], tokens=True)[0].turns[0].entropies)
print(found.events("paused")["name"].tolist())
"""


def add(library: Path, edits: Edits) -> None:
    """Insert each text behind the first line of a file that has another one."""
    for name, texts in edits.items():
        lines = (library / name).read_text().splitlines(keepends=True)
        for behind, text in texts:
            place = next(number for number, line in enumerate(lines) if behind in line)
            lines.insert(place + 1, text)
        (library / name).write_text("".join(lines))


def test_what_an_addition_touches(tmp_path: Path) -> None:
    """A field of a message touches five files, besides those that do something with it, and a kind of record three."""
    shutil.copytree(LIBRARY, tmp_path / "otel_rl", ignore=shutil.ignore_patterns("__pycache__"))
    add(tmp_path / "otel_rl", FIELD)
    add(tmp_path / "otel_rl", KIND)
    shown = run([sys.executable, "-c", PROGRAM], tmp_path, PYTHONPATH=str(tmp_path))

    assert shown.splitlines() == ["[[0.5, 0.25]] (0.5, 0.25)", "['paused']"]
    assert (len(FIELD), len(KIND)) == (5, 3)
