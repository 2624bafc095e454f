"""The table of supported APIs (key, versions, handler) and the answer to ApiVersions.

A new API needs a row here and a handler in one of the modules, which are named after their subjects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock_broker.answers import LaterAnswer
from penstock_broker.config_apis import alter_configs, describe_configs, incremental_alter_configs
from penstock_broker.fetch import Fetch
from penstock_broker.group_admin_apis import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    list_groups,
    streams_group_describe,
)
from penstock_broker.group_apis import (
    consumer_group_heartbeat,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    streams_group_heartbeat,
    streams_group_topology_description_update,
    sync_group,
)
from penstock_broker.log_apis import delete_records, list_offsets, offset_for_leader_epoch, produce
from penstock_broker.offset_apis import offset_commit, offset_delete, offset_fetch
from penstock_broker.producer_state import EPOCH_BUMPS
from penstock_broker.quota_apis import alter_client_quotas, describe_client_quotas
from penstock_broker.state import BrokerState, Request
from penstock_broker.topic_apis import (
    METADATA,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_log_dirs,
    describe_topic_partitions,
    metadata,
)
from penstock_broker.transaction_apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from penstock_broker.wire.codec import Message
from penstock_broker.wire.error_codes import ErrorCode

Handler = Callable[[BrokerState, Request], Message | LaterAnswer | None]
"""Answers a request with a response, a later response, or None for no answer."""

FEATURES: Final[Mapping[str, int]] = {"transaction.version": EPOCH_BUMPS, "streams.version": 1}
"""Features that the broker announces, with their levels."""

PRODUCE: Final = 0
"""Key of Produce, the API with large requests."""

API_VERSIONS: Final = 18
"""Key of ApiVersions, the API with special rules."""


@dataclass(frozen=True, slots=True)
class Api:
    """A supported API.

    Args:
        handler: the function that answers requests.
        min_version: the oldest supported version.
        max_version: the newest supported version.
        advertised_min: the oldest version that the broker advertises.
    """

    handler: Handler
    min_version: int
    max_version: int
    advertised_min: int


def _api(handler: Handler, min_version: int, max_version: int, advertised_min: int | None = None) -> Api:
    return Api(handler, min_version, max_version, min_version if advertised_min is None else advertised_min)


def _api_versions(state: BrokerState, request: Request) -> Message:
    return api_versions_response(ErrorCode.none)


def api_versions_response(code: ErrorCode) -> Message:
    """Return the response to ApiVersions.

    Args:
        code: NONE, or UNSUPPORTED_VERSION for an unsupported version.
    """
    return {
        "error_code": code,
        "api_keys": [
            {"api_key": key, "min_version": api.advertised_min, "max_version": api.max_version}
            for key, api in APIS.items()
        ],
        "supported_features": [
            {"name": name, "min_version": 1, "max_version": level} for name, level in FEATURES.items()
        ],
        "finalized_features_epoch": 0,
        "finalized_features": [
            {"name": name, "min_version_level": level, "max_version_level": level} for name, level in FEATURES.items()
        ],
    }


APIS: Final[Mapping[int, Api]] = {
    # Produce is announced from version 0: librdkafka before 2.11 does not compress if the minimum is higher.
    PRODUCE: _api(produce, 3, 12, advertised_min=0),
    1: _api(Fetch, 4, 16),
    2: _api(list_offsets, 1, 9),
    METADATA: _api(metadata, 0, 12),
    8: _api(offset_commit, 2, 10),
    9: _api(offset_fetch, 1, 10),
    10: _api(find_coordinator, 0, 6),
    11: _api(join_group, 0, 9),
    12: _api(heartbeat, 0, 4),
    13: _api(leave_group, 0, 5),
    14: _api(sync_group, 0, 5),
    15: _api(describe_groups, 0, 6),
    16: _api(list_groups, 0, 5),
    API_VERSIONS: _api(_api_versions, 0, 4),
    19: _api(create_topics, 2, 7),
    20: _api(delete_topics, 1, 6),
    21: _api(delete_records, 0, 2),
    22: _api(init_producer_id, 0, 5),
    24: _api(add_partitions_to_txn, 0, 5),
    25: _api(add_offsets_to_txn, 0, 4),
    26: _api(end_txn, 0, 5),
    27: _api(write_txn_markers, 1, 2),
    28: _api(txn_offset_commit, 0, 5),
    23: _api(offset_for_leader_epoch, 2, 4),
    32: _api(describe_configs, 1, 4),
    33: _api(alter_configs, 0, 2),
    35: _api(describe_log_dirs, 1, 4),
    37: _api(create_partitions, 0, 3),
    42: _api(delete_groups, 0, 2),
    44: _api(incremental_alter_configs, 0, 1),
    47: _api(offset_delete, 0, 0),
    48: _api(describe_client_quotas, 0, 1),
    49: _api(alter_client_quotas, 0, 1),
    60: _api(describe_cluster, 0, 1),
    61: _api(describe_producers, 0, 0),
    65: _api(describe_transactions, 0, 0),
    66: _api(list_transactions, 0, 2),
    68: _api(consumer_group_heartbeat, 0, 1),
    69: _api(consumer_group_describe, 0, 1),
    75: _api(describe_topic_partitions, 0, 0),
    88: _api(streams_group_heartbeat, 0, 1),
    89: _api(streams_group_describe, 0, 1),
    93: _api(streams_group_topology_description_update, 0, 0),
}
"""The supported APIs by key."""
