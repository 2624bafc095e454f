"""The topics of a run: made, filled, checked and deleted. All contestants read the same input topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from benchmarks.program import lines_of
from penstock.client.api import NewTopic
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentFetcher
from penstock.client.confluent.producer import ConfluentProducer
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.record import TopicPartition

PARTITIONS: Final = 2


def client_config(bootstrap: str) -> StreamsConfig:
    """Return the configuration of the clients of a run."""
    return StreamsConfig({"application.id": "benchmark-client", "bootstrap.servers": bootstrap}, environment={})


@contextmanager
def topics(
    bootstrap: str, *names: str, partitions: int = PARTITIONS, config: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Make topics of that many partitions, with that configuration, and delete them afterwards."""
    admin = ConfluentAdmin(client_config(bootstrap))
    try:
        # for ever, whatever the timestamps of the records
        settings = {"retention.ms": "-1", **(config or {})}
        admin.create_topics([NewTopic(name, partitions, config=settings) for name in names])
        yield
    finally:
        with suppress(StreamsError):
            admin.delete_topics(names)
        admin.close()


def delete_topics_of(bootstrap: str, application_id: str) -> None:
    """Delete the internal topics of an application: those with its id in their names."""
    admin = ConfluentAdmin(client_config(bootstrap))
    with suppress(StreamsError):
        admin.delete_topics([name for name in admin.topics() if f"{application_id}-" in name])
    admin.close()


def fill(bootstrap: str, topic: str, text: str, lines: int, words_per_line: int) -> None:
    """Write the lines of a text to `topic`, to its partitions in turn."""
    producer = ConfluentProducer(client_config(bootstrap))
    for number, line in enumerate(lines_of(text, lines, words_per_line)):
        producer.send(topic, None, line, number % PARTITIONS)
    producer.close()


def check_counts(bootstrap: str, topic: str, text: str, lines: int, words_per_line: int) -> str:
    """Return "" if the last count of each word in `topic` is that of a Counter, else what is wrong."""
    expected = Counter(word for line in lines_of(text, lines, words_per_line) for word in line.split())
    found: dict[bytes, int] = {}
    admin, fetcher = ConfluentAdmin(client_config(bootstrap)), ConfluentFetcher(client_config(bootstrap))
    try:
        ends = admin.end_offsets([TopicPartition(topic, partition) for partition in range(PARTITIONS)], True)
        for partition, end in ends.items():
            for batch in fetcher.fetch(partition, 0, end, read_committed=True):
                found.update(zip(batch.keys, map(int.from_bytes, batch.values), strict=True))
    finally:
        fetcher.close()
        admin.close()
    wrong = sum(expected[word] != found.get(word, 0) for word in expected)
    return "" if not wrong and len(found) == len(expected) else f"{wrong} of {len(expected)} counts are wrong"
