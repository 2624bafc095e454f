"""Record keys within the keys of stores' entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import StreamsError
from penstock.record import Change
from penstock.serdes import Serde
from penstock.serdes.buffer import BufferKey, BufferKeySerde
from penstock.serdes.key_and_id import KeyAndIdSerde
from penstock.serdes.outer_join import TimestampedKeyAndJoinSide, TimestampedKeyAndJoinSideSerde
from penstock.serdes.sequenced_key import SequencedKeySerde, sequenced_key
from penstock.serdes.subscription import Instruction, SubscriptionWrapper, SubscriptionWrapperSerde
from penstock.serdes.windowed import WindowedSerdes
from penstock.state.api import StoreBuilder
from penstock.state.record_keys import foreign_key_of, primary_key_of, record_key_reader
from penstock.state.stores import Stores
from penstock.state.suppliers import TimeOrderedBufferBytesStoreSupplier
from penstock.windows import SessionWindow, TimeWindow, Windowed
from tests.support.custom_stores import DictStoreSupplier
from tests.support.stores import CONTEXT, STRING, build, text_store

WINDOW, SESSION = Windowed("k", TimeWindow(5, 15)), Windowed("k", SessionWindow(5, 15))
WINDOWED_KEY = WindowedSerdes.time_windowed(STRING, 10).serialize("", WINDOW)
MEMORY = Stores.in_memory_key_value_store("s")


def keyed(serde: Serde | None) -> StoreBuilder:
    return Stores.key_value_store_builder(MEMORY, serde, STRING)


def put(key: Any) -> Callable[[Any], object]:
    return lambda store: store.put(key, "v")


def put_versions(store: Any) -> None:
    store.put("k", "old", 5)
    store.put("k", "new", 6)


@pytest.mark.parametrize(
    ("builder", "write"),
    [
        (text_store(), put("k")),
        (Stores.key_value_store_builder(Stores.lru_map("s", 5), STRING, STRING), put("k")),
        (
            Stores.window_store_builder(Stores.persistent_window_store("s", 100, 10, False), STRING, STRING),
            lambda store: store.put("k", "v", 5),
        ),
        (Stores.session_store_builder(Stores.persistent_session_store("s", 100), STRING, STRING), put(SESSION)),
        (
            Stores.versioned_key_value_store_builder(
                Stores.persistent_versioned_key_value_store("s", 100), STRING, STRING
            ),
            put_versions,
        ),
        (
            StoreBuilder(TimeOrderedBufferBytesStoreSupplier("s"), STRING, STRING),
            lambda store: store.put(5, "k", Change("new", None), CONTEXT),
        ),
        (keyed(WindowedSerdes.time_windowed(STRING, 10)), put(WINDOW)),
        (keyed(WindowedSerdes.session_windowed(STRING)), put(SESSION)),
        (keyed(BufferKeySerde(STRING)), put(BufferKey(5, "k", 1))),
        (keyed(TimestampedKeyAndJoinSideSerde(STRING)), put(TimestampedKeyAndJoinSide(5, True, "k"))),
        (keyed(KeyAndIdSerde(STRING, STRING)), put(("k", "id"))),
        (keyed(KeyAndIdSerde(WindowedSerdes.time_windowed(STRING, 10), STRING)), put((WINDOW, "id"))),
        (keyed(SequencedKeySerde(STRING)), put(sequenced_key(7, b"k"))),
        (keyed(SequencedKeySerde(WindowedSerdes.time_windowed(STRING, 10))), put(sequenced_key(7, WINDOWED_KEY))),
    ],
    ids=[
        "key value",
        "lru",
        "window",
        "session",
        "versions",
        "buffer",
        "windowed",
        "sessions",
        "join",
        "outer join",
        "id",
        "windowed id",
        "waiting",
        "windowed waiting",
    ],
)
def test_every_entry_of_a_store_leads_to_its_record_key(builder: StoreBuilder, write: Callable[[Any], object]) -> None:
    store = build(builder)
    write(store)
    entries = store.changes()
    assert entries
    assert set(map(record_key_reader(builder, None), entries)) == {b"k"}


def test_a_store_without_a_key_serde_has_the_default() -> None:
    reader = record_key_reader(keyed(None), WindowedSerdes.time_windowed(STRING, 10))
    assert reader(WindowedSerdes.time_windowed(STRING, 10).serialize("", WINDOW)) == b"k"
    assert record_key_reader(keyed(None), None)(b"any bytes") == b"any bytes"


def test_subscriptions_are_partitioned_by_their_foreign_key() -> None:
    combined = b"\0\0\0\x02fkprimary"
    assert (foreign_key_of(combined), primary_key_of(combined)) == (b"fk", b"primary")
    builder = Stores.key_value_store_builder(MEMORY, STRING, SubscriptionWrapperSerde(STRING))
    store = build(builder)
    wanted = SubscriptionWrapper(None, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE, "primary", 0)
    store.put(combined.decode(), wanted)
    assert [*map(record_key_reader(builder, None), store.changes())] == [b"fk"]


def test_keys_of_a_user_defined_store_are_unknown() -> None:
    with pytest.raises(StreamsError, match=r"Store s is of a custom kind.*Keep the partitions"):
        record_key_reader(StoreBuilder(DictStoreSupplier("s")), STRING)
