"""Layers that drop timestamps and headers."""

from __future__ import annotations

from penstock import Stores
from penstock.record import ValueTimestampHeaders
from penstock.state.changelog_format import ChangelogRecord
from tests.support.stores import STRING, logged, taken


def test_a_plain_store_below_timestamps_and_headers_keeps_the_values() -> None:
    plain = Stores.persistent_key_value_store("s")
    builder = Stores.timestamped_key_value_store_with_headers_builder(plain, STRING, STRING)
    store, log = logged(builder, {})
    store.put("a", ValueTimestampHeaders("v", 5, (("h", b"1"),)))
    assert store.get("a") == ValueTimestampHeaders("v", -1, ())
    assert taken(log) == [ChangelogRecord(b"a", b"v", 5, (("h", b"1"),))]
