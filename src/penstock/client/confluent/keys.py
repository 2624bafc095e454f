"""Which keys librdkafka takes, asked without a client."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, Producer

from penstock.client.settings import CONSUMER, RESTORE_CONSUMER

_END = "penstock.end"
"""No key of librdkafka: it is refused after all that stand before it, so no client is made."""


def takes(role: str, key: str) -> bool:
    """Return whether librdkafka, or confluent-kafka over it, has a key.

    Args:
        role: CONSUMER, RESTORE_CONSUMER, PRODUCER or ADMIN, of the client that it is for.
        key: without a prefix.
    """
    client = Consumer if role in (CONSUMER, RESTORE_CONSUMER) else Producer
    try:
        client({"group.id": "penstock", key: "", _END: ""})
    except KafkaException as error:
        return f'No such configuration property: "{key}"' not in error.args[0].str()
    except (AttributeError, TypeError, ValueError):
        return True  # one of confluent-kafka, that wants a function
    return True
