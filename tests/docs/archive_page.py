"""The tables of the archive as a page of the docs; `python -m tests.docs.archive_page` writes it."""

from __future__ import annotations

from pathlib import Path

from otel_rl.recorder.archive.tables import TABLES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "run-archive.md"
_HEAD = """# The archive of a run

The archive has everything that a run recorded, as Parquet files below `archive/` of the run directory.
[Read a run](../how-to/read-a-run.md) shows how to read it with `otel_rl.open_run` and with other engines.

## Files

| place | what it is |
|---|---|
| `archive/MACHINE/TABLE/FIRST-END.CRC32.parquet` | sealed files, without overlap; old messages and spans are thinned |
| `archive/MACHINE/tail/TABLE/FIRST-END.CRC32.parquet` | young files, until they are merged into a sealed one |
| `archive/MACHINE/now.json` | the open steps and phases, and [waits](../how-to/what-is-owed.md), at most a second old |
| `archive/MACHINE/written.json` | the id of the run that the files state, and the number of items of each table |

- Usually there is one machine: the head writes for all. Without a head, each machine has a folder.
- `FIRST` and `END` number the items of a table from the start of the run. A gap in them shows that a file is missing.
- `CRC32` is the checksum of the file. Parquet itself does not notice a flipped bit.
- A note `otel_rl.run` in the footer of each file has a random id, which a run draws for the folder of a machine. A file
  that states another id than most of its folder is of another run: `open_run` leaves it out, and has it in `damaged`.
  Files of earlier versions have no such note, and are read.
- `written.json` shows that the last file of a table is missing. Without it, files are read all the same.
- Let other engines read sealed files only, so that they see no line twice. Of a run that goes on, they miss about the
  last 1,024 steps. `open_run` reads young files too. When a run ends, all files are sealed.
- A range in a file's name can cover those of other young files, which were merged into it. The longest range counts.
- While old files are thinned, the thinned file and the one that it replaces are both there for some milliseconds, or
  until the agent is started again if it is killed then. A plain glob counts these lines twice, `open_run` once.
- All tables are long: a new metric adds lines to `rows`, and changes no schema. Later versions add columns at the end.
- Columns of type `json` are texts in JSON. NaN and the infinities in them are objects such as `{"$float": "NaN"}`.

## The valid history

A run that resumes from a checkpoint repeats steps. The files have the lines of all attempts. From the first step of an
attempt on, the rows of all earlier attempts are void. If an attempt marks steps, the first one that it began counts.
Late rows are merged into the row of their step: they add names, and never replace a value that left in time. `open_run`
applies this rule to {valid}, and adds a column
`machine` to all tables. `open_runs` adds `run`, `project` and `run_name` too.

[One list](archive-tables.md) has these tables. `python -m tests.docs.archive_page` generates this page from it.
"""


def page() -> str:
    """Return the page."""
    *others, last = (f"`{table.name}`" for table in TABLES if table.history)
    return _HEAD.replace("{valid}", f"{', '.join(others)} and {last}") + "".join(
        f"\n## `{table.name}`\n\nA line is {table.brief}.\n\n| column | type | null | what |\n|---|---|---|---|\n"
        + "".join(
            f"| `{column.name}` | {_TYPES.get(column.kind, column.kind)} | {'yes' if column.can_be_null else ''}"
            f" | {column.brief} |\n"
            for column in table.columns
        )
        for table in TABLES
    )


_TYPES = {"id": "text", "int64s": "list of int64", "doubles": "list of double", "bools": "list of bool"}


if __name__ == "__main__":
    PAGE.write_text(page())
