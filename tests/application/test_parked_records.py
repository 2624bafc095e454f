"""The parked keys of an application, from its stores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock import Backoff, Calls, Consumed, Park, Serdes, Stores, StreamsBuilder
from penstock.application.parked_records import ParkedKey, ParkedRecords, PartitionRequest, parked_stores
from penstock.errors import UnknownStateStoreError
from penstock.processor.parked_requests import ParkedAction, ParkedRequest
from penstock.processor.waiting_records import WaitingRecord, WaitingRecords
from penstock.serdes.sequenced_key import SequencedKeySerde
from penstock.serdes.waiting_value import WaitingValueSerde
from penstock.state.api import StoreBuilder
from tests.application.test_store_entries import CONFIG, LONG, TEXT, Partitions

FAILED = WaitingRecord(b"a", b"a1", 5, (), "in", 1, 17, attempts=2, due=9_000, failure="ConnectionError: no answer")


def waiting(builder: StoreBuilder) -> tuple[Partitions, list[WaitingRecords]]:
    partitions = Partitions(builder)
    return partitions, [WaitingRecords(store) for store in partitions.stores]


def parked_store() -> StoreBuilder:
    supplier = Stores.in_memory_key_value_store("s")
    return Stores.key_value_store_builder(supplier, SequencedKeySerde(TEXT), WaitingValueSerde(TEXT))


def test_each_key_is_one_row_with_its_first_record() -> None:
    partitions, (one, two) = waiting(parked_store())
    one.append(FAILED)
    one.append(replace(FAILED, key=None, offset=18))
    one.append(replace(FAILED, offset=19, attempts=0, due=0, failure=""))
    one.append(replace(FAILED, key=None, offset=20))
    two.append(replace(FAILED, key=b"b", topic=None, partition=-1, offset=-1))
    found = list(ParkedRecords(partitions, partitions.builders, CONFIG).keys())
    assert sum(each.bytes for each in found) == one.size_bytes + two.size_bytes
    row = ParkedKey("s", 0, "a", 2, 2, 9_000, "ConnectionError: no answer", 5, "in", 1, 17, 0)
    assert [replace(each, bytes=0) for each in found] == [
        row,
        replace(row, key=None, records=1, offset=18),
        replace(row, key=None, records=1, offset=20),
        replace(row, partition=1, key="b", records=1, topic=None, source_partition=-1, offset=-1),
    ]


def test_a_key_that_its_serde_cannot_read_is_shown_as_bytes() -> None:
    supplier = Stores.in_memory_key_value_store("s")
    builder = Stores.key_value_store_builder(supplier, SequencedKeySerde(LONG), WaitingValueSerde(TEXT))
    partitions, (one, _) = waiting(builder)
    one.append(FAILED)
    one.append(replace(FAILED, key=(7).to_bytes(8, "big")))
    assert [each.key for each in ParkedRecords(partitions, partitions.builders, CONFIG).keys("s")] == [b"a", 7]


def test_a_request_concerns_what_waits_in_each_partition() -> None:
    partitions, (one, two) = waiting(parked_store())
    for key in (b"a", b"b", b"a", None):
        one.append(replace(FAILED, key=key))
    two.append(replace(FAILED, key=b"a"))
    records = ParkedRecords(partitions, partitions.builders, CONFIG)
    assert records.requests("s", ParkedAction.DROP) == [
        PartitionRequest(0, ParkedRequest(ParkedAction.DROP, 4), 3, 4),
        PartitionRequest(1, ParkedRequest(ParkedAction.DROP, 1), 1, 1),
    ]
    assert records.requests("s", ParkedAction.RETRY, lambda key: key == "a") == [
        PartitionRequest(0, ParkedRequest(ParkedAction.RETRY, 3, (b"a",)), 1, 2),
        PartitionRequest(1, ParkedRequest(ParkedAction.RETRY, 1, (b"a",)), 1, 1),
    ]
    assert records.requests("s", ParkedAction.RETRY, lambda key: key is None) == [
        PartitionRequest(0, ParkedRequest(ParkedAction.RETRY, 4, (None,)), 1, 1)
    ]
    assert records.requests("s", ParkedAction.DROP, lambda key: key == "c") == []


def test_the_stores_of_calls_have_no_parked_records() -> None:
    async def ask(value: str) -> str:
        return value

    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(TEXT, TEXT))
    stream.map_values(ask, named="ask", calls=Calls())
    stream.foreach(print, named="charge", on_error=Park(backoff=Backoff(1_000), attempts=2))
    assert parked_stores(builder.build().build("app")) == {"charge-parked"}


def test_other_stores_have_no_parked_records() -> None:
    partitions = Partitions(Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), TEXT, Serdes.bytes()))
    records = ParkedRecords(partitions, partitions.builders, CONFIG)
    assert list(records.keys()) == []
    with pytest.raises(UnknownStateStoreError, match=r"Store s is no store of parked records: expected one of none"):
        list(records.keys("s"))
