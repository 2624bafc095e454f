"""Sets and reads quotas of clients, for which confluent-kafka has no calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from tests.support.protocol_client import ProtocolClient


@contextmanager
def limited(bootstrap_servers: str, client_id: str, key: str, value: float) -> Iterator[None]:
    """Set a quota of a client id, such as `producer_byte_rate`, for the block."""
    limit: dict[str, Any] = {key: value}  # the name of a quota is no other argument of `alter`
    no_limit: dict[str, Any] = {key: None}
    with ProtocolClient(bootstrap_servers) as client:
        assert not alter(client, client_id, **limit)["error_code"]
        try:
            yield
        finally:
            assert not alter(client, client_id, **no_limit)["error_code"]


def alter(
    client: ProtocolClient, name: str | None, version: int = 1, validate_only: bool = False, **quotas: float | None
) -> Message:
    """Set quotas of a client id, or the default ones for None, and return the answer; None removes a quota."""
    changes = [{"key": key, "value": value or 0, "remove": value is None} for key, value in quotas.items()]
    entry = {"entity": [{"entity_type": "client-id", "entity_name": name}], "ops": changes}
    body = {"entries": [entry], "validate_only": validate_only}
    answer: Message = client.call(ALTER_CLIENT_QUOTAS, version, body)["entries"][0]
    return answer


def described(
    client: ProtocolClient, *components: Message, strict: bool = False, version: int = 1
) -> dict[str | None, dict[str, float]]:
    """Return the quotas by client id; the key None holds the default ones."""
    answer = client.call(DESCRIBE_CLIENT_QUOTAS, version, {"components": list(components), "strict": strict})
    assert answer["error_code"] == ErrorCode.none, answer
    return {
        entry["entity"][0]["entity_name"]: {each["key"]: each["value"] for each in entry["values"]}
        for entry in answer["entries"]
    }
