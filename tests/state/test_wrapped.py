"""Layers that drop timestamps and headers."""

from __future__ import annotations

import pytest

from penstock import Stores
from penstock.record import ValueTimestampHeaders
from penstock.state.changelog_format import ChangelogRecord
from penstock.state.headers_layout import pack_headers
from penstock.state.layouts import pack_timestamp
from penstock.state.memory import MemoryBase
from penstock.state.uncommitted import UncommittedStore
from penstock.state.wrapped import WithoutHeaders, WithoutTimestamps
from tests.support.stores import STRING, logged, taken


def test_a_plain_store_below_timestamps_and_headers_keeps_the_values() -> None:
    plain = Stores.persistent_key_value_store("s")
    builder = Stores.timestamped_key_value_store_with_headers_builder(plain, STRING, STRING)
    store, log = logged(builder, {})
    store.put("a", ValueTimestampHeaders("v", 5, (("h", b"1"),)))
    assert store.get("a") == ValueTimestampHeaders("v", -1, ())
    assert taken(log) == [ChangelogRecord(b"a", b"v", 5, (("h", b"1"),))]


@pytest.mark.parametrize(
    ("kind", "prefix", "unknown"),
    [
        (WithoutTimestamps, pack_timestamp(5), pack_timestamp(-1)),
        (WithoutHeaders, pack_headers((("h", b"1"),)) + pack_timestamp(5), b"\x00" + pack_timestamp(-1)),
    ],
)
def test_every_write_drops_the_prefix_and_every_read_has_an_unknown_one(
    kind: type[WithoutTimestamps], prefix: bytes, unknown: bytes
) -> None:
    below = UncommittedStore(MemoryBase().view("s"))
    layer = kind(below)
    layer.put(b"a", prefix + b"1")
    layer.put_many([b"b", b"c"], [prefix + b"2", None])
    assert layer.changes() == below.changes() == {b"a": b"1", b"b": b"2", b"c": None}
    assert layer.get(b"a") == unknown + b"1"
    assert layer.multi_get([b"c", b"b"]) == [None, unknown + b"2"]
    assert list(layer.range(None, None, True)) == [(b"b", unknown + b"2"), (b"a", unknown + b"1")]
    assert (layer.approximate_num_entries(), layer.uncommitted_bytes()) == (2, below.uncommitted_bytes())
    layer.clear()
    assert below.changes() == {}
