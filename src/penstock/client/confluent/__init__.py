"""The clients over confluent-kafka (librdkafka), and the only package that imports it.

What they promise is in client/api.py, how they are set up in client/settings.py.
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
