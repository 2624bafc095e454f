"""Topics whose keys CRC32 has placed, among those that meet a repartition topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from zlib import crc32

import pytest

from penstock import Consumed, Serdes, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.plan.partitioning import partition_for
from penstock.plan.subtopology import SourceSpec
from penstock.record import RecordBatch, TopicPartition
from penstock.task import key_placement
from penstock.task.key_placement import KeyPlacement

TEXT = Serdes.string()
COUNT = 4


@pytest.fixture(autouse=True)
def forgetting() -> Iterator[None]:
    """A process that has named no topic yet."""
    key_placement._told.clear()
    yield
    key_placement._told.clear()


def placement(rekeyed: bool) -> KeyPlacement:
    builder = StreamsBuilder()
    stream = builder.stream("orders", Consumed.with_(TEXT, TEXT))
    stream = stream.select_key(lambda key, value: value) if rekeyed else stream
    stream.join(builder.table("customers", Consumed.with_(TEXT, TEXT)), lambda order, name: name)
    joining = next(
        part
        for part in builder.build().build("app").subtopologies
        if any(isinstance(node, SourceSpec) and "customers" in node.topics for node in part.nodes)
    )
    counts = {"customers": COUNT, "orders": COUNT}
    return KeyPlacement(joining, StreamsConfig(), counts, lambda node: f"{node} (program.py:7)")


def test_a_topic_that_meets_a_broadcast_may_be_of_crc32(caplog: pytest.LogCaptureFixture) -> None:
    builder = StreamsBuilder()
    rules = builder.stream("rules", Consumed.with_(TEXT, TEXT)).broadcast()
    rules.merge(builder.stream("customers", Consumed.with_(TEXT, TEXT)))
    merging = builder.build().build("app").subtopologies[1]
    counts = {"customers": COUNT, "rules": COUNT}
    found = KeyPlacement(merging, StreamsConfig(), counts, str)
    found.look(TopicPartition("customers", 1), batch_of([*keys_in(1, by_crc32)]))
    assert not caplog.messages


def batch_of(keys: list[bytes | None]) -> RecordBatch:
    return RecordBatch.of([(key, b"", 0, offset, ()) for offset, key in enumerate(keys)])


def keys_in(partition: int, chosen_by: Callable[[bytes], int], number: int = 20) -> list[bytes]:
    return [key for key in (b"c%d" % n for n in range(1_000)) if chosen_by(key) == partition][:number]


def by_crc32(key: bytes) -> int:
    return crc32(key) % COUNT


def by_murmur2(key: bytes) -> int:
    return partition_for(key, COUNT)


def test_a_topic_of_crc32_is_named_once_with_its_line(caplog: pytest.LogCaptureFixture) -> None:
    samples = placement(rekeyed=True)
    for partition in range(COUNT):
        for key in keys_in(partition, by_crc32):
            samples.look(TopicPartition("customers", partition), batch_of([None, key]))
    (message,) = caplog.messages
    assert message.startswith("KSTREAM-SOURCE-")
    assert "(program.py:7) reads customers" in message
    assert "partitioner=murmur2_random" in message


@pytest.mark.parametrize(
    ("rekeyed", "chosen_by", "number"),
    [
        (True, by_murmur2, 20),
        (True, lambda key: len(key) % COUNT, 20),
        (True, by_crc32, 2),  # too few to tell
        (False, by_crc32, 20),  # both topics may be of one program
    ],
)
def test_other_topics_are_not_named(
    rekeyed: bool, chosen_by: Callable[[bytes], int], number: int, caplog: pytest.LogCaptureFixture
) -> None:
    samples = placement(rekeyed)
    for partition in range(COUNT):
        samples.look(TopicPartition("customers", partition), batch_of(list(keys_in(partition, chosen_by, number))))
    assert not caplog.messages
