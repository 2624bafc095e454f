"""The client of an admin: idle, replaced and closed."""

from __future__ import annotations

import pytest

from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.errors import KafkaError
from penstock.record import TopicPartition
from tests.support.open_clients import clients, clients_but, end_idle_clients
from tests.support.waiting import until


def test_an_admin_that_was_idle_connects_again(
    config: StreamsConfig, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = {TopicPartition(topic, number): 0 for number in range(2)}
    before = clients()
    end_idle_clients(monkeypatch)
    admin = ConfluentAdmin(config)
    for _ in range(2):
        assert admin.end_offsets(list(ends)) == ends
        assert until(lambda: not clients_but(before))
    admin.close()


def test_a_closed_admin_opens_no_client(admin: ConfluentAdmin) -> None:
    before = clients()
    admin.close()
    admin.close()
    with pytest.raises(KafkaError, match=r"closed \(listing topics\)"):
        admin.topics()
    assert not clients_but(before)
