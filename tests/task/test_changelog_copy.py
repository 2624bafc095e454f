"""A copy of stores that follows changelog topics: what it says of a changelog that is not of its store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest

from penstock import Materialized, Serdes, Stores, StreamsBuilder, TimeWindows, Topology
from penstock.config import StreamsConfig
from penstock.errors import ProcessorStateError
from penstock.plan.subtopology import TaskId
from penstock.record import RecordBatch, TopicPartition
from penstock.state.memory import MemoryBase
from penstock.task.changelog_copy import NO_COMMIT, ChangelogCopy, ChangelogStamp
from penstock.task.stream_task import StreamTask

CHANGELOG = TopicPartition("app-counts-changelog", 2)


def test_a_changelog_of_another_kind_of_store_is_named_with_what_to_do() -> None:
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    windowed.count(Materialized.as_("counts"))
    (part,) = builder.build().build("app").subtopologies
    text = Serdes.string()
    config = StreamsConfig({"application.id": "app", "default.key.serde": text, "default.value.serde": text})
    copy = ChangelogCopy(part.stores, {"counts": CHANGELOG}, config, MemoryBase())
    plain = RecordBatch.of([(b"a", (1).to_bytes(8, "big"), 0, 7, ())])
    with pytest.raises(ProcessorStateError, match="expected a key that ends in 12 bytes of window") as caught:
        copy.apply("counts", plain, 8)
    (note,) = caught.value.__notes__
    assert note.startswith(f"Store counts is restored from topic {CHANGELOG.topic}, partition 2, before offset 8.")
    assert note.endswith("give it another name, or start over with penstock reset FILE.")


def test_stamps_of_earlier_versions_have_no_commit() -> None:
    stamp = ChangelogStamp(
        {"s": "plain"}, {CHANGELOG: 3}, {"n/clock": 7}, {"in": "id"}, {TopicPartition("in", 2): 5}, commit=9
    )
    assert ChangelogStamp.decode(stamp.encode()) == stamp
    *before, _ = orjson.loads(stamp.encode())
    assert ChangelogStamp.decode(orjson.dumps(before)) == replace(stamp, commit=NO_COMMIT)
    assert ChangelogStamp.decode(orjson.dumps(before[:4])) == replace(stamp, commit=NO_COMMIT, inputs={})
    assert ChangelogStamp.decode(orjson.dumps(before[:3])) == ChangelogStamp(
        {"s": "plain"}, {CHANGELOG: 3}, {"n/clock": 7}
    )


def test_numbers_of_commits_grow_while_the_clock_is_behind() -> None:
    assert ChangelogStamp().next_commit(1_000) == 1_000
    assert ChangelogStamp(commit=1_000).next_commit(1_000) == 1_001
    assert ChangelogStamp(commit=1_000).next_commit(5) == 1_001


def test_the_state_after_a_commit_is_not_that_of_the_commit() -> None:
    (part,) = table().build("app").subtopologies
    text = Serdes.string()
    config = StreamsConfig({"application.id": "app", "default.key.serde": text, "default.value.serde": text})
    copy = ChangelogCopy(part.stores, {"kept": CHANGELOG}, config, MemoryBase())
    inputs = {TopicPartition("in", 2): 5}

    def known() -> tuple[dict[TopicPartition, int], int]:
        stamp = copy.base.stamp()
        assert stamp is not None
        found = ChangelogStamp.decode(stamp)
        return dict(found.inputs), found.commit

    copy.restored_to(inputs, 7)
    assert known() == (inputs, 7)
    copy.restored_to(inputs, 8)
    assert known() == (inputs, 8)
    copy.apply("kept", RecordBatch.of([(b"a", b"1", 0, 0, ())]), 1)
    assert known() == ({}, NO_COMMIT)
    copy.restored_to(inputs, 8)
    copy.filled({CHANGELOG: 9}, {})
    assert known() == ({}, NO_COMMIT)


READ = RecordBatch.of(
    [
        (b'{ "id" : 1 }', b'{"name": "a"}', 5, 0, ()),
        (b"no JSON", b"1", 6, 1, ()),
        (b'{"id":2}', b'{"name":"b"}', 7, 2, ()),
        (b'{"id": 2}', None, 8, 3, ()),
        (b'{"id":3}', b"no JSON", 9, 4, ()),
        (b'{"id": 4}', b"null", 9, 5, ()),
    ]
)
"""Records of other programs, which write JSON with spaces; some cannot be read."""


def table() -> Topology:
    builder = StreamsBuilder()
    builder.table("in", Materialized.as_("kept"))
    return builder.build({"topology.optimization": "reuse.ktable.source.topics"})


def versioned_table() -> Topology:
    builder = StreamsBuilder()
    builder.table("in", Materialized.as_(Stores.persistent_versioned_key_value_store("kept", 1000)))
    return builder.build({"topology.optimization": "reuse.ktable.source.topics"})


@pytest.mark.parametrize("make", [table, versioned_table])
@pytest.mark.parametrize("format", ["default", "headers"])
def test_a_store_is_restored_from_its_source_topic_as_the_task_fills_it(
    make: Callable[[], Topology], format: str
) -> None:
    (part,) = make().build("app").subtopologies
    json = Serdes.json()
    config = StreamsConfig(
        {
            "application.id": "app",
            "default.key.serde": json,
            "default.value.serde": json,
            "dsl.store.format": format,
            "deserialization.exception.handler": "LogAndContinueExceptionHandler",
        }
    )
    processed, restored = MemoryBase(), MemoryBase()
    task = StreamTask(part, TaskId(0, 0), config, processed, {"in": 1})
    task.add_records("in", 0, READ)
    task.initialize()
    task.process()
    task.committed(task.prepare_commit().changes, b"")
    task.close()
    copy = ChangelogCopy(part.stores, {"kept": TopicPartition("in", 0)}, config, restored)
    copy.apply("kept", READ, len(READ))
    entries = [list(base.view("kept").range(None, None, False)) for base in (processed, restored)]
    assert entries[0] == entries[1] != []
