"""Which topics an application has used stands beside its offsets, and which of them are gone is found from there."""

from __future__ import annotations

import pytest

from penstock import Backoff, Calls, Consumed, Park, Serdes
from penstock.client.api import OffsetAndMetadata
from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Materialized
from penstock.errors import MissingInternalTopicError, StreamsError
from penstock.host.commits.committing import MOST_BYTES, checkpoint_of, offsets_of
from penstock.host.deployment.layout import Layout, layout_of
from penstock.host.deployment.lost_topics import LostTopic, check_topics, lost_topics, topic_entries, used_topics
from penstock.plan.subtopology import TaskId
from penstock.plan.topology import built_topology
from penstock.record import TopicPartition
from penstock.task.task_checkpoint import TaskCheckpoint

IDS = {"in": "1" + "A" * 21, "app-one-changelog": "2" + "A" * 21, "app-two-changelog": "3" + "A" * 21}


def layout(*stores: str) -> Layout:
    """Return an application that counts by key, once for each of `stores`."""
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    for store in stores:
        grouped.count(Materialized.as_(store))
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "nowhere:1"}, environment={})
    return layout_of(built_topology(builder.build(), "app"), config, {"in": 2})


def committed(of: Layout, ids: dict[str, str]) -> dict[TopicPartition, OffsetAndMetadata]:
    entries = topic_entries(ids, used_topics(of.topology, of.specs[0]))
    return offsets_of(TaskId(0, 0), {TopicPartition("in", 0): 7}, TaskCheckpoint(), entries)


def test_a_changelog_that_was_deleted_is_lost_and_one_of_a_new_store_is_not() -> None:
    offsets, now = committed(layout("one"), IDS), layout("one", "two")
    found = lost_topics(now, {"in": 2}, IDS, offsets)
    assert found == [LostTopic("app-one-changelog", "one", exists=False)]
    assert lost_topics(now, {"in": 2, "app-one-changelog": 2}, IDS, offsets) == []
    assert lost_topics(now, {"in": 2}, IDS, {TopicPartition("in", 0): OffsetAndMetadata(7)}) == []


def test_a_topic_that_was_created_again_is_lost_unless_the_brokers_give_no_ids() -> None:
    offsets, topics = committed(layout("one"), IDS), {"in": 2, "app-one-changelog": 2}
    other = IDS | {"app-one-changelog": "9" + "A" * 21}
    assert lost_topics(layout("one"), topics, other, offsets) == [LostTopic("app-one-changelog", "one", exists=True)]
    assert lost_topics(layout("one"), topics, {}, offsets) == []
    assert lost_topics(layout("one"), topics, other, committed(layout("one"), {})) == []


def test_topics_of_answers_and_of_requests_must_exist_too() -> None:
    async def ask(value: str) -> str:
        return value

    builder, text = StreamsBuilder(), Serdes.string()
    stream = builder.stream("in", Consumed.with_(text, text)).map_values(ask, calls=Calls(), named="ask")
    stream.foreach(print, on_error=Park(backoff=Backoff(1_000), attempts=2, value_serde=text), named="charge")
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "nowhere:1"}, environment={})
    found = layout_of(built_topology(builder.build(), "app"), config, {"in": 2})
    topics = {"app-ask-answers": 2, "app-charge-parked-requests": 2}
    assert {name: found.topic_partitions[name] for name in topics} == topics
    assert found.task_partitions(TaskId(0, 1)) == tuple(TopicPartition(name, 1) for name in topics)
    assert found.groups[TaskId(0, 1)] == (TopicPartition("in", 1),)
    with pytest.raises(MissingInternalTopicError) as raised:
        check_topics(found, {"in": 2}, {}, committed(found, {}))
    text_of_error = str(raised.value)
    assert "app-ask-answers (the answers of ask)" in text_of_error
    assert "app-charge-parked-requests (the requests about charge-parked)" in text_of_error


def test_the_error_names_the_topic_and_the_ways_out() -> None:
    offsets = committed(layout("one"), IDS)
    with pytest.raises(MissingInternalTopicError) as raised:
        check_topics(layout("one"), {"in": 2}, IDS, offsets)
    text = str(raised.value)
    ways = "--from-state", "penstock reset", "--as-they-are"
    assert "app-one-changelog (the changelog of store one)" in text
    assert all(way in text for way in ways)
    with pytest.raises(StreamsError, match="created again since the application read them: in"):
        check_topics(layout("one"), {"in": 2, "app-one-changelog": 2}, IDS | {"in": "9" + "A" * 21}, offsets)


def test_the_entries_are_nothing_that_processors_remember_and_give_way_to_it() -> None:
    offsets = committed(layout("one"), IDS)
    assert checkpoint_of(offsets, {}, {}).processor_metadata == {}
    remembered = {"n" * (MOST_BYTES // 2): 1}
    checkpoint, entries = TaskCheckpoint(processor_metadata=remembered), topic_entries({}, map(str, range(100)))
    full = offsets_of(TaskId(0, 0), {TopicPartition("in", 0): 7}, checkpoint, entries)
    assert checkpoint_of(full, {}, {}).processor_metadata == remembered
