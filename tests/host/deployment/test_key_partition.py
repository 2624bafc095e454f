"""The partition of a key, by serde, partitioner and headers."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config import StreamsConfig
from penstock.host.deployment.key_partition import KeyPartitioner
from penstock.plan.partitioning import partition_for
from penstock.record import Headers
from penstock.serdes import Serdes
from penstock.state.stores import Stores

STRING = Serdes.string()
BUILDER = Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), STRING, STRING)
CONFIG = StreamsConfig({"application.id": "app"}, environment={})
HEADERS = (("to", b"2"),)


def partition(partitioner: Any = None, key: Any = "k", serde: Any = None, partitions: int = 8) -> int:
    return KeyPartitioner(serde, partitioner, HEADERS).partition(BUILDER, CONFIG, key, partitions)


def by_headers(topic: str, key: str, value: None, headers: Headers, partitions: int) -> set[int]:
    assert (topic, key, value, partitions) == ("s", "k", None, 8)
    return {len(headers[0][1] or b"") + 4}


def test_the_serde_of_the_query_or_of_the_store_decides() -> None:
    assert partition() == partition_for(b"k", 8)
    assert partition(key=7, serde=Serdes.long()) == partition_for(bytes(7) + b"\x07", 8)
    assert partition(partitions=0) == 0
    with pytest.raises(TypeError, match="expected a str"):
        partition(key=object())


def test_a_partitioner_decides_before_them_with_headers_if_it_takes_them() -> None:
    assert partition(lambda topic, key, value, partitions: {partitions - 1}) == 7
    assert partition(lambda *arguments: {len(arguments)}) == 4, "as before there were headers"
    assert partition(by_headers) == 5
    assert partition(lambda *_: {6, 3}) == 3
    assert partition(lambda *_: None) == partition() == partition(lambda *_: set())
