"""Sets quotas of clients, for which confluent-kafka has no call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.api_keys import ALTER_CLIENT_QUOTAS
from tests.support.protocol_client import ProtocolClient


@contextmanager
def limited(bootstrap_servers: str, client_id: str, key: str, value: float) -> Iterator[None]:
    """Set a quota of a client id, such as `producer_byte_rate`, for the block."""
    _alter(bootstrap_servers, client_id, key, value)
    try:
        yield
    finally:
        _alter(bootstrap_servers, client_id, key, None)


def _alter(bootstrap_servers: str, client_id: str, key: str, value: float | None) -> None:
    """Set a quota of a client id; None removes it."""
    entity = [{"entity_type": "client-id", "entity_name": client_id}]
    entry = {"entity": entity, "ops": [{"key": key, "value": value or 0.0, "remove": value is None}]}
    with ProtocolClient(bootstrap_servers) as client:
        [answer] = client.call(ALTER_CLIENT_QUOTAS, 1, {"entries": [entry], "validate_only": False})["entries"]
    assert not answer["error_code"], answer
