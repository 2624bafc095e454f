"""A log that was truncated is found out by the epochs of its leaders, on every broker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from penstock.client.api import EpochPosition, NewTopic, OffsetAndMetadata
from penstock.client.confluent import ConfluentConsumer, ConfluentProducer
from penstock.config import StreamsConfig
from penstock.host.threads.clients import GroupAdmin
from penstock.record import TopicPartition
from tests.support.brokers import RunningBroker
from tests.support.waiting import until


def test_a_position_is_above_its_log_only_if_records_before_it_are_gone(
    broker: RunningBroker, unique_name: Callable[[str], str]
) -> None:
    place = TopicPartition(unique_name("t"), 0)
    config = StreamsConfig({"application.id": unique_name("app"), "bootstrap.servers": broker.bootstrap_servers})
    with closing(GroupAdmin(config)) as admin, closing(ConfluentConsumer(config)) as consumer:
        admin.create_topics([NewTopic(place.topic, 1)])
        with closing(ConfluentProducer(config)) as producer:
            for _ in range(3):
                producer.send(place.topic, None, b"v", 0)
        consumer.assign({place: 0})
        assert until(lambda: bool(consumer.poll(100, 10)) and place in consumer.leader_epochs())
        epoch = consumer.leader_epochs()[place]
        group, offset = str(config["application.id"]), OffsetAndMetadata(3, "text", epoch)
        admin.commit_offsets(group, {place: offset})
        assert admin.committed_offsets(group, [place]) == {place: offset}
        assert admin.truncated({place: EpochPosition(3, epoch)}) == {}
        assert admin.truncated({place: EpochPosition(7, epoch)}) == {place: EpochPosition(3, epoch)}
        assert admin.truncated({}) == {}
