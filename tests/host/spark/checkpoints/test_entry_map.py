"""Single entries that a function rewrites: what stays, and which stores can be rewritten."""

from __future__ import annotations

import pytest

from penstock import Serdes, StreamsConfig
from penstock.errors import StreamsError
from penstock.host.spark.checkpoints.entry_map import EntryMap, StoreSerdes
from penstock.serdes.subscription import SubscriptionWrapperSerde
from penstock.state.api import StoreBuilder, StoreSource
from penstock.state.headers_layout import pack_headers
from penstock.state.layouts import pack_session, pack_timestamp, pack_window
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

STRING = Serdes.string()
HEADERS = pack_headers((("origin", b"here"),))
WINDOWS = WindowBytesStoreSupplier("store", 1, 1, False, None)
SESSIONS = SessionBytesStoreSupplier("store", 1, None)
TIME, SEGMENT = pack_timestamp(17), pack_timestamp(3)


def config(store_format: str = "default") -> StreamsConfig:
    return StreamsConfig({"application.id": "app", "dsl.store.format": store_format}, environment={})


def upper(key: str, value: str) -> tuple[str, str]:
    return f"{key}!", value.upper()


KEY_VALUES = KeyValueBytesStoreSupplier("store", None)
WITHOUT_TIMES = KeyValueBytesStoreSupplier("store", None, keeps_timestamps=False)
OF_FORMAT = KeyValueBytesStoreSupplier("store", None, keeps_headers=None)


@pytest.mark.parametrize(
    ("supplier", "timestamped", "with_headers", "head", "around"),
    [
        (KEY_VALUES, False, False, b"", (b"", b"")),
        (KEY_VALUES, True, False, TIME, (b"", b"")),
        (WITHOUT_TIMES, True, False, b"", (b"", b"")),
        (KEY_VALUES, True, True, HEADERS + TIME, (b"", b"")),
        (OF_FORMAT, True, None, HEADERS + TIME, (b"", b"")),
        (WINDOWS, True, False, TIME, (SEGMENT, pack_window(5, 0))),
        (WINDOWS, True, True, HEADERS + TIME, (SEGMENT, pack_window(5, 0))),
        (SESSIONS, False, False, b"", (SEGMENT, pack_session(5, 2))),
        (SESSIONS, False, True, HEADERS, (SEGMENT, pack_session(5, 2))),
    ],
)
def test_times_headers_windows_and_sessions_stay(
    supplier: StoreSupplier, timestamped: bool, with_headers: bool | None, head: bytes, around: tuple[bytes, bytes]
) -> None:
    builder = StoreBuilder(supplier, STRING, STRING, timestamped, with_headers=with_headers)
    mapped = EntryMap(upper, builder, config("headers"), StoreSerdes(builder, config("headers")))
    before, after = around
    assert mapped.apply(before + b"key" + after, head + b"value") == (before + b"key!" + after, head + b"VALUE")


@pytest.mark.parametrize(
    "builder",
    [
        StoreBuilder(LruMapBytesStoreSupplier("store", 5)),
        StoreBuilder(VersionedBytesStoreSupplier("store", 1, 1)),
        StoreBuilder(TimeOrderedBufferBytesStoreSupplier("store")),
        StoreBuilder(TimeOrderedKeyValueBytesStoreSupplier("store", None)),
        StoreBuilder(WindowBytesStoreSupplier("store", 1, 1, True, None)),
        StoreBuilder(KEY_VALUES, STRING, SubscriptionWrapperSerde(STRING)),
    ],
)
def test_other_kinds_of_stores_are_refused(builder: StoreBuilder) -> None:
    with pytest.raises(StreamsError, match=r"Store store is of the kind .*: --map rewrites stores of keys and values"):
        EntryMap(upper, builder, config(), StoreSerdes(StoreBuilder(KEY_VALUES, STRING, STRING), config()))


def test_a_store_that_is_a_copy_of_a_topic_is_refused() -> None:
    builder = StoreBuilder(KEY_VALUES, STRING, STRING, source=StoreSource("orders"))
    with pytest.raises(StreamsError, match="Store store has the topic orders as its changelog"):
        EntryMap(upper, builder, config(), StoreSerdes(builder, config()))


@pytest.mark.parametrize("result", [None, ("key", None)])
def test_no_value_deletes_the_entry(result: tuple[str, None] | None) -> None:
    builder = StoreBuilder(KEY_VALUES, STRING, STRING)
    mapped = EntryMap(lambda key, value: result, builder, config(), StoreSerdes(builder, config()))
    assert mapped.apply(b"key", b"value") is None


@pytest.mark.parametrize(("added", "written"), [(None, b'{ "id": 1 }'), (2, b'{"id":2}')])
def test_only_a_changed_key_is_written(added: int | None, written: bytes) -> None:
    def changed(key: dict[str, int], value: str) -> tuple[dict[str, int], str]:
        if added is not None:
            key["id"] = added
        return key, value

    builder = StoreBuilder(KEY_VALUES, Serdes.json(), STRING)
    mapped = EntryMap(changed, builder, config(), StoreSerdes(builder, config()))
    assert mapped.apply(b'{ "id": 1 }', b"value") == (written, b"value")


def test_only_the_first_failures_are_kept() -> None:
    builder = StoreBuilder(KEY_VALUES, Serdes.long(), STRING)
    mapped = EntryMap(upper, builder, config(), StoreSerdes(builder, config()))
    for number in range(30):
        mapped.count_failure("0_1", number.to_bytes(8, "big"), ValueError("why"))
    mapped.count_failure("0_1", b"short", ValueError("why"))
    assert (mapped.result.entries, mapped.result.failed) == (31, 31)
    assert [failure.key for failure in mapped.result.failures] == [str(number) for number in range(10)]
