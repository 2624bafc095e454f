"""Sets quotas of clients, for which confluent-kafka has no call."""

from __future__ import annotations

from tests.support.api_keys import ALTER_CLIENT_QUOTAS
from tests.support.protocol_client import ProtocolClient


def limit_client(bootstrap_servers: str, client_id: str, key: str, value: float | None) -> None:
    """Set a quota of a client id, such as `producer_byte_rate`; None removes it."""
    entity = [{"entity_type": "client-id", "entity_name": client_id}]
    entry = {"entity": entity, "ops": [{"key": key, "value": value or 0.0, "remove": value is None}]}
    with ProtocolClient(bootstrap_servers) as client:
        [answer] = client.call(ALTER_CLIENT_QUOTAS, 1, {"entries": [entry], "validate_only": False})["entries"]
    assert not answer["error_code"], answer
