"""The topics of the broker: internal ones are the broker's own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_broker.common.clock import MockClock
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ApiError
from penstock_broker.metadata_store import MetadataStore
from penstock_broker.topics import OFFSETS_TOPIC, TopicRegistry
from penstock_broker.wire.error_codes import ErrorCode
from tests.broker.test_partition import batch


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[TopicRegistry]:
    store = MetadataStore(tmp_path / "metadata.sqlite")
    registry = TopicRegistry(BrokerConfig(data_dir=tmp_path, max_partitions=1), store, MockClock())
    yield registry
    registry.close()
    store.close()


def test_an_internal_topic_is_made_once_whatever_the_limit_of_partitions(topics: TopicRegistry) -> None:
    topics.create("t", 1, {})
    made = topics.internal_topic(OFFSETS_TOPIC)
    assert topics.internal_topic(OFFSETS_TOPIC) is made is topics.by_name(OFFSETS_TOPIC)
    assert (made.is_internal, len(made.partitions), made.configs["cleanup.policy"]) == (True, 1, "compact")
    assert not topics.by_name("t").is_internal


def test_clients_neither_create_grow_nor_delete_internal_topics(topics: TopicRegistry) -> None:
    def code_of(error: pytest.ExceptionInfo[ApiError]) -> ErrorCode:
        return error.value.code

    with pytest.raises(ApiError, match="only the broker") as caught:
        topics.create(OFFSETS_TOPIC, 1, {})
    assert code_of(caught) == ErrorCode.invalid_topic_exception
    made = topics.internal_topic(OFFSETS_TOPIC)
    for change in (lambda: topics.grow(made, 2), lambda: topics.delete(made)):
        with pytest.raises(ApiError, match="only the broker") as caught:
            change()
        assert code_of(caught) == ErrorCode.invalid_topic_exception
    assert topics.by_name(OFFSETS_TOPIC) is made


def test_a_deleted_topic_leaves_its_name_and_its_partitions_to_others(topics: TopicRegistry) -> None:
    made = topics.create("a.b", 1, {})
    with pytest.raises(ApiError, match=r"collides with existing topic: a\.b"):
        topics.create("a_b", 1, {})
    with pytest.raises(ApiError, match=r"limit of 1 .*1 are in use"):
        topics.create("c", 1, {})
    topics.delete(made)
    made = topics.create("a_b", 1, {})
    with pytest.raises(ApiError, match=r"limit of 1 .*1 are in use"):
        topics.grow(made, 2)


def test_a_start_names_the_partitions_whose_directory_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def reopened() -> TopicRegistry:
        return TopicRegistry(BrokerConfig(data_dir=tmp_path), store, MockClock())

    store = MetadataStore(tmp_path / "metadata.sqlite")
    topics = reopened()
    made = topics.create("t", 2, {})
    topics.grow(made, 3)
    topics.close()
    reopened().close()
    assert caplog.text == ""
    gone = tmp_path / "topics" / made.topic_id.hex / "2"
    shutil.rmtree(gone)
    (gone.with_name("1") / f"{0:020d}.log").unlink()
    topics = reopened()
    for path in (gone, gone.with_name("1")):
        assert f"t-{path.name}: all of its records are missing, because {path} is gone" in caplog.text
    assert caplog.text.count("missing") == 2
    assert topics.partition("t", 2).append(batch(1)) == 0
    topics.close()
    store.close()


def test_a_start_keeps_the_records_of_topics_that_the_database_does_not_know(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = MetadataStore(tmp_path / "metadata.sqlite")
    topics = TopicRegistry(BrokerConfig(data_dir=tmp_path), store, MockClock())
    lost, deleted = topics.create("lost", 1, {}), topics.create("deleted", 1, {})
    for topic in (lost, deleted):
        topic.partitions[0].append(batch(1))
    topics.delete(deleted)
    topics.close()
    store.delete_topic("lost")
    for _ in range(2):
        topics = TopicRegistry(BrokerConfig(data_dir=tmp_path), store, MockClock())
        assert topics.all() == []
    topics.close()
    store.close()
    [kept] = (tmp_path / "topics").iterdir()
    assert kept.name == f"{lost.topic_id.hex}.stray"
    assert (kept / "0" / f"{0:020d}.log").stat().st_size
    assert caplog.text.count(f"it is kept as {kept}") == 1
