"""The quota APIs: DescribeClientQuotas and AlterClientQuotas (KIP-546).

Rule: only client ids have quotas. There are no users without authentication, and all connections come from this
machine, so quotas of users and addresses are rejected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from penstock_broker.errors import ApiError
from penstock_broker.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from penstock_broker.state import BrokerState, Request
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

_CLIENT_ID: Final = "client-id"
_KNOWN_TYPES: Final = {"client-id", "user", "ip"}
_WHOLE_NUMBERS: Final = {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE}
_QUOTAS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)


class _Match(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


def describe_client_quotas(state: BrokerState, request: Request) -> Message:
    """Answer DescribeClientQuotas."""
    try:
        components = _components(request.body["components"])
    except ApiError as error:
        return {"error_code": error.code, "error_message": error.message, "entries": None}
    is_other = bool(components.keys() - {_CLIENT_ID})
    is_strict: bool = request.body["strict"]
    found = [
        {
            "entity": [{"entity_type": _CLIENT_ID, "entity_name": client_id}],
            "values": [{"key": name, "value": value} for name, value in sorted(quotas.items())],
        }
        for client_id, quotas in state.quotas.all().items()
        # A filter on entities without quotas here, such as users, matches no entry. Without components all entries
        # match, unless the filter is strict.
        if not is_other and (_matches(components[_CLIENT_ID], client_id) if components else not is_strict)
    ]
    return {"error_code": ErrorCode.none, "entries": found}


def _components(wanted: list[Message]) -> dict[str, Message]:
    components: dict[str, Message] = {}
    for one in wanted:
        kind: str = one["entity_type"]
        if kind in components:
            raise ApiError(ErrorCode.invalid_request, f"Duplicate filter component entity type: {kind}")
        if kind not in _KNOWN_TYPES:
            raise ApiError(ErrorCode.unsupported_version, f"Custom entity type {kind!r} not supported")
        if one["match_type"] not in tuple(_Match):
            raise ApiError(ErrorCode.invalid_request, f"Unexpected match type: {one['match_type']}")
        components[kind] = one
    return components


def _matches(component: Message, client_id: str | None) -> bool:
    match component["match_type"]:
        case _Match.EXACT:
            return client_id is not None and client_id == component["match"]
        case _Match.DEFAULT:
            return client_id is None
        case _:
            return True


def alter_client_quotas(state: BrokerState, request: Request) -> Message:
    """Answer AlterClientQuotas."""
    answers = []
    for entry in request.body["entries"]:
        answer: Message = {"entity": entry["entity"], "error_code": ErrorCode.none}
        try:
            client_id = _client_id(entry["entity"])
            quotas = _changed(state.quotas.all().get(client_id, {}), entry["ops"])
            if not request.body["validate_only"]:
                state.quotas.set(client_id, quotas)
        except ApiError as error:
            answer |= {"error_code": error.code, "error_message": error.message}
        answers.append(answer)
    return {"entries": answers}


def _client_id(entity: list[Message]) -> str | None:
    if not entity:
        raise ApiError(ErrorCode.invalid_request, "Invalid empty client quota entity")
    for one in entity:
        if one["entity_type"] != _CLIENT_ID:
            raise ApiError(
                ErrorCode.invalid_request,
                f"quotas of entity type {one['entity_type']!r} are not served: this broker knows no users and serves "
                f"this machine only; set quotas by {_CLIENT_ID}",
            )
    if len(entity) > 1:
        raise ApiError(ErrorCode.invalid_request, f"Duplicate entity type: {_CLIENT_ID}")
    name: str | None = entity[0]["entity_name"]
    if name == "":
        raise ApiError(ErrorCode.invalid_request, f"Empty {_CLIENT_ID} not supported")
    return name


def _changed(quotas: Mapping[str, float], changes: list[Message]) -> dict[str, float]:
    changed = dict(quotas)
    for change in changes:
        name, value = change["key"], change["value"]
        if name not in _QUOTAS:
            raise ApiError(
                ErrorCode.invalid_request, f"Invalid configuration key {name}: expected one of {', '.join(_QUOTAS)}"
            )
        if change["remove"]:
            changed.pop(name, None)
            continue
        if not math.isfinite(value) or value <= 0:
            raise ApiError(ErrorCode.invalid_request, f"Quota {name} must be greater than 0")
        if name in _WHOLE_NUMBERS and value != int(value):
            raise ApiError(ErrorCode.invalid_request, f"{name} must be a Long value")
        changed[name] = value
    return changed
