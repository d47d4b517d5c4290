"""Tables, samples and weights as a trainer records them."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from otel_rl import Run
from otel_rl.recorder.journal.records import Logged, Observed, Record, Refusals, Tabled
from tests.recorder.trainer.reading import RecordsOf, begin, refusals


def tables(records: list[Record]) -> list[Tabled]:
    return [record for record in records if isinstance(record, Tabled)]


def test_text_needs_to_be_asked_for(recording: Run, records_of: RecordsOf) -> None:
    """Without `content=True`, numbers are recorded and texts are not, anywhere."""
    recording.table("completions", {"prompt": ["What is 1 + 1?"], "reward": [0.5]}, step=3)
    (table,) = tables(records_of(recording))

    assert (table.name, table.step, table.columns, table.rows) == (
        "completions",
        3,
        ["prompt", "reward"],
        [(None, 0.5)],
    )
    assert not any(b"What is" in path.read_bytes() for path in recording.dir.rglob("*.seg"))


def test_text_that_was_asked_for(tmp_path: Path, records_of: RecordsOf) -> None:
    """It is recorded, without the secrets in it."""
    run = begin(tmp_path, content=True)
    with run.step(7):
        run.table("t", [{"prompt": "my key is hf_abcdefghijKLMNOPQRSTuvwxyz01234567"}, {"reward": 1}])
    (table,) = tables(records_of(run))

    assert (table.step, table.columns) == (7, ["prompt", "reward"])
    assert "[redacted]" in str(table.rows[0][0])
    assert table.rows[1] == (None, 1)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        *(
            (lambda run, data=data: run.table("t", data, step=0), "table")
            for data in ({"a": [1, 2], "b": [1]}, {"a": [[1, 2]]}, {}, 7, [1, 2], {"a": np.ones((2, 2))}, {1: [1]})
        ),
        (lambda run: run.completions(["p", "q"], [["a"]], step=0), "completions"),
    ],
)
def test_what_is_no_table_is_refused(
    recording: Run, records_of: RecordsOf, call: Callable[[Run], None], reason: str
) -> None:
    """It is counted, and nothing raises."""
    call(recording)
    records = records_of(recording)

    assert tables(records) == []
    assert [record.counts for record in records if isinstance(record, Refusals)] == [{reason: 1}]


def test_what_is_too_much_is_cut_and_counted(tmp_path: Path, records_of: RecordsOf) -> None:
    """Rows beyond the limit and long texts are."""
    run = begin(tmp_path, content=True)
    run.table("t", {"text": ["x" * 20_000] * 1, "n": [1]}, step=0)
    run.table("t", {"n": list(range(2000))}, step=0)
    records = records_of(run)
    first, second = tables(records)

    assert len(str(first.rows[0][0])) < 17_000
    assert (len(second.rows), second.cut_rows) == (1000, 1000)
    assert refusals(records) == {"table_limits": 2}


def test_samples_become_the_table_of_completions(tmp_path: Path, records_of: RecordsOf) -> None:
    """With its columns, ranks and shares."""
    run = begin(tmp_path, content=True)
    run.completions(["p"], [["a", "b", "c"]], rewards=[[1, 3, 3]], reward_components={"fmt": [[1, 0, 1]]}, step=2)
    (table,) = tables(records_of(run))
    cells = [dict(zip(table.columns, row, strict=True)) for row in table.rows]

    assert table.name == "completions"
    assert table.columns[-1] == "reward/fmt"
    assert [(row["completion"], row["reward_rank_desc"]) for row in cells] == [("a", 3), ("b", 1), ("c", 2)]


def test_scalars_and_arrays_in_one_call(recording: Run, records_of: RecordsOf) -> None:
    """Scalars are values with their weight, arrays are samples, at the same step."""
    recording.log({"loss": 0.5, "reward": np.array([1.0, 2.0]), "kl": [0.5]}, step=4, weight=3)
    records = records_of(recording)
    (scalars,) = [record for record in records if isinstance(record, Logged)]
    (samples,) = [record for record in records if isinstance(record, Observed)]

    assert (scalars.step, scalars.values, scalars.weight) == (4, {"loss": 0.5}, 3)
    assert {name: array("d", raw).tolist() for name, raw in samples.values.items()} == {
        "reward": [1.0, 2.0],
        "kl": [0.5],
    }
    assert samples.step == 4
