"""Records can be large, such as messages of trajectories: an agent reads and sends a few of them at a time."""

from __future__ import annotations

from pathlib import Path

from otel_rl.recorder.agent.input.follow import Follower, NewRecord, forwarded
from otel_rl.recorder.journal.reader import Reader
from otel_rl.recorder.journal.records import AnyRecord, Record, WrittenMessage, Wrote
from otel_rl.recorder.journal.writer import Writer

MIB = 1 << 20


def wrote(number: int, size: int = MIB) -> Wrote:
    """Return a record of about so many bytes."""
    return Wrote(1, b"t" * 16, 1, "", number, [WrittenMessage("user", "x", logprobs=bytes(size))])


def write(journal: Path, count: int, size: int = MIB) -> None:
    journal.mkdir(parents=True)
    writer = Writer(journal)
    for number in range(count):
        writer.append(wrote(number, size))
    writer.close()


def test_a_read_stops_after_eight_mebibytes(tmp_path: Path) -> None:
    """It says that there is more; nothing is skipped and nothing is there twice."""
    write(tmp_path / "journal", 20)
    reader: Reader[Record] = Reader(tmp_path / "journal", AnyRecord)
    found, sizes = [], []
    while some := reader.read():
        found += some
        sizes.append((len(some), reader.has_more))
    reader.close()

    assert [one.number for one in found if isinstance(one, Wrote)] == [*range(20)]
    assert max(count for count, _ in sizes) <= 9
    assert [has_more for _, has_more in sizes] == [True, True, False]


def test_a_turn_reads_some_journals(tmp_path: Path) -> None:
    """Many workers after a pause of the agent do not fill its memory: the next turn goes on with the others."""
    for n in range(8):
        write(tmp_path / f"rank{n}.attempt0.0123456789abcde{n}", 9)
    follower = Follower(tmp_path, {})
    follower.find_new()
    turns: list[list[NewRecord]] = []
    while found := [one for one in follower.read(5_000, 0) if isinstance(one.record, Wrote)]:
        turns.append(found)

    assert sum(map(len, turns)) == 72
    assert max(map(len, turns)) <= 45
    assert len({(one.journal, one.record.number) for found in turns for one in found}) == 72  # type: ignore[attr-defined]


def test_records_for_a_head_are_items_of_four_mebibytes() -> None:
    """Each can be a request of its own; together they have every record once, in order."""
    found = [NewRecord(f"rank{n % 2}", wrote(n)) for n in range(20)]
    counts = {"rank1": 7}
    items = forwarded(found, counts)

    assert max(sum(map(len, item.records)) for item in items) < 6 * MIB
    for journal, before in (("rank0", 0), ("rank1", 7)):
        of_it = [item for item in items if item.journal == journal]
        assert [one.first for one in of_it] == [before, before + 4, before + 8]
        assert sum(len(one.records) for one in of_it) == 10
    assert counts == {"rank0": 10, "rank1": 17}
