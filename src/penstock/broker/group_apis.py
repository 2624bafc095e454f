"""The APIs of groups and of producer ids: FindCoordinator and InitProducerId.

Members and rebalances (JoinGroup and the like) and transactions are not served, so a transactional id is refused.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from penstock.broker.codec import Message
from penstock.broker.errors import NO_TRANSACTIONS, ApiError
from penstock.broker.state import NODE_ID, BrokerState, Request

_GROUP_KEY: Final = 0


def find_coordinator(state: BrokerState, request: Request) -> Message:
    """Answer FindCoordinator: this broker, for groups."""
    body = request.body
    key_type: int = body.get("key_type", _GROUP_KEY)
    coordinator: Message = {"node_id": NODE_ID, "host": state.host, "port": state.port}
    if key_type != _GROUP_KEY:
        coordinator = {
            "node_id": -1,
            "port": -1,
            # A client repeats its request on most errors; on this one it fails immediately.
            "error_code": ErrorCode.transactional_id_authorization_failed,
            "error_message": NO_TRANSACTIONS,
        }
    return coordinator | {"coordinators": [coordinator | {"key": key} for key in body.get("coordinator_keys", [])]}


def init_producer_id(state: BrokerState, request: Request) -> Message:
    """Answer InitProducerId for idempotent producers; one with a transactional id is refused."""
    if request.body["transactional_id"] is not None:
        return {"error_code": ErrorCode.transactional_id_authorization_failed, "producer_epoch": -1}
    try:
        return {"producer_id": state.store.next_producer_id(), "producer_epoch": 0}
    except ApiError as error:
        return {"error_code": error.code, "producer_epoch": -1}
