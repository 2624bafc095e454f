"""When a waiting Fetch answers, with the time of the event loop in the test's hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock_broker.common.clock import MockClock
from penstock_broker.config import BrokerConfig
from penstock_broker.fetch import Fetch
from penstock_broker.partition import Partition
from penstock_broker.state import Request
from penstock_broker.topic_config import log_config
from penstock_broker.wire.codec import Message
from tests.support.record_batches import BatchRecord, encode_batch

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
