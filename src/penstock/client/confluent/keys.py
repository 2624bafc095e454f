"""Checks for configuration keys of librdkafka, without creating a client."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, Producer

from penstock.client.settings import CONSUMER, RESTORE_CONSUMER

_END = "penstock.end"
"""A key that librdkafka does not have, after all others. It is refused, so no client is created."""


def takes(role: str, key: str) -> bool:
    """Return whether librdkafka or confluent-kafka has a key.

    Args:
        role: the role of the client: CONSUMER, RESTORE_CONSUMER, PRODUCER or ADMIN.
        key: the key without a prefix.
    """
    client = Consumer if role in (CONSUMER, RESTORE_CONSUMER) else Producer
    try:
        client({"group.id": "penstock", key: "", _END: ""})
    except KafkaException as error:
        return f'No such configuration property: "{key}"' not in error.args[0].str()
    except (AttributeError, TypeError, ValueError):
        return True  # a key of confluent-kafka whose value is a function
    return True
