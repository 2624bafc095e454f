"""Copies of a topic in a table: several processes, crashes at each step, deleted records, and topics created again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.api import Admin, Fetcher
from penstock.errors import OffsetOutOfRangeError, StreamsError
from penstock.host.commits.purging import RecordPurge
from penstock.host.crashpoints import LAKE_POINTS
from penstock.host.lake import copying
from penstock.host.lake.copying import Clients, TopicCopy
from penstock.lake.tables import LakeConflictError, TopicIncarnation
from penstock.record import RecordBatch, TopicPartition

TOPIC = "app-orders-lake"
PARTITIONS = 2
Row = tuple[int, int, bytes]


class Crash(BaseException):
    """The end of a process."""


class Topic:
    """A topic in memory: an Admin and a Fetcher of as much as a copy uses. Some offsets are markers."""

    def __init__(self) -> None:
        self.life = 0
        self.logs: dict[int, list[bytes | None]] = {n: [] for n in range(PARTITIONS)}
        self.firsts = dict.fromkeys(range(PARTITIONS), 0)

    def recreate(self) -> None:
        life = self.life + 1
        self.__init__()  # type: ignore[misc]  # everything begins again but the number of the life
        self.life = life

    def write(self, partition: int, *values: bytes | None) -> None:
        self.logs[partition].extend(values)

    def rows(self) -> list[Row]:
        """Return the records, also those that were deleted."""
        return [
            (self.life, partition, value) for partition, log in self.logs.items() for value in log if value is not None
        ]

    def topics(self) -> dict[str, int]:
        return {TOPIC: PARTITIONS}

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        return dict.fromkeys(names, f"life-{self.life}")

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: self.firsts[each.partition] for each in partitions}

    def end_offsets(
        self, partitions: Sequence[TopicPartition], read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        assert read_committed
        return {each: len(self.logs[each.partition]) for each in partitions}

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        for partition, offset in before.items():
            self.firsts[partition.partition] = max(offset, self.firsts[partition.partition])

    def fetch(self, partition: TopicPartition, start: int, end: int, read_committed: bool) -> Iterator[RecordBatch]:
        assert read_committed
        for offset in range(start, end):
            if start < self.firsts[partition.partition]:
                raise OffsetOutOfRangeError(f"{partition} begins at {self.firsts[partition.partition]}")
            value = self.logs[partition.partition][offset]
            if value is not None:
                yield RecordBatch.of([(str(self.life).encode(), value, 0, offset, ())])

    def close(self) -> None:
        pass


class Table:
    """A table in memory with versions, which refuses a commit that is not on top of the newest one."""

    def __init__(self) -> None:
        self.version = 0
        self.rows: list[Row] = []
        self.kept: dict[TopicIncarnation, dict[int, int]] = {}


class OpenTable:
    """A table as a process sees it (LakeTarget)."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.refresh()

    def refresh(self) -> None:
        self._version = self._table.version
        self._kept = dict(self._table.kept)

    def offsets(self, source: TopicIncarnation) -> Mapping[int, int]:
        return self._kept.get(source, {})

    def rows(self, partition: TopicPartition, batch: RecordBatch) -> Any:
        return [(int(key), partition.partition, value) for key, value in zip(batch.keys, batch.values, strict=True)]

    def commit(self, rows: Any, source: TopicIncarnation, offsets: Mapping[int, int]) -> None:
        if self._version != self._table.version:
            raise LakeConflictError("the table has another version")
        self._table.version += 1
        self._table.rows.extend(row for part in rows for row in part)
        self._table.kept[source] = dict(offsets)


def copy_of(topic: Topic, table: Table, max_bytes: int = 1_000) -> TopicCopy:
    """Return a copy as a new process makes it; it deletes what it has copied at once."""
    admin: Admin = topic  # type: ignore[assignment]  # as much of it as a copy uses
    fetcher: Fetcher = topic
    clients = Clients(admin, fetcher, RecordPurge(0, lambda: 0))
    return TopicCopy(TOPIC, clients, OpenTable(table), max_bytes)


def at_points(monkeypatch: pytest.MonkeyPatch, action: Callable[[str], None]) -> None:
    monkeypatch.setattr(copying, "crash_point", lambda name, _: action(name))


STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, PARTITIONS - 1), st.integers(1, 4)),
    st.tuples(st.just("copy"), st.integers(0, 2), st.sampled_from(["", "", *LAKE_POINTS])),
    st.tuples(st.just("overtake"), st.integers(0, 2), st.integers(1, 2)),  # by one of the two other processes
    st.tuples(st.just("markers"), st.integers(0, PARTITIONS - 1), st.integers(1, 2)),
)


@given(st.lists(STEPS, max_size=40), st.sampled_from([1, 3, 1_000]))
def test_each_record_is_one_row_whoever_copies_and_dies(steps: list[tuple[str, int, Any]], max_bytes: int) -> None:
    topic, table = Topic(), Table()
    copies = [copy_of(topic, table, max_bytes) for _ in range(3)]
    written = 0
    with pytest.MonkeyPatch.context() as patch:
        for step, which, detail in steps:
            if step == "write":
                topic.write(which, *(b"%d" % number for number in range(written, written + detail)))
                written += detail
            elif step == "markers":
                topic.write(which, *[None] * detail)
            elif step == "copy":
                at_points(patch, crashing_at(detail))
                try:
                    copies[which].run(is_last=False)
                except Crash:
                    copies[which] = copy_of(topic, table, max_bytes)
            else:
                at_points(patch, once(lambda other=(which + detail) % 3: copies[other].run(is_last=True)))
                copies[which].run(is_last=False)
        at_points(patch, lambda _: None)
        copy_of(topic, table, max_bytes).run(is_last=True)
    assert sorted(table.rows) == sorted(topic.rows())


def crashing_at(point: str) -> Callable[[str], None]:
    def strike(name: str) -> None:
        if name == point:
            raise Crash

    return strike


def once(action: Callable[[], None]) -> Callable[[str], None]:
    """Return what calls `action` between the read of the first commit and its write."""
    left = [action]

    def call(name: str) -> None:
        if name == "lake.read" and left:
            left.pop()()

    return call


def test_a_topic_that_was_created_again_is_copied_from_its_beginning() -> None:
    topic, table = Topic(), Table()
    copy = copy_of(topic, table)
    topic.write(0, b"a", b"b")
    copy.run(is_last=False)
    before = topic.rows()
    topic.recreate()
    topic.write(0, b"c")
    copy.run(is_last=False)
    assert table.rows == [*before, *topic.rows()]


def test_a_process_leaves_the_copy_to_another_one_until_that_makes_no_progress() -> None:
    topic, table = Topic(), Table()
    first, second = copy_of(topic, table), copy_of(topic, table)
    topic.write(0, b"a")
    first.run(is_last=False)
    topic.write(0, b"b")
    second.run(is_last=False)  # it has seen no progress yet
    assert len(table.rows) == 2
    topic.write(0, b"c")
    rounds = 0
    while len(table.rows) < 3:
        first.run(is_last=False)
        rounds += 1
    assert rounds == 3


def test_the_end_of_an_application_waits_for_no_other_process() -> None:
    topic, table = Topic(), Table()
    first, second = copy_of(topic, table), copy_of(topic, table)
    for copy in (first, second):
        topic.write(0, b"a")
        copy.run(is_last=False)
    topic.write(0, b"b")
    first.run(is_last=True)
    assert len(table.rows) == 3


def test_a_commit_has_as_many_bytes_as_allowed() -> None:
    topic, table = Topic(), Table()
    topic.write(0, *[b"12345"] * 9)
    topic.write(1, *[b"12345"] * 3)
    copy_of(topic, table, max_bytes=24).run(is_last=False)
    assert (len(table.rows), table.version) == (12, 4)  # 2 records of each partition, then 4 of the longer one


def test_a_table_that_changes_all_the_time_is_left_for_the_next_round(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic, table = Topic(), Table()
    topic.write(0, b"a")
    copy = copy_of(topic, table)

    def change(name: str) -> None:
        table.version += 1

    at_points(monkeypatch, change)
    copy.run(is_last=False)
    assert f"The table of {TOPIC} changed 10 times" in caplog.text
    with pytest.raises(LakeConflictError, match=f"The table of {TOPIC} changed 10 times .* the next start adds them"):
        copy.run(is_last=True)
    at_points(monkeypatch, lambda _: None)
    copy.run(is_last=False)
    assert len(table.rows) == 1


@pytest.mark.parametrize("copied", [0, 1])
def test_records_that_were_deleted_before_the_copy_are_an_error(copied: int) -> None:
    topic, table = Topic(), Table()
    copy = copy_of(topic, table)
    topic.write(copied, b"a")  # with 0, the table has no record of partition 1
    copy.run(is_last=False)
    topic.write(1, b"b", b"c")
    topic.delete_records({TopicPartition(TOPIC, 1): copied + 1})
    with pytest.raises(StreamsError, match=rf"Records {copied} to {copied} of app-orders-lake-1 were deleted before"):
        copy.run(is_last=False)


def test_a_new_table_begins_at_the_first_records_that_partitions_still_have() -> None:
    topic, table = Topic(), Table()
    topic.write(0, b"a")
    topic.write(1, b"b")
    topic.delete_records({TopicPartition(TOPIC, 1): 1})
    copy = copy_of(topic, table)
    copy.run(is_last=False)
    topic.write(1, b"c")
    copy.run(is_last=False)
    assert table.rows == [(0, 0, b"a"), (0, 1, b"c")]


def test_another_process_may_copy_records_that_are_newer_than_the_ends_of_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, table = Topic(), Table()
    copy, other = copy_of(topic, table), copy_of(topic, table)
    topic.write(0, b"a")
    copy.run(is_last=False)
    ask = topic.end_offsets

    def ask_late(partitions: Sequence[TopicPartition], read_committed: bool = False) -> dict[TopicPartition, int]:
        ends = ask(partitions, read_committed)
        monkeypatch.setattr(topic, "end_offsets", ask)
        topic.write(0, b"b")
        other.run(is_last=True)
        return ends

    monkeypatch.setattr(topic, "end_offsets", ask_late)
    copy.run(is_last=True)
    assert table.rows == topic.rows()


@pytest.mark.parametrize("moment", ["read", "ends"])
def test_a_topic_that_is_created_again_during_a_copy_is_copied_from_its_beginning(
    monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    topic, table = Topic(), Table()
    copy = copy_of(topic, table)
    topic.write(0, b"a", b"b")
    copy.run(is_last=False)
    before = topic.rows()
    topic.write(0, b"c")
    name = {"read": "fetch", "ends": "beginning_offsets"}[moment]
    ask = getattr(topic, name)

    def ask_after_a_reset(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(topic, name, ask)
        topic.recreate()
        topic.write(0, *([b"d", b"e", b"f"] if moment == "read" else [b"d"]))
        return ask(*arguments, **options)

    monkeypatch.setattr(topic, name, ask_after_a_reset)
    copy.run(is_last=False)
    assert table.rows == [*before, *topic.rows()]


def test_a_topic_that_is_shorter_than_its_copy_is_an_error() -> None:
    topic, table = Topic(), Table()
    topic.write(1, b"a", b"b")
    copy_of(topic, table).run(is_last=False)
    topic.logs[1].clear()
    topic.firsts[1] = 0
    with pytest.raises(StreamsError, match=r"before offset 2 of app-orders-lake-1, which ends at 0"):
        copy_of(topic, table).run(is_last=False)


def test_a_missing_topic_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic()
    monkeypatch.setattr(topic, "topics", dict)
    with pytest.raises(StreamsError, match=f"Topic {TOPIC}, which is copied to a table, does not exist any more"):
        copy_of(topic, Table()).run(is_last=False)


def test_a_new_table_of_an_old_topic_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    topic, table = Topic(), Table()
    topic.write(0, b"a", b"b")
    topic.delete_records({TopicPartition(TOPIC, 0): 1})
    with caplog.at_level(logging.WARNING):
        copy_of(topic, table).run(is_last=False)
    assert "no offset of app-orders-lake-0, whose records before 1 are deleted" in caplog.text
    assert table.rows == [(0, 0, b"b")]
