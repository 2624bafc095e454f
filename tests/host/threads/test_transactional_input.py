"""Offsets of input that transactions have written are committed after the ends of the transactions (KAFKA-6607)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from penstock import StreamsBuilder
from penstock.client.api import OffsetAndMetadata
from penstock.record import TopicPartition
from tests.host.support import Runner
from tests.host.test_topologies import TEXT
from tests.support.waiting import until


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_offsets_are_committed_after_the_end_of_a_transaction(
    threads_runner: Runner, unique_name: Callable[[str], str], guarantee: str
) -> None:
    source, target, application = unique_name("in"), unique_name("out"), unique_name("app")
    threads_runner.create_topics({source: 3, target: 1})
    servers = threads_runner.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "transactional.id": source, "log_level": 0})
    producer.init_transactions()
    written, aborted, read = (TopicPartition(source, partition) for partition in range(3))
    for partitions, is_kept in (((written, read), True), ((aborted,), False)):
        producer.begin_transaction()
        for partition in partitions:
            producer.produce(source, b"1", partition=partition.partition)
        producer.flush()
        if is_kept:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    admin = threads_runner.admin
    admin.commit_offsets(application, {read: OffsetAndMetadata(1)})  # as an instance that ended before the marker
    builder = StreamsBuilder()
    builder.stream(source, consumed=TEXT).to(target)
    values = {"default.key.serde": TEXT.key_serde, "default.value.serde": TEXT.key_serde}
    config = threads_runner.config(application, {**values, "processing.guarantee": guarantee})

    def are_at_the_ends() -> bool:
        committed = admin.committed_offsets(application, [written, aborted, read])
        return {partition: each.offset for partition, each in committed.items()} == dict.fromkeys(
            (written, aborted, read), 2
        )

    with threads_runner.running(builder.build(), config):
        assert until(are_at_the_ends)
