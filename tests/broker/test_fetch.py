"""Fetch on the wire, and a waiting Fetch with the time of the event loop in the test's hand."""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock_broker.common.clock import MockClock
from penstock_broker.config import BrokerConfig
from penstock_broker.fetch import Fetch
from penstock_broker.partition import Partition
from penstock_broker.process import BrokerProcess
from penstock_broker.state import Request
from penstock_broker.topic_config import log_config
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import DELETE_TOPICS, FETCH
from tests.support.protocol_client import ProtocolClient, versions_of
from tests.support.record_batches import BatchRecord, encode_batch
from tests.support.topic_requests import RECORDS, create, fetch_body, fetched, produce

BATCH = bytes(encode_batch([BatchRecord(1000, b"k", b"v")]))
TURNS = 5
"""Turns of the event loop after which everything has happened that needs no time."""


class Consumers:
    """Consumers that wait for the next records of one partition, and the clock of their event loop.

    Args:
        directory: where the partition keeps its log.
        count: how many consumers wait.
    """

    def __init__(self, directory: Path, count: int) -> None:
        self.now = 0.0
        asyncio.get_running_loop().time = lambda: self.now  # type: ignore[method-assign]  # the test's own clock
        self.sizes: list[int] = []
        self._partition = Partition(directory / "log", "topic", 0, log_config({}), MockClock())
        topic = SimpleNamespace(name="topic", partitions=[self._partition])
        quotas = SimpleNamespace(most_fetched_bytes=lambda client_id: 1 << 20)
        topics = SimpleNamespace(by_name=lambda name: topic)
        state: Any = SimpleNamespace(config=BrokerConfig(data_dir=directory), topics=topics, quotas=quotas)
        wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        topics_wanted = [{"topic": "topic", "partitions": [wanted]}]
        body = {"max_wait": 60_000, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics_wanted}
        for _ in range(count):
            Fetch(state, Request(11, body)).start(self._note)

    def _note(self, response: Message) -> None:
        self.sizes.append(len(response["responses"][0]["partitions"][0]["records"]))

    async def produce(self) -> None:
        """Append a batch, and let everything happen that needs no time."""
        self._partition.append(memoryview(bytearray(BATCH)))
        await self.pass_time(0.0)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        for _ in range(TURNS):
            await asyncio.sleep(0)


def run(directory: Path, count: int, story: Callable[[Consumers], Awaitable[None]]) -> None:
    async def told() -> None:
        await story(Consumers(directory, count))

    asyncio.run(told())


def test_few_consumers_get_each_record_at_once(tmp_path: Path) -> None:
    async def story(consumers: Consumers) -> None:
        await consumers.produce()
        assert consumers.sizes == [len(BATCH)] * 3

    run(tmp_path, 3, story)


def test_many_consumers_of_a_partition_get_records_that_come_closely_after_each_other_in_one_answer(
    tmp_path: Path,
) -> None:
    async def story(consumers: Consumers) -> None:
        await consumers.produce()
        await consumers.pass_time(0.001)
        await consumers.produce()
        assert consumers.sizes == []
        await consumers.pass_time(0.1)
        assert consumers.sizes == [2 * len(BATCH)] * 40

    run(tmp_path, 40, story)


def test_many_consumers_get_a_record_at_once_that_comes_after_a_while(tmp_path: Path) -> None:
    async def story(consumers: Consumers) -> None:
        await consumers.pass_time(0.1)
        await consumers.produce()
        assert consumers.sizes == [len(BATCH)] * 40

    run(tmp_path, 40, story)


@pytest.mark.parametrize("version", versions_of(FETCH))
def test_every_version_of_fetch(client: ProtocolClient, topic: str, version: int) -> None:
    produce(client, topic)
    produce(client, topic)
    answer = fetched(client.call(FETCH, version, fetch_body(client, topic, 4)))
    assert (answer["error_code"], answer["high_watermark"], answer["last_stable_offset"]) == (0, 6, 6)
    expected = bytearray(RECORDS)
    struct.pack_into(">q", expected, 0, 3)
    struct.pack_into(">i", expected, 12, 0)
    assert answer["records"] == expected
    assert len(fetched(client.call(FETCH, version, fetch_body(client, topic, 0)))["records"]) == 2 * len(RECORDS)


@pytest.mark.parametrize("version", [11, 16])
def test_a_partition_that_is_fetched_twice_is_answered_once_as_it_was_wanted_last(
    client: ProtocolClient, topic: str, version: int
) -> None:
    produce(client, topic)
    body = fetch_body(client, topic, 0)
    [wanted] = body["topics"]
    body["topics"] = [fetch_body(client, topic, 7)["topics"][0], wanted | {"partitions": wanted["partitions"] * 2}]
    [answer] = client.call(FETCH, version, body)["responses"]
    assert [(one["error_code"], len(one["records"])) for one in answer["partitions"]] == [(0, len(RECORDS))]


def test_a_waiting_fetch_ends_when_its_bytes_are_there(
    embedded_broker: BrokerProcess, client: ProtocolClient, topic: str
) -> None:
    client.send(FETCH, 16, fetch_body(client, topic, 0, max_wait=15_000, min_bytes=2 * len(RECORDS)))
    with ProtocolClient(embedded_broker.bootstrap_servers) as other:
        produce(other, topic)
        produce(other, topic)
    assert len(fetched(client.receive(FETCH, 16))["records"]) == 2 * len(RECORDS)


def test_a_waiting_fetch_counts_the_bytes_of_all_partitions(
    embedded_broker: BrokerProcess, client: ProtocolClient
) -> None:
    name = f"topic-{uuid.uuid4()}"
    create(client, name, 3)
    body = fetch_body(client, name, 0, max_wait=15_000, min_bytes=3 * len(RECORDS))
    [wanted] = body["topics"][0]["partitions"]
    body["topics"][0]["partitions"] = [wanted | {"partition": number} for number in range(3)]
    client.send(FETCH, 16, body)
    with ProtocolClient(embedded_broker.bootstrap_servers) as other:
        for partition in (2, 0, 2):
            produce(other, name, partition=partition)
    answers = client.receive(FETCH, 16)["responses"][0]["partitions"]
    assert [len(one["records"]) for one in answers] == [len(RECORDS), 0, 2 * len(RECORDS)]
    assert [one["high_watermark"] for one in answers] == [3, 0, 6]


def test_a_waiting_fetch_ends_when_its_topic_is_deleted(
    embedded_broker: BrokerProcess, client: ProtocolClient, topic: str
) -> None:
    client.send(FETCH, 16, fetch_body(client, topic, 0, max_wait=15_000))
    with ProtocolClient(embedded_broker.bootstrap_servers) as other:
        other.call(DELETE_TOPICS, 6, {"topics": [{"name": topic}]})
    assert fetched(client.receive(FETCH, 16))["error_code"] == ErrorCode.unknown_topic_or_partition


def test_faults_of_a_fetch(client: ProtocolClient, topic: str) -> None:
    assert fetched(client.call(FETCH, 16, fetch_body(client, topic, 9)))["error_code"] == ErrorCode.offset_out_of_range
    assert fetched(client.call(FETCH, 16, fetch_body(client, topic, -1)))["error_code"] == ErrorCode.offset_out_of_range
    body = fetch_body(client, topic, 0)
    body["topics"][0]["partitions"][0]["current_leader_epoch"] = 5
    assert fetched(client.call(FETCH, 16, body))["error_code"] == ErrorCode.unknown_leader_epoch
    body["topics"][0]["topic_id"] = uuid.uuid4()
    assert fetched(client.call(FETCH, 16, body))["error_code"] == ErrorCode.unknown_topic_id
    answer = client.call(FETCH, 16, fetch_body(client, topic, 0, session_id=3))
    assert answer["error_code"] == ErrorCode.fetch_session_id_not_found


def test_the_first_batch_comes_even_where_it_is_larger_than_asked(client: ProtocolClient, topic: str) -> None:
    for _ in range(3):
        produce(client, topic)
    body = fetch_body(client, topic, 0, max_bytes=1)
    assert len(fetched(client.call(FETCH, 16, body))["records"]) == len(RECORDS)
    body = fetch_body(client, topic, 0)
    body["topics"][0]["partitions"][0]["partition_max_bytes"] = 2 * len(RECORDS) + 1
    assert 0 < len(fetched(client.call(FETCH, 16, body))["records"]) <= 2 * len(RECORDS)


def test_only_the_first_batch_of_a_response_may_be_larger_than_it(client: ProtocolClient, topic: str) -> None:
    """librdkafka takes no response that exceeds its `fetch.max.bytes` by more than the first batch does."""
    for partition in (0, 1):
        produce(client, topic, partition=partition)
    # What is left out is there: the response waits for nothing more.
    sizes = {"max_bytes": len(RECORDS) + 1, "min_bytes": len(RECORDS) + 1, "max_wait": 60_000}
    body = fetch_body(client, topic, 0, **sizes)
    body["topics"][0]["partitions"].append(body["topics"][0]["partitions"][0] | {"partition": 1})
    [answer] = client.call(FETCH, 16, body)["responses"]
    assert [len(partition["records"] or b"") for partition in answer["partitions"]] == [len(RECORDS), 0]
