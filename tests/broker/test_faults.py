"""Faults of requests: how often they happen, and the answers of requests that fail."""

from __future__ import annotations

import pytest

from penstock_broker.apis import APIS
from penstock_broker.faults import api_name, error_response
from penstock_broker.wire.codec import Message, response_encoder
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.primitives import Sink

NESTED = {"topics": [{"name": "t", "partitions": [{"partition_index": 3, "error_code": 29}]}]}
FETCHED = {"topic": "t", "partitions": [{"partition_index": 3, "error_code": 29}]}


@pytest.mark.parametrize(
    ("key", "version", "body", "expected"),
    [
        (2, 7, {"topics": [{"name": "t", "partitions": [{"partition_index": 3}]}]}, NESTED),
        (1, 11, {"topics": [{"topic": "t", "partitions": [{"partition": 3}]}]}, {"responses": [FETCHED]}),
        (9, 7, {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [3]}]}, {"error_code": 29}),
        (10, 4, {"coordinator_keys": ["g"]}, {"coordinators": [{"key": "g", "error_code": 29}]}),
        (20, 1, {"topic_names": ["t"]}, {"responses": [{"name": "t", "error_code": 29}]}),
        (
            24,
            3,
            {"v3_and_below_topics": [{"name": "t", "partitions": [3]}]},
            {
                "results_by_topic_v3_and_below": [
                    {"name": "t", "results_by_partition": [{"partition_index": 3, "partition_error_code": 29}]}
                ]
            },
        ),
    ],
)
def test_an_error_stands_where_clients_look_for_it(key: int, version: int, body: Message, expected: Message) -> None:
    assert error_response(key, version, body, ErrorCode.topic_authorization_failed) == expected


@pytest.mark.parametrize("key", list(APIS))
def test_every_version_of_every_api_has_a_response_with_an_error(key: int) -> None:
    for version in range(APIS[key].min_version, APIS[key].max_version + 1):
        response = error_response(key, version, {}, ErrorCode.unknown_server_error)
        response_encoder(key, version)(Sink(), response)
    assert api_name(key)
