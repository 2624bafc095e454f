"""The log of a task's changes."""

from __future__ import annotations

import pytest

from penstock.state.api import RecordContext
from penstock.state.change_logging_store import ChangeLog, ChangeLoggingStore, StoreChangeLog
from penstock.state.changelog_format import ChangelogRecord, ChangelogValues, KeyValueFormat
from penstock.state.memory import MemoryBase
from penstock.state.uncommitted import UncommittedStore
from tests.support.stores import CONTEXT


def test_a_host_takes_the_records_by_topic_as_columns() -> None:
    log = ChangeLog({"s": "s-changelog", "t": "t-changelog"})
    for store, key, value, timestamp in (
        ("s", b"a", b"1", 5),
        ("t", b"a", b"2", None),
        ("s", b"b", None, 6),
        ("s", b"a", b"3", 7),
    ):
        log.add(store, [ChangelogRecord(key, value, timestamp, (("h", b"x"),) if store == "t" else ())])
    taken = log.take_batches(now_ms=99)
    assert {topic: (batch.keys, batch.values, batch.timestamps.tolist()) for topic, batch in taken.items()} == {
        "s-changelog": ([b"b", b"a"], [None, b"3"], [6, 7]),
        "t-changelog": ([b"a"], [b"2"], [99]),
    }
    assert taken["t-changelog"].headers_at(0) == (("h", b"x"),)
    assert log.take_batches(now_ms=99) == {}


def log_of_store() -> tuple[ChangeLog, StoreChangeLog]:
    log = ChangeLog({"s": "topic"})
    return log, StoreChangeLog("s", KeyValueFormat(ChangelogValues(logs_headers=True)), lambda: CONTEXT, log)


def test_only_named_stores_are_collected() -> None:
    log, _ = log_of_store()
    assert (log.logs("s"), log.logs("topic")) == (True, False)


def test_a_key_that_is_written_again_moves_to_the_end() -> None:
    log, of_store = log_of_store()
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", None)):
        of_store.put(key, value)
    assert [(topic, record.key, record.value) for topic, record in log.take()] == [
        ("topic", b"b", b"2"),
        ("topic", b"a", None),
    ]
    assert log.take() == []


def test_every_version_of_a_key_is_kept() -> None:
    log, of_store = log_of_store()
    for time in (5, 9, 7):
        of_store.put_version(b"a", b"v", time)
    assert [record for _, record in log.take()] == [ChangelogRecord(b"a", b"v", time) for time in (5, 9, 7)]


@pytest.mark.parametrize("contexts", [None, [RecordContext(1, ()), RecordContext(2, (("x", None),))]])
def test_a_write_reaches_the_store_and_its_log_with_its_context(contexts: list[RecordContext] | None) -> None:
    log, of_store = log_of_store()
    store = ChangeLoggingStore(UncommittedStore(MemoryBase().view("s")), of_store)
    store.put(b"c", None)
    store.put_many([b"a", b"b"], [b"1", None], contexts)
    assert store.changes() == {b"c": None, b"a": b"1", b"b": None}
    first, second = contexts or [CONTEXT] * 2
    assert [record for _, record in log.take()] == [
        ChangelogRecord(b"c", None, CONTEXT.timestamp, CONTEXT.headers),
        ChangelogRecord(b"a", b"1", first.timestamp, first.headers),
        ChangelogRecord(b"b", None, second.timestamp, second.headers),
    ]
