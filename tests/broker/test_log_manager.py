"""What a running broker does with its logs from time to time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_broker.batch import read_header
from penstock_broker.common.clock import MockClock
from penstock_broker.config import BrokerConfig
from penstock_broker.log_manager import LogManager
from penstock_broker.metadata_store import MetadataStore
from penstock_broker.process import BrokerProcess
from penstock_broker.topics import TopicRegistry
from tests.support.api_keys import FETCH
from tests.support.protocol_client import ProtocolClient
from tests.support.record_batches import BatchRecord, encode_batch
from tests.support.topic_requests import create, fetch_body, fetched, produce
from tests.support.waiting import WAIT_SECONDS, until

SMALL_SEGMENTS = {"internal.segment.bytes": "150"}


def test_a_running_broker_deletes_old_records_and_serves_what_is_left(tmp_path: Path) -> None:
    arguments = ("--log-retention-ms", "1000", "--log-retention-check-interval-ms", "20")
    with BrokerProcess(tmp_path, arguments=arguments) as broker, ProtocolClient(broker.bootstrap_servers) as client:
        create(client, "kept", 1, configs=[{"name": "retention.ms", "value": "-1"}])
        create(client, "deleted", 1)
        for topic in ("kept", "deleted"):
            produce(client, topic)
        assert until(lambda: fetched(client.call(FETCH, 16, fetch_body(client, "deleted", 3)))["log_start_offset"] == 3)
        assert produce(client, "deleted")["base_offset"] == 3
        assert fetched(client.call(FETCH, 16, fetch_body(client, "kept", 0)))["log_start_offset"] == 0


def test_a_running_broker_compacts_and_serves_what_is_left(tmp_path: Path) -> None:
    arguments = ("--log-cleaner-backoff-ms", "20")
    with BrokerProcess(tmp_path, arguments=arguments) as broker, ProtocolClient(broker.bootstrap_servers) as client:
        configs = {"cleanup.policy": "compact", "internal.segment.bytes": "200", "min.cleanable.dirty.ratio": "0.01"}
        create(client, "compacted", 1, configs=[{"name": name, "value": value} for name, value in configs.items()])
        for _ in range(20):
            produce(client, "compacted")

        def first_offset() -> int:
            answer = client.call(FETCH, 16, fetch_body(client, "compacted", 0))
            return read_header(fetched(answer)["records"]).base_offset

        assert until(lambda: first_offset() >= 50)
        assert produce(client, "compacted")["base_offset"] == 60


def append(topics: TopicRegistry, name: str, count: int) -> None:
    for _ in range(count):
        topics.partition(name, 0).append(memoryview(encode_batch([BatchRecord(0, b"k", b"v" * 50)])))


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[TopicRegistry]:
    store = MetadataStore(tmp_path / "metadata.sqlite")
    opened = TopicRegistry(BrokerConfig(data_dir=tmp_path), store, MockClock())
    yield opened
    opened.close()
    store.close()


def segments_of(directory: Path, topics: TopicRegistry, name: str) -> list[Path]:
    return sorted((directory / "topics" / topics.by_name(name).topic_id.hex / "0").glob("*.log"))


def test_the_dirtiest_log_is_compacted_first_and_a_damaged_one_not_again(tmp_path: Path, topics: TopicRegistry) -> None:
    manager = LogManager(BrokerConfig(data_dir=tmp_path), topics, MockClock())
    for name, count in (("clean", 6), ("dirtier", 6), ("dirtiest", 6), ("deleted", 9)):
        policy = "delete" if name == "deleted" else "compact"
        topics.create(name, 1, SMALL_SEGMENTS | {"cleanup.policy": policy})
        append(topics, name, count)
    for name, more in (("clean", 0), ("dirtier", 6), ("dirtiest", 12)):
        for _ in topics.partition(name, 0).clean(1 << 20, 0):
            pass
        append(topics, name, more)
    damaged = segments_of(tmp_path, topics, "dirtier")[-2]
    damaged.write_bytes(b"\x00" * damaged.stat().st_size)
    order = []
    for _ in manager.clean():
        sizes = {name: topics.partition(name, 0).dirtiness(0).is_due for name in ("dirtier", "dirtiest")}
        if sizes not in order:
            order.append(sizes)
    assert order[0] == {"dirtier": True, "dirtiest": True}
    assert order[1] == {"dirtier": True, "dirtiest": False}


def test_a_log_whose_files_cannot_be_read_does_not_keep_others_from_compaction(
    tmp_path: Path, topics: TopicRegistry
) -> None:
    manager = LogManager(BrokerConfig(data_dir=tmp_path), topics, MockClock())
    for name, count in (("damaged", 9), ("other", 6)):
        topics.create(name, 1, SMALL_SEGMENTS | {"cleanup.policy": "compact"})
        append(topics, name, count)
    first = segments_of(tmp_path, topics, "damaged")[0]
    first.rename(tmp_path / "elsewhere")
    for _ in manager.clean():
        pass
    assert topics.partition("damaged", 0).dirtiness(0).is_due
    assert not topics.partition("other", 0).dirtiness(0).is_due
    (tmp_path / "elsewhere").rename(first)
    for _ in manager.clean():
        pass
    assert not topics.partition("damaged", 0).dirtiness(0).is_due


def test_retention_begins_soon_after_the_start_whatever_its_interval(tmp_path: Path, topics: TopicRegistry) -> None:
    config = BrokerConfig(data_dir=tmp_path, log_initial_task_delay_ms=10)
    partition = topics.create("topic", 1, {"retention.ms": "1"}).partitions[0]
    append(topics, "topic", 1)

    async def wait_until_it_is_deleted() -> None:
        keeping = asyncio.create_task(LogManager(config, topics, MockClock(1 << 40)).run())
        while partition.start_offset != 1:
            await asyncio.sleep(0.01)
        keeping.cancel()

    asyncio.run(asyncio.wait_for(wait_until_it_is_deleted(), WAIT_SECONDS))


def test_a_closed_segment_is_forced_to_disk_once_and_by_a_thread(
    tmp_path: Path, topics: TopicRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create("topic", 1, SMALL_SEGMENTS)
    append(topics, "topic", 4)
    *closed, active = segments_of(tmp_path, topics, "topic")
    expected = [path.stat().st_ino for path in closed]
    forced: list[int] = []
    by_threads = 0
    monkeypatch.setattr(os, "fsync", lambda descriptor: forced.append(os.fstat(descriptor).st_ino))
    manager = LogManager(BrokerConfig(data_dir=tmp_path), topics, MockClock())
    for rest in manager.flush():
        assert len(forced) == by_threads
        if rest is not None:
            rest()
            by_threads = len(forced)
    assert [inode for inode in forced if inode != active.parent.stat().st_ino] == expected
    assert [path.with_suffix(".index").exists() for path in (*closed, active)] == [True] * len(closed) + [False]
    assert [rest for rest in manager.flush() if rest is not None] == []
