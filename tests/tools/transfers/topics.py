"""Topics of one broker: tests of transfers create, fill and read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentFetcher
from penstock.config import StreamsConfig
from penstock.record import Headers, TopicPartition
from tests.support.plain_producer import PlainProducer


class Sent(NamedTuple):
    """What a test writes and reads of a record; timestamp in ms."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 0
    headers: Headers = ()


class Topics:
    """The topics of a broker; a context manager."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.config = StreamsConfig({"bootstrap.servers": bootstrap_servers})
        self.admin = ConfluentAdmin(self.config)
        self._fetcher = ConfluentFetcher(self.config)

    def __enter__(self) -> Topics:
        return self

    def __exit__(self, *_: object) -> None:
        self._fetcher.close()
        self.admin.close()

    def create(self, name: str, partitions: int = 1, **config: str) -> str:
        self.admin.create_topics([NewTopic(name, partitions, config=config)])
        return name

    def write(self, topic: str, records: Sequence[Sent]) -> None:
        producer = PlainProducer(self.config)  # each knows the partitions of its time
        for each in records:
            producer.send(topic, each.key, each.value, each.partition, each.timestamp, each.headers)
        producer.close()

    @staticmethod
    def place(topic: str) -> TopicPartition:
        """Return the first partition of a topic."""
        return TopicPartition(topic, 0)

    def read(self, topic: str) -> list[Sent]:
        """Return the committed records, partition by partition; waits for open transactions."""
        places = [TopicPartition(topic, number) for number in range(self.admin.topics()[topic])]
        first, end = self.admin.beginning_offsets(places), self.admin.end_offsets(places)
        return [
            Sent(place.partition, key, value, int(timestamp), batch.headers_at(row))
            for place in places
            if first[place] < end[place]
            for batch in self._fetcher.fetch(place, first[place], end[place], read_committed=True)
            for row, (key, value, timestamp) in enumerate(
                zip(batch.keys, batch.values, batch.timestamps.tolist(), strict=True)
            )
        ]
