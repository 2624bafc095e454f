"""The log of a task's changes."""

from __future__ import annotations

from penstock.state.change_logging_store import ChangeLog
from penstock.state.changelog_format import ChangelogRecord


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
