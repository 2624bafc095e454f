"""Stores that users write: in a topology, over commits and crashes; and the kit that checks them finds faults."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import pytest

from penstock import Processor, Record, Serde, Serdes, StoreBuilder, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.errors import InvalidStateStoreError
from penstock.record import RecordBatch
from penstock.state.build import restore_store
from penstock.state.conformance import check_key_value_store
from penstock.state.custom import CustomStateStore, CustomStore, CustomStoreSupplier, StateStoreContext
from penstock.state.memory import MemoryBase
from penstock.testing import TopologyTestDriver


class Entries:
    """An iterator over entries as the API asks for."""

    def __init__(self, entries: Sequence[tuple[str, str]]) -> None:
        self._entries = list(entries)
        self._open = True

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return self

    def __next__(self) -> tuple[str, str]:
        self._check()
        if not self._entries:
            raise StopIteration
        return self._entries.pop(0)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def peek_next_key(self) -> str:
        self._check()
        return self._entries[0][0]

    def close(self) -> None:
        self._open = False

    def _check(self) -> None:
        if not self._open:
            raise InvalidStateStoreError("closed")


class DictStore:
    """A key-value store in a dict of str."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.content: dict[str, str] = {}
        self.context: StateStoreContext
        self._open = False

    def init(self, context: StateStoreContext) -> None:
        self.context = context
        self._open = True
        context.register(self.restore)

    def restore(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        self.content = {key.decode(): value.decode() for key, value in entries}

    def is_open(self) -> bool:
        return self._open

    def persistent(self) -> bool:
        return False

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self._open = False

    def get(self, key: str) -> str | None:
        self._check(key)
        return self.content.get(key)

    def put(self, key: str, value: str | None) -> None:
        self._check(key)
        if value is None:
            self.content.pop(key, None)
        else:
            self.content[key] = value
        self.context.log_change(key.encode(), None if value is None else value.encode())

    def put_if_absent(self, key: str, value: str) -> str | None:
        before = self.get(key)
        if before is None:
            self.put(key, value)
        return before

    def put_all(self, entries: Sequence[tuple[str, str]]) -> None:
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: str) -> str | None:
        before = self.get(key)
        self.put(key, None)
        return before

    def range(self, first: str | None, last: str | None) -> Entries:
        return Entries(
            [
                (key, value)
                for key, value in sorted(self.content.items(), key=lambda entry: entry[0].encode())
                if (first is None or key.encode() >= first.encode()) and (last is None or key.encode() <= last.encode())
            ]
        )

    def reverse_range(self, first: str | None, last: str | None) -> Entries:
        return Entries(list(self.range(first, last))[::-1])

    def all(self) -> Entries:
        return self.range(None, None)

    def reverse_all(self) -> Entries:
        return self.reverse_range(None, None)

    def prefix_scan(self, prefix: str, prefix_serde: Serde) -> Entries:
        return Entries([(key, value) for key, value in self.all() if key.startswith(prefix)])

    def approximate_num_entries(self) -> int:
        return len(self.content)

    def _check(self, key: str | None) -> None:
        if not self._open:
            raise InvalidStateStoreError("closed")
        if key is None:
            raise TypeError("key must not be None")


class DictStoreSupplier(CustomStoreSupplier):
    """Makes a store of a class."""

    def __init__(self, name: str, kind_of_store: type = DictStore) -> None:
        super().__init__(name)
        self.kind_of_store = kind_of_store

    def get(self) -> CustomStateStore:
        store: CustomStateStore = self.kind_of_store(self.name)
        return store


class NamelessSupplier(DictStoreSupplier):
    def __init__(self) -> None:
        self.kind_of_store = DictStore


def test_a_supplier_whose_base_was_not_initialised_is_refused_where_it_is_used() -> None:
    with pytest.raises(TypeError, match=r"NamelessSupplier has no name: call super\(\).__init__\(name\)"):
        StoreBuilder(NamelessSupplier())


def test_a_store_that_keeps_the_rules_passes_the_kit() -> None:
    check_key_value_store(lambda: DictStoreSupplier("s"))


class Forgetful(DictStore):
    """Does not tell deletes."""

    def put(self, key: str, value: str | None) -> None:
        self._check(key)
        if value is None:
            self.content.pop(key, None)
        else:
            super().put(key, value)


class Unregistered(DictStore):
    """Is not restored."""

    def init(self, context: StateStoreContext) -> None:
        super().init(context)
        context.restore = None


class Unordered(DictStore):
    """Does not keep the order of bytes."""

    def all(self) -> Entries:
        return Entries(list(self.content.items()))


class Careless(DictStore):
    """Takes any key."""

    def _check(self, key: str | None) -> None:
        pass


class Shared(DictStore):
    """Keeps the entries of all tasks in one place."""

    place: ClassVar[dict[str, str]] = {}

    def restore(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        super().restore(entries)
        self.place.clear()
        self.place.update(self.content)
        self.content = self.place


class Stubborn(DictStore):
    """Never closes."""

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Forgetful, "Expected get.* after it was restored"),
        (Unregistered, "after it was restored"),
        (Unordered, r"Expected all\(\)"),
        (Shared, r"Expected all\(\) of the store of another task"),
        (Careless, "put of a None key|get after close"),
        (Stubborn, "is_open"),
    ],
)
def test_the_kit_finds_a_store_that_breaks_a_rule(kind: type, text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        check_key_value_store(lambda: DictStoreSupplier("s", kind))


def test_a_store_of_which_only_one_can_be_open_is_found_by_the_kit() -> None:
    class Locked(DictStore):
        def put(self, key: str, value: str | None) -> None:
            if self.context.task_id != "0_0":
                raise OSError("locked")
            super().put(key, value)

    with pytest.raises(AssertionError, match=r"not to disturb one another.*locked.*context\.task_id in their path"):
        check_key_value_store(lambda: DictStoreSupplier("s", Locked))


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


def test_there_is_no_cache_before_a_store_of_a_users_own() -> None:
    with pytest.raises(RuntimeError, match="Store 's' is of your own kind"):
        StoreBuilder(DictStoreSupplier("s")).with_caching_enabled()


def test_what_is_no_store_is_refused() -> None:
    config = StreamsConfig({"application.id": "a"}, environment={})
    with pytest.raises(TypeError, match=r"DictStoreSupplier.get.* of store 's' returned .*expected a new store"):
        CustomStore(DictStoreSupplier("s", lambda name: object()), config, MemoryBase().view("s"))  # type: ignore[arg-type]  # what a user may do wrong
