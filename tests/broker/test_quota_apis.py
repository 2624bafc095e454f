"""The APIs of quotas, in every version, and the quotas that they refuse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode
from tests.support.api_keys import ALTER_CLIENT_QUOTAS
from tests.support.client_quotas import alter, described
from tests.support.protocol_client import ProtocolClient

EXACT, DEFAULT, ANY = range(3)


@pytest.fixture(autouse=True)
def no_quotas_stay(client: ProtocolClient) -> Iterator[None]:
    yield
    for name, quotas in described(client).items():
        alter(client, name, **dict.fromkeys(quotas))


def component(match_type: int, match: str | None = None, entity_type: str = "client-id") -> Message:
    return {"entity_type": entity_type, "match_type": match_type, "match": match}


@pytest.mark.parametrize("version", [0, 1])
def test_every_version_of_the_apis_of_quotas(client: ProtocolClient, version: int) -> None:
    assert alter(client, "a", version, producer_byte_rate=5, request_percentage=0.5)["error_code"] == ErrorCode.none
    alter(client, None, version, consumer_byte_rate=7)
    of_a, of_default = {"producer_byte_rate": 5, "request_percentage": 0.5}, {"consumer_byte_rate": 7}
    assert described(client, version=version) == {"a": of_a, None: of_default}
    for strict in (False, True):
        assert described(client, component(EXACT, "a"), strict=strict, version=version) == {"a": of_a}
        assert described(client, component(EXACT, "b"), strict=strict, version=version) == {}
        assert described(client, component(DEFAULT), strict=strict, version=version) == {None: of_default}
        assert described(client, component(ANY), strict=strict) == {"a": of_a, None: of_default}
        assert described(client, component(ANY, entity_type="user"), strict=strict) == {}
        assert described(client, component(ANY), component(ANY, entity_type="user"), strict=strict) == {}
    assert described(client, strict=True) == {}
    alter(client, "a", version, producer_byte_rate=None)
    assert described(client, component(EXACT, "a")) == {"a": {"request_percentage": 0.5}}


def test_what_is_only_validated_is_not_set(client: ProtocolClient) -> None:
    assert alter(client, "a", validate_only=True, producer_byte_rate=5)["error_code"] == ErrorCode.none
    assert described(client) == {}


@pytest.mark.parametrize(
    ("quotas", "reason"),
    [
        ({"producer_byte_rate": 0}, "Quota producer_byte_rate must be greater than 0"),
        ({"producer_byte_rate": 0.5}, "producer_byte_rate must be a Long value"),
        ({"request_percentage": float("nan")}, "Quota request_percentage must be greater than 0"),
        ({"controller_mutation_rate": 5}, "Invalid configuration key controller_mutation_rate"),
    ],
)
def test_a_quota_that_cannot_be_is_refused(client: ProtocolClient, quotas: dict[str, float], reason: str) -> None:
    answer = alter(client, "a", **quotas)  # type: ignore[arg-type]  # names of quotas
    assert answer["error_code"] == ErrorCode.invalid_request
    assert reason in answer["error_message"]
    assert described(client) == {}


@pytest.mark.parametrize("kind", ["user", "ip"])
def test_quotas_of_users_and_addresses_are_refused_with_the_reason(client: ProtocolClient, kind: str) -> None:
    change = {"key": "producer_byte_rate", "value": 1.0}
    entry = {"entity": [{"entity_type": kind, "entity_name": "a"}], "ops": [change]}
    [answer] = client.call(ALTER_CLIENT_QUOTAS, 1, {"entries": [entry]})["entries"]
    assert answer["error_code"] == ErrorCode.invalid_request
    assert f"quotas of entity type '{kind}' are not served" in answer["error_message"]
