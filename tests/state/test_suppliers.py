"""Kinds of stores as plain values."""

from __future__ import annotations

import pickle

import pytest

from penstock.state.api import CUSTOM
from penstock.state.suppliers import (
    KeyValueBytesStoreSupplier,
    LruMapBytesStoreSupplier,
    SessionBytesStoreSupplier,
    StoreSupplier,
    TimeOrderedBufferBytesStoreSupplier,
    TimeOrderedKeyValueBytesStoreSupplier,
    VersionedBytesStoreSupplier,
    WindowBytesStoreSupplier,
)

SUPPLIERS: list[tuple[StoreSupplier, bool | None]] = [
    (KeyValueBytesStoreSupplier("s", None), None),
    (LruMapBytesStoreSupplier("s", 5), True),
    (WindowBytesStoreSupplier("s", 100, 10, False, True), True),
    (SessionBytesStoreSupplier("s", 100, False), False),
    (VersionedBytesStoreSupplier("s", 100, 10), False),
    (TimeOrderedBufferBytesStoreSupplier("s"), None),
]


def test_each_kind_has_a_name_of_its_own() -> None:
    kinds = [supplier.kind for supplier, _ in SUPPLIERS]
    assert len({*kinds, CUSTOM}) == len(SUPPLIERS) + 1
    assert TimeOrderedKeyValueBytesStoreSupplier("s", False).kind == "key_value"


@pytest.mark.parametrize(("supplier", "in_memory"), SUPPLIERS, ids=lambda each: getattr(each, "kind", ""))
def test_a_supplier_can_be_sent_to_workers(supplier: StoreSupplier, in_memory: bool | None) -> None:
    assert pickle.loads(pickle.dumps(supplier)) == supplier
    assert (supplier.name, supplier.in_memory) == ("s", in_memory)


@pytest.mark.parametrize(("retention", "interval"), [(0, 60_000), (120_001, 60_000), (120_002, 60_001)])
def test_a_segment_is_half_of_the_retention_and_at_least_a_minute(retention: int, interval: int) -> None:
    assert WindowBytesStoreSupplier("s", retention, 0, False, None).segment_interval_ms == interval
    assert SessionBytesStoreSupplier("s", retention, None).segment_interval_ms == interval


def test_a_window_store_is_described_as_in_kafka() -> None:
    assert str(WindowBytesStoreSupplier("w", 200_000, 10, True, False)) == (
        "RocksDbWindowBytesStoreSupplier{name='w', retentionPeriod=200000, segmentInterval=100000, windowSize=10, "
        "retainDuplicates=true, windowStoreType=DEFAULT_WINDOW_STORE}"
    )
    assert str(WindowBytesStoreSupplier("w", 200_000, 10, False, True)) == (
        "InMemoryWindowBytesStoreSupplier{name='w', retentionPeriod=200000, windowSize=10, retainDuplicates=false}"
    )
