"""User-defined stores in a topology and as values."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from penstock import Processor, Record, Serdes, StoreBuilder, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.record import RecordBatch
from penstock.state.build import restore_store
from penstock.state.custom import CustomStore
from penstock.state.memory import MemoryBase
from penstock.testing import TopologyTestDriver
from tests.support.custom_stores import DictStore, DictStoreSupplier


def test_a_restore_from_a_changelog_makes_no_store_of_the_user() -> None:
    class Unmade(DictStoreSupplier):
        def get(self) -> DictStore:
            raise AssertionError("the task that is opened makes it")

    records = RecordBatch.of([(b"a", b"1", 5, 0, ()), (b"b", b"2", 6, 1, ()), (b"a", None, 7, 2, ())])
    config = StreamsConfig({"application.id": "a"}, environment={})
    changes = restore_store(StoreBuilder(Unmade("s")), config, MemoryBase().view("s"), {}, records)
    assert changes == {b"a": None, b"b": b"2"}


class Remember(Processor):
    """Puts each record into the store and forwards what was there."""

    def process(self, record: Record[Any, Any]) -> None:
        """Exchange the value with that of the store."""
        store = self.context.get_state_store("s")
        before = store.get(record.key)
        store.put(record.key, record.value)
        self.context.forward(record.with_value(before))


def test_processors_get_the_object_itself() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(StoreBuilder(DictStoreSupplier("s")))
    builder.stream("in").process(Remember, "s").to("out")
    config = {"application.id": "a", "default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
    with TopologyTestDriver(builder.build(), config) as driver:
        topic = driver.create_input_topic("in", Serdes.string(), Serdes.string())
        output = driver.create_output_topic("out", Serdes.string(), Serdes.string())
        topic.pipe_input("k", "1")
        topic.pipe_input("k", "2")
        assert [record.value for record in output.read_records_to_list()] == [None, "1"]
        store = driver.get_state_store("s")
        assert isinstance(store, DictStore)
        assert store.content == {"k": "2"}


def test_the_description_of_a_store_can_be_sent_to_workers() -> None:
    builder = StoreBuilder(DictStoreSupplier("s")).with_logging_disabled()
    copy = pickle.loads(pickle.dumps(builder))
    assert (copy.name, copy.kind, copy.logging) == ("s", "custom", False)


def test_what_is_no_store_is_refused() -> None:
    config = StreamsConfig({"application.id": "a"}, environment={})
    with pytest.raises(TypeError, match=r"DictStoreSupplier.get.* of store 's' returned .*expected a new store"):
        CustomStore(DictStoreSupplier("s", lambda name: object()), config, MemoryBase().view("s"))  # type: ignore[arg-type]  # what a user may do wrong
