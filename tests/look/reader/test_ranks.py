"""Rows over ranks: what 1 to 16 of them logged is read back bit for bit, from the journals' records to the reader."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import otel_rl
from otel_rl.export import Item
from otel_rl.recorder.archive.writer import ArchiveWriter
from otel_rl.recorder.directory.parts import ARCHIVE
from otel_rl.recorder.journal.records import Finished, Logged, Record, StepEnded, StepStarted
from tests.recorder.agent.reducing import S, reducing, started

VALUES = st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1 / 3]) | st.floats()
LOGGED = st.dictionaries(st.sampled_from(["loss", "kl", "time/x", "weiß 'x'"]), VALUES, max_size=3)
"""Values of a step, whose names change from step to step."""


class Training:
    """A training whose ranks log values, and what its valid history is: an oracle.

    Attributes:
        expected: The bits of values by step and name.
    """

    def __init__(self, directory: Path, ranks: int, data: st.DataObject) -> None:
        self.expected: dict[tuple[int, str], bytes] = {}
        self._writer, self._reducer = ArchiveWriter(directory / ARCHIVE / "local", 1 << 60), reducing()
        self._ranks, self._data, self._attempt, self._now = ranks, data, -1, S

    def attempt(self, first: int, end: int) -> None:
        """Go through steps; values of a repeated step replace all that it had, and one comes late."""
        draw = self._data.draw
        self._attempt += 1
        self.expected = {key: value for key, value in self.expected.items() if key[0] < first}
        for rank in range(self._ranks):
            self._feed(rank, started(rank, local=self._ranks, attempt=self._attempt))
        for step in range(first, end):
            self._now += 2 * S
            for rank in range(self._ranks):
                values = {f"{name}/{rank}": value for name, value in draw(LOGGED).items()}
                self._expect(step, values)
                begun, ended = StepStarted(step, self._now, b""), StepEnded(step, self._now + S, b"")
                self._feed(rank, begun, Logged(step, self._now, values), ended)
        self._now += 2 * S
        for rank in range(self._ranks):  # the steps are closed when all ranks are in the next one
            self._feed(rank, StepStarted(end, self._now, b""))
        step, late = draw(st.integers(first, end - 1)), {"late": draw(VALUES)}
        self._expect(step, late)
        self._feed(draw(st.integers(0, self._ranks - 1)), Logged(step, self._now, late))
        for rank in range(self._ranks):
            self._feed(rank, StepEnded(end, self._now, b""), Finished(self._now))
        self._keep(self._reducer.tick(self._now).items)

    def save(self) -> None:
        """Write what is in no file yet."""
        self._writer.save(seals=self._data.draw(st.booleans()))

    def _expect(self, step: int, values: dict[str, float]) -> None:
        self.expected |= {(step, name): bits(value) for name, value in values.items()}

    def _feed(self, rank: int, *records: Record) -> None:
        name = f"rank{rank}.attempt{self._attempt}"
        self._keep(self._reducer.feed([(name, record) for record in records]).items)
        if self._data.draw(st.integers(0, 9)) == 0:
            self.save()

    def _keep(self, items: Sequence[Item]) -> None:
        for item in items:
            self._writer.add(item)


@pytest.mark.slow
@settings(max_examples=20, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.integers(1, 16), st.data())
def test_what_ranks_logged_is_read(tmp_path_factory: pytest.TempPathFactory, ranks: int, data: st.DataObject) -> None:
    """With names that change, values that come late, and attempts that repeat steps, in young and sealed files."""
    directory = tmp_path_factory.mktemp("run")
    training = Training(directory, ranks, data)
    first = reached = data.draw(st.integers(0, 9))
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(first, reached))
        reached = begin + data.draw(st.integers(1, 3))
        training.attempt(begin, reached)
    training.save()
    found = otel_rl.open_run(directory).rows()
    lines = [*zip(found["step"].tolist(), found["name"], map(bits, found["value"].tolist()), strict=True)]
    own = re.compile(r"(loss|kl|time/x|weiß 'x')/[0-9]+|late")

    assert {(step, name): value for step, name, value in lines if own.fullmatch(name)} == training.expected
    assert len({line[:2] for line in lines}) == len(lines)


def bits(value: float) -> bytes:
    """Return the bits of a value; there is one NaN."""
    return struct.pack("d", math.nan if math.isnan(value) else value)
