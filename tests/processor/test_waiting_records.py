"""Records that wait in a store, against a model: a list of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.errors import ProcessorStateError
from penstock.processor.waiting_records import WaitingRecord, WaitingRecords, unpack_waiting
from penstock.serdes import Serdes
from penstock.serdes.sequenced_key import SequencedKeySerde, sequenced_key
from penstock.state.api import StoreBuilder
from penstock.state.stores import Stores
from penstock_broker.common.durations import LATEST_MS
from tests.support.stores import TaskStore, build

BUILDER: StoreBuilder = Stores.key_value_store_builder(
    Stores.in_memory_key_value_store("waiting"), SequencedKeySerde(Serdes.bytes()), Serdes.bytes()
)

LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
BYTES = st.none() | st.binary(max_size=5)
RECORDS = st.builds(
    WaitingRecord,
    key=BYTES,
    value=BYTES,
    timestamp=LONGS,
    headers=st.lists(st.tuples(st.text(max_size=3), BYTES), max_size=3).map(tuple),
    topic=st.none() | st.text(max_size=5),
    partition=INTS,
    offset=LONGS,
    attempts=st.integers(0, 2**31),
    due=LONGS,
    failure=st.text(max_size=5),
    source=st.none() | st.tuples(BYTES, BYTES),
)
MOST_NUMBERS = 200
"""More than the numbers of any test."""

KEYS = st.sampled_from([None, b"", b"a", b"b", b"a\0"])


def record(key: bytes | None, value: bytes = b"v", due: int = 0) -> WaitingRecord:
    return WaitingRecord(key, value, 5, (("h", b"1"), ("h", None)), "in", 2, 17, due=due)


def waiting(*records: WaitingRecord) -> WaitingRecords:
    found = WaitingRecords(build(BUILDER))
    for each in records:
        found.append(each)
    return found


def of_key(records: WaitingRecords, key: bytes | None) -> list[tuple[int, WaitingRecord]]:
    """The records of a key, in order of arrival."""
    numbered = ((number, records.get(number)) for number in range(1, MOST_NUMBERS))
    return [(number, each) for number, each in numbered if each is not None and each.key == key]


def test_a_record_that_waited_is_the_same_record() -> None:
    waited = record(b"k").that_waited()
    assert (waited.was_waiting, waited == record(b"k"), waited.pack()) == (True, True, record(b"k").pack())
    assert not unpack_waiting(waited.pack(), "waiting").was_waiting


@given(RECORDS)
def test_a_record_is_read_as_it_was_written(written: WaitingRecord) -> None:
    assert unpack_waiting(written.pack(), "waiting") == written


@given(RECORDS)
def test_a_source_with_the_same_bytes_takes_one_byte(written: WaitingRecord) -> None:
    same = replace(written, source=(written.key, written.value))
    assert unpack_waiting(same.pack(), "waiting") == same
    assert len(same.pack()) == len(replace(written, source=None).pack())


def test_the_layout_of_an_entry_is_fixed() -> None:
    store = build(BUILDER)
    assert WaitingRecords(store).append(record(b"k")) == 1
    assert store.changes() == {
        b"\0\0\0\0\0\0\0\x01k": bytes.fromhex(
            "02 9c c4016b c40176 05 92 92a168c40131 92a168c0 a2696e 02 11 00 00 a0 c0 a0"
        )
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"\x01\x90",
            "record in layout 01; this version reads layout 02. Run a version after 0.2.0 and before this one, ",
        ),
        (b"\x03\x90", "record in layout 03; this version reads layout 02. Run the version of Penstock that wrote it"),
        (b"", "in layout of no bytes"),
        (b"\x02\x90", "Store 'waiting' has a damaged waiting record: "),
        (b"\x02\xff\xff", "damaged"),
    ],
)
def test_an_unreadable_entry_fails_with_the_name_of_the_store(data: bytes, message: str) -> None:
    store = build(BUILDER)
    store.put(sequenced_key(1, b"k"), data)
    with pytest.raises(ProcessorStateError, match=message):
        WaitingRecords(store)


def test_a_digest_depends_on_each_field() -> None:
    one = record(b"k")
    assert len(one.digest()) == 8
    assert one.digest() == unpack_waiting(one.pack(), "waiting").digest()
    others = [replace(one, value=b"w"), replace(one, offset=18), replace(one, call_id="in-2-17-op:1")]
    assert len({each.digest() for each in (one, *others)}) == 4


def test_the_next_record_of_a_key_follows_the_first() -> None:
    records = waiting(record(b"a", b"1"), record(b"b", b"2"), record(b"a", b"3", due=9))
    assert [(sequence, each.value) for sequence, each in records.due(LATEST_MS)] == [(1, b"1"), (2, b"2")]
    records.remove(1)
    assert [(sequence, each.value) for sequence, each in records.due(LATEST_MS)] == [(2, b"2"), (3, b"3")]
    assert records.first(b"a") == (3, record(b"a", b"3", due=9))
    assert of_key(records, b"a") == [(3, record(b"a", b"3", due=9))]
    assert records.due(8) == [(2, record(b"b", b"2"))]
    assert records.get(1) is None


def test_each_record_with_a_null_key_is_first() -> None:
    records = waiting(record(None, b"1", due=5), record(None, b"2"))
    assert not records.waits(None)
    assert records.first(None) is None
    assert [sequence for sequence, _ in records.due(LATEST_MS)] == [1, 2]
    assert [sequence for sequence, _ in records.due(0)] == [2]


def test_an_empty_key_is_no_null_key() -> None:
    records = waiting(record(b"", b"1"), record(b"", b"2"))
    assert records.waits(b"")
    assert [sequence for sequence, _ in records.due(LATEST_MS)] == [1]


def test_numbers_are_not_used_twice_while_the_store_is_open() -> None:
    records = waiting(record(b"a"))
    records.remove(1)
    assert records.append(record(b"a")) == 2


def test_an_unknown_number_is_refused() -> None:
    records = waiting(record(b"a"))
    with pytest.raises(KeyError, match="Store 'waiting' has no waiting record 2"):
        records.remove(2)
    with pytest.raises(KeyError, match="no waiting record 2"):
        records.replace(2, record(b"a"))


def test_a_record_keeps_its_key() -> None:
    with pytest.raises(ValueError, match=r"waiting record 1 has the key b'a', not b'b'; its place depends on the key"):
        waiting(record(b"a")).replace(1, record(b"b"))


def test_a_lost_entry_is_reported() -> None:
    store = build(BUILDER)
    records = WaitingRecords(store)
    records.append(record(b"a"))
    store.delete(sequenced_key(1, b"a"))
    with pytest.raises(ProcessorStateError, match="has lost waiting record 1: only its operator may write to it"):
        records.first(b"a")


class Model(RuleBasedStateMachine):
    """Compares with a dict of all records by number, in order of arrival."""

    @initialize()
    def begin(self) -> None:
        self.store = TaskStore(BUILDER)
        self.records = WaitingRecords(self.store.store)
        self.model: dict[int, WaitingRecord] = {}
        self.committed: dict[int, WaitingRecord] = {}

    @rule(key=KEYS, due=st.integers(0, 9), value=st.binary(max_size=9))
    def append(self, key: bytes | None, due: int, value: bytes) -> None:
        added = record(key, value, due)
        sequence = self.records.append(added)
        assert all(sequence > other for other in self.model)
        self.model[sequence] = added

    @precondition(lambda self: self.model)
    @rule(data=st.data(), due=st.integers(0, 9), attempts=st.integers(0, 300))
    def replace(self, data: st.DataObject, due: int, attempts: int) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.model)))
        self.model[sequence] = replace(self.model[sequence], due=due, attempts=attempts)
        self.records.replace(sequence, self.model[sequence])

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.model)))
        self.records.remove(sequence)
        del self.model[sequence]

    @rule()
    def commit(self) -> None:
        self.store.commit()
        self.committed = dict(self.model)

    @rule()
    def roll_back(self) -> None:
        self.store.restart()
        self.records = WaitingRecords(self.store.store)
        self.model = dict(self.committed)

    @invariant()
    def agrees(self) -> None:
        lines: dict[bytes, list[tuple[int, WaitingRecord]]] = {}
        heads = []
        for sequence, each in self.model.items():
            if each.key is None or each.key not in lines:
                heads.append((sequence, each))
            if each.key is not None:
                lines.setdefault(each.key, []).append((sequence, each))
        assert self.records.due(LATEST_MS) == heads
        assert len(self.records) == len(self.model)
        for key in (b"", b"a", b"b", b"a\0"):
            assert self.records.waits(key) == (key in lines)
            assert of_key(self.records, key) == lines.get(key, [])
            assert self.records.first(key) == lines.get(key, [None])[0]
        assert self.records.next_due() == min((each.due for _, each in heads), default=None)
        for time in {each.due for _, each in heads}:
            assert self.records.due_after(time) == [(number, each) for number, each in heads if each.due > time]
        for now in (0, 4, 9):
            assert self.records.due(now) == [head for head in heads if head[1].due <= now]
        with self.store.store.all() as entries:
            assert self.records.size_bytes == sum(len(key) + len(value) for key, value in entries)


TestModel = Model.TestCase
