"""Clients over confluent-kafka (librdkafka); no other package imports it.

client/api.py documents their contracts, client/settings.py their settings.
"""

from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.batch_producer import ConfluentBatchProducer
from penstock.client.confluent.consumer import ConfluentConsumer, ConfluentFetcher
from penstock.client.confluent.producer import ConfluentProducer
from penstock.client.confluent.transactional_producer import ConfluentTransactionalProducer

__all__ = [
    "ConfluentAdmin",
    "ConfluentBatchProducer",
    "ConfluentConsumer",
    "ConfluentFetcher",
    "ConfluentProducer",
    "ConfluentTransactionalProducer",
]
