"""Topics and writers of a test of the sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from penstock.client.api import NewTopic
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentFetcher
from penstock.client.confluent.transactions import TransactionalWriter
from penstock.config import StreamsConfig
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from tests.support.waiting import until

LARGE = "x" * 3_000_000
"""More than the producer takes."""


@dataclass
class Place:
    """A topic and a commits topic of a test's own."""

    config: StreamsConfig
    topic: str
    commits: str
    before_commit: Callable[[int], object] = lambda epoch: None
    writers: list[TransactionalWriter] = field(default_factory=list)

    def writer(
        self,
        before_commit: Callable[[int], object] | None = None,
        was_committed: Callable[[int], bool] = lambda _: False,
        timeout_ms: int = 60_000,
        before_write: Callable[[], object] = lambda: None,
    ) -> TransactionalWriter:
        writer = TransactionalWriter(
            self.config,
            f"{self.topic}-sink-0",
            self.commits,
            TopicPartition(self.commits, 0),
            before_commit or self.before_commit,
            was_committed=was_committed,
            timeout_ms=timeout_ms,
            before_write=before_write,
        )
        self.writers.append(writer)
        return writer

    def small_topic(self) -> str:
        """Make a topic that takes small records alone."""
        admin = ConfluentAdmin(self.config)
        config = {"retention.ms": "-1", "max.message.bytes": "2000"}
        admin.create_topics([NewTopic(f"{self.topic}-small", 1, 1, config)])
        admin.close()
        return f"{self.topic}-small"

    def read(self, read_committed: bool = True) -> list[bytes]:
        return self.read_topic(self.topic, read_committed)

    def read_topic(self, topic: str, read_committed: bool = True) -> list[bytes]:
        return [value for batch in self.read_batches(topic, read_committed) for value in batch.values]

    def read_batches(self, topic: str, read_committed: bool = True) -> list[RecordBatch]:
        admin, fetcher = ConfluentAdmin(self.config), ConfluentFetcher(self.config)
        partition = TopicPartition(topic, 0)
        try:
            if read_committed:  # a broker answers the end of a transaction before its marker is in every partition
                assert until(lambda: _last_stable_is_last(admin, partition)), "a transaction stayed open"
            end = admin.end_offsets([partition], read_committed=read_committed)[partition]
            return list(fetcher.fetch(partition, 0, end, read_committed))
        finally:
            fetcher.close()
            admin.close()

    def output(self, *values: str) -> list[PartitionBatch]:
        rows = [(None, value.encode(), 1_000 + number, number, ()) for number, value in enumerate(values)]
        return [PartitionBatch(self.topic, 0, RecordBatch.of(rows))]


def _last_stable_is_last(admin: ConfluentAdmin, partition: TopicPartition) -> bool:
    stable = admin.end_offsets([partition], read_committed=True)
    return stable == admin.end_offsets([partition], read_committed=False)


@contextmanager
def place_on(bootstrap_servers: str, unique_name: Callable[[str], str], **values: object) -> Iterator[Place]:
    """Topics of a test's own; values: further configuration of its clients."""
    config = StreamsConfig({"application.id": "writers", "bootstrap.servers": bootstrap_servers, **values})
    made = Place(config, unique_name("out"), unique_name("commits"))
    admin = ConfluentAdmin(config)
    admin.create_topics([NewTopic(made.topic, 1, 1, {"retention.ms": "-1"}), NewTopic(made.commits, 2, 1)])
    admin.close()
    yield made
    for writer in made.writers:
        writer.close()
