"""Shared state of the request handlers: settings, topics, coordinators, database and address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock_broker.config import BrokerConfig
from penstock_broker.groups.coordinator import GroupCoordinator
from penstock_broker.metadata_store import MetadataStore
from penstock_broker.producer_ids import ProducerIds
from penstock_broker.quotas import ClientQuotas
from penstock_broker.topics import TopicRegistry
from penstock_broker.transactions import TransactionCoordinator
from penstock_broker.wire.codec import Message

NODE_ID: Final = 1
"""Id of the cluster's only broker."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """The running broker, as seen by request handlers.

    Args:
        config: its settings.
        store: its database.
        producer_ids: allocates producer ids.
        topics: its topics.
        groups: its groups.
        transactions: its transaction coordinator.
        quotas: the quotas of its clients.
        host: the address advertised to clients.
        port: the TCP port that it listens on.
        cluster_id: id of the cluster.
    """

    config: BrokerConfig
    store: MetadataStore
    producer_ids: ProducerIds
    topics: TopicRegistry
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    quotas: ClientQuotas
    host: str
    port: int
    cluster_id: str


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Args:
        version: version of its API.
        body: the decoded fields.
        client_id: name of the client, chosen by itself; not unique.
        client_host: the client's address in Kafka's form: `/127.0.0.1`.
    """

    version: int
    body: Message
    client_id: str = ""
    client_host: str = ""
