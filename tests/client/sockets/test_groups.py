"""Members that are removed from a classic group."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin
from penstock.client.sockets.cluster import Cluster
from penstock.client.sockets.groups import remove_members
from penstock.config import StreamsConfig
from tests.support.brokers import RunningBroker
from tests.support.waiting import until


def test_members_that_did_not_leave_are_removed(broker: RunningBroker, unique_name: Callable[[str], str]) -> None:
    group, topic = unique_name("g"), unique_name("t")
    config = StreamsConfig({"application.id": group, "bootstrap.servers": broker.bootstrap_servers})
    admin = ConfluentAdmin(config)
    admin.create_topics([NewTopic(topic, 1)])
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "group.instance.id": "1"})
    consumer.subscribe([topic])
    assert until(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()))
    consumer.close()  # a static member does not leave
    [member] = admin.describe_group(group).members
    with Cluster(config) as cluster:
        remove_members(cluster, group, [], "nothing to do")
        assert len(admin.describe_group(group).members) == 1
        remove_members(cluster, group, [member.member_id, "unknown"], "it has ended")
        remove_members(cluster, group, [member.member_id], "once more")
    found = admin.describe_group(group)
    assert (found.state, found.members) == ("Empty", ())
    admin.close()
