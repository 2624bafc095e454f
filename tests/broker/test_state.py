"""The state that request handlers share."""

from __future__ import annotations

import dataclasses

import pytest

from penstock_broker.group_apis import find_coordinator
from penstock_broker.state import NODE_ID, BrokerState, Request
from penstock_broker.topic_apis import describe_cluster, metadata


def test_the_only_broker_has_one_id_and_address_in_all_answers(state: BrokerState) -> None:
    moved = dataclasses.replace(state, host="::1", port=5)
    answer = metadata(moved, Request(12, {"topics": [{"name": "new"}]}))
    cluster = describe_cluster(moved, Request(1, {}))
    coordinator = find_coordinator(moved, Request(4, {"coordinator_keys": ["g"]}))["coordinators"][0]
    assert answer["brokers"] == [{"node_id": NODE_ID, "host": "::1", "port": 5}]
    assert cluster["brokers"] == [{"broker_id": NODE_ID, "host": "::1", "port": 5}]
    assert (coordinator["node_id"], coordinator["host"], coordinator["port"]) == (NODE_ID, "::1", 5)
    assert answer["controller_id"] == cluster["controller_id"] == NODE_ID
    [partition] = next(iter(answer["topics"]))["partitions"]
    assert partition["leader_id"] == NODE_ID
    assert partition["replica_nodes"] == partition["isr_nodes"] == [NODE_ID]


def test_a_handler_cannot_replace_a_part_of_the_broker_or_of_a_request(state: BrokerState) -> None:
    for shared in (state, Request(0, {})):
        for field in dataclasses.fields(shared):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(shared, field.name, None)
