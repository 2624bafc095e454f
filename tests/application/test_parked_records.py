"""The parked keys of an application, from its stores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock import Serdes, Stores
from penstock.application.parked_records import ParkedKey, ParkedRecords
from penstock.errors import UnknownStateStoreError
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
    row = ParkedKey("s", 0, "a", 2, 2, 9_000, "ConnectionError: no answer", 5, "in", 1, 17)
    assert found == [
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


def test_other_stores_have_no_parked_records() -> None:
    partitions = Partitions(Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), TEXT, Serdes.bytes()))
    records = ParkedRecords(partitions, partitions.builders, CONFIG)
    assert list(records.keys()) == []
    with pytest.raises(UnknownStateStoreError, match=r"Store s is no store of parked records: expected one of none"):
        list(records.keys("s"))
