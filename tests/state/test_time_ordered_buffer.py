"""The buffer of suppress against a plain model: what waits, in which order it leaves, and what the counts say, over
commits and restarts."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from penstock.config import StreamsConfig
from penstock.record import Change, ValueAndTimestamp
from penstock.serdes import Serdes
from penstock.state import time_ordered_buffer
from penstock.state.api import RecordContext, StoreBuilder
from penstock.state.build import build_store
from penstock.state.memory import MemoryBase
from penstock.state.record_cache import RecordCache
from penstock.state.suppliers import TimeOrderedBufferBytesStoreSupplier
from penstock.state.time_ordered_buffer import Eviction, TimeOrderedChangeBuffer
from penstock.windows import LONG_MAX

CONFIG = StreamsConfig({"application.id": "app"}, environment={})
BUILDER = StoreBuilder(TimeOrderedBufferBytesStoreSupplier("b"), Serdes.string(), Serdes.string())


def build(base: MemoryBase, metadata: dict[str, int]) -> TimeOrderedChangeBuffer:
    store = build_store(BUILDER, CONFIG, base.view("b"), RecordCache(0), lambda: context(0), metadata)
    assert isinstance(store, TimeOrderedChangeBuffer)
    return store


def context(offset: int) -> RecordContext:
    return RecordContext(offset, (("h", b"1"), ("none", None)), "topic", 2, offset)


VALUES = st.none() | st.sampled_from(["", "x", "long value"])
PUTS = st.tuples(st.just("put"), st.integers(0, 9), st.sampled_from(["a", "ab", "b"]), VALUES, VALUES)
LEAVES = st.tuples(st.sampled_from(["evict", "take"]), st.integers(0, 3))
STEPS = st.lists(PUTS | LEAVES | st.tuples(st.just("commit")), max_size=30)


@given(STEPS, st.sampled_from([1, 2, 4096]))
def test_updates_leave_in_the_order_of_their_first_time_and_key(steps: list[Any], chunk: int) -> None:
    with patch.object(time_ordered_buffer, "_CHUNK", chunk):  # however many keys one read takes
        follow(steps)


def follow(steps: list[Any]) -> None:
    """Do `steps` to a buffer and to the model, and compare."""
    base, metadata = MemoryBase(), dict[str, int]()
    store = build(base, metadata)
    model: dict[str, tuple[int, str | None, Change, RecordContext]] = {}
    for at, step in enumerate(steps):
        match step:
            case ("put", time, key, new, old):
                store.put(time, key, Change(new, old), context(at))
                known = model.get(key)
                model[key] = (known[0] if known else time, known[1] if known else old, Change(new, old), context(at))
            case ("evict", count):
                left = [count]
                evicted: list[Eviction] = []

                def wanted(left: list[int] = left) -> bool:
                    left[0] -= 1
                    return left[0] >= 0

                store.evict_while(wanted, evicted.append)
                expected = sorted(model.items(), key=lambda item: (item[1][0], item[0]))[:count]
                assert evicted == [Eviction(key, change, origin) for key, (_, _, change, origin) in expected]
                for key, _ in expected:
                    del model[key]
            case ("take", until):
                taken = list(store.take_until(until))
                expected = sorted(model.items(), key=lambda item: (item[1][0], item[0]))
                expected = [(key, held) for key, held in expected if held[0] <= until]
                keys, changes = store.deserialize_changes(taken)
                assert keys == [key for key, _ in expected]
                assert changes == [change for _, (_, _, change, _) in expected]
                assert [update.change.context for update in taken] == [origin for _, (*_, origin) in expected]
                for key, _ in expected:
                    del model[key]
            case _:
                base.apply({"b": store.changes()}, b"stamp")
                store = build(base, metadata)
        assert store.num_records == len(model)
        assert (store.buffer_size > 0) == bool(model)
        assert store.min_timestamp == min((time for time, *_ in model.values()), default=LONG_MAX)
        for key in ("a", "ab", "b"):
            prior = model[key][1] if key in model else None
            assert store.buffers(key) == (key in model)
            assert store.prior_value(key) == (None if prior is None else ValueAndTimestamp(prior, -1))


def test_the_size_is_that_of_kafka() -> None:
    store = build(MemoryBase(), {})
    store.put(5, "key", Change("new", "old"), RecordContext(5, (), "topic", 0, 1))
    assert (
        store.buffer_size == 8 + 3 + 3 + 3 + 20 + 5
    )  # time, key, prior (the old value is the same), new, context, topic
    store.put(6, "key", Change("newer", "new"), RecordContext(6, (("h", b"12"),), "topic", 0, 2))
    assert store.buffer_size == 8 + 3 + 3 + 3 + 5 + 20 + 5 + 3
