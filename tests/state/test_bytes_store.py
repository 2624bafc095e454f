"""Tests of the protocols of stores of bytes: their classes have all methods."""

from __future__ import annotations

import pytest

from penstock.state.bytes_store import BufferedBytesStore, CachingBytesStore
from penstock.state.caching_store import CachingKeyValueStore
from penstock.state.change_logging_store import ChangeLoggingStore
from penstock.state.expiring_store import ExpiringCachingStore, ExpiringStore
from penstock.state.lru import LruStore
from penstock.state.segmented import CachingSegmentedStore, SegmentedStore
from penstock.state.uncommitted import UncommittedStore
from penstock.state.wrapped import WithoutHeaders
from tests.support.protocols import differences


@pytest.mark.parametrize(
    ("protocol", "implementation"),
    [
        (BufferedBytesStore, UncommittedStore),
        (BufferedBytesStore, WithoutHeaders),
        (BufferedBytesStore, ChangeLoggingStore),
        (BufferedBytesStore, ExpiringStore),
        (BufferedBytesStore, LruStore),
        (BufferedBytesStore, SegmentedStore),
        (CachingBytesStore, CachingKeyValueStore),
        (CachingBytesStore, CachingSegmentedStore),
        (CachingBytesStore, ExpiringCachingStore),
    ],
    ids=lambda kind: kind.__name__,
)
def test_a_class_has_the_methods_of_its_protocol(protocol: type, implementation: type) -> None:
    assert differences(protocol, implementation) == []
