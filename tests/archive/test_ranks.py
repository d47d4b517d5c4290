"""Rows over ranks: what 1 to 16 of them logged is read back bit for bit, from the journals' records to the reader."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import otel_rl
from otel_rl.archive.writer import Writer
from otel_rl.journal.records import Finished, Logged, StepEnded, StepStarted
from otel_rl.setup.parts import ARCHIVE
from tests.agent.reducing import S, reducing, started

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from otel_rl.export import Item
    from otel_rl.journal.records import Record

VALUES = st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1 / 3]) | st.floats()
LOGGED = st.dictionaries(st.sampled_from(["loss", "kl", "time/x", "weiß 'x'"]), VALUES, max_size=3)
"""Values of a step, whose names change from step to step."""


@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.integers(1, 16), st.data())
def test_what_ranks_logged_is_read(tmp_path_factory: pytest.TempPathFactory, ranks: int, data: st.DataObject) -> None:
    """With names that change and values that come late, in young and sealed files."""
    directory = tmp_path_factory.mktemp("run")
    writer, reducer = Writer(directory / ARCHIVE / "local", 1 << 60), reducing(whole_world=True)
    expected: dict[tuple[int, str], bytes] = {}
    now = S

    def keep(items: Sequence[Item]) -> None:
        for item in items:
            writer.add(item)

    def feed(rank: int, *records: Record) -> None:
        keep(reducer.feed([(f"rank{rank}", record) for record in records]).items)
        if data.draw(st.integers(0, 9)) == 0:
            writer.save(seals=data.draw(st.booleans()))

    first = data.draw(st.integers(0, 9))
    end = first + data.draw(st.integers(1, 4))
    for rank in range(ranks):
        feed(rank, started(rank, local=ranks))
    for step in range(first, end):
        now += 2 * S
        for rank in range(ranks):
            values = {f"{name}/{rank}": value for name, value in data.draw(LOGGED).items()}
            expected |= {(step, name): bits(value) for name, value in values.items()}
            feed(rank, StepStarted(step, now, b""), Logged(step, now, values), StepEnded(step, now + S, b""))
    for rank in range(ranks):  # the steps are closed when all ranks are in the next one
        feed(rank, StepStarted(end, now + 2 * S, b""))
    step, rank = data.draw(st.integers(first, end - 1)), data.draw(st.integers(0, ranks - 1))
    late = {"late": data.draw(VALUES)}
    expected |= {(step, name): bits(value) for name, value in late.items()}
    feed(rank, Logged(step, now + 2 * S, late))
    now += 2 * S
    for rank in range(ranks):
        feed(rank, StepEnded(end, now, b""), Finished(now))
    keep(reducer.tick(now).items)
    writer.save(seals=data.draw(st.booleans()))
    found = otel_rl.open_run(directory).rows()
    lines = [*zip(found["step"].tolist(), found["name"], map(bits, found["value"].tolist()), strict=True)]
    logged = {(step, name): value for step, name, value in lines if name in {name for _, name in expected}}

    assert logged == expected
    assert len({line[:2] for line in lines}) == len(lines)


def bits(value: float) -> bytes:
    """Return the bits of a value; there is one NaN."""
    return struct.pack("d", math.nan if math.isnan(value) else value)
