"""Redirected topics are created when a program chooses them."""

from __future__ import annotations

from collections.abc import Callable

from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.shadow.redirected_topics import RedirectedTopics, create_redirected, delete_existing
from penstock_broker.process import BrokerProcess


def test_a_chosen_topic_is_created_with_the_partitions_of_its_topic(
    embedded_broker: BrokerProcess, unique_name: Callable[[str], str]
) -> None:
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": embedded_broker.bootstrap_servers})
    prefix, chosen = f"{unique_name('app')}.output.", unique_name("chosen")
    topics = {chosen: 3}
    found = RedirectedTopics(prefix, config.client_config(), topics)
    admin = ConfluentAdmin(config)
    try:
        assert found.of(chosen) == prefix + chosen
        assert found.of(prefix + chosen) == prefix + chosen
        assert admin.topics()[prefix + chosen] == 3
        assert RedirectedTopics(prefix, config.client_config(), topics).of(chosen) == prefix + chosen
        assert found.of("missing") == f"{prefix}missing"
        create_redirected(admin, {f"{prefix}other": 1})
        held = [topic for topic in admin.topics() if topic.startswith(prefix)]
        assert sorted(held) == sorted([prefix + chosen, f"{prefix}other"])
        delete_existing(admin, held)
        delete_existing(admin, held)
    finally:
        admin.close()
