"""What the handlers of requests share: the broker's settings, topics, coordinators, database and address."""

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
"""Id of the one broker of the cluster."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """The running broker, as the handlers of requests see it.

    Args:
        config: its settings.
        store: its database.
        producer_ids: what gives the ids of producers.
        topics: its topics.
        groups: its groups.
        transactions: its coordinator of transactions.
        quotas: the quotas of its clients.
        host: the address that clients receive.
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
        client_id: the name that the client gives itself; not unique.
        client_host: the client's address, as Kafka shows it: `/127.0.0.1`.
    """

    version: int
    body: Message
    client_id: str = ""
    client_host: str = ""
