"""What only the base over RocksDB does: it comes back from disk, and its options can be set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import rocksdict
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import StreamsConfig
from penstock.errors import CorruptedBaseError, InvalidStateStoreError, LockError, TaskCorruptedError
from penstock.metrics.rocksdb_names import ROCKSDB_PROPERTIES
from penstock.state.rocksdb import RocksDBBase, RocksDBConfigSetter


def entries(base: RocksDBBase, store: str = "s") -> list[tuple[bytes, bytes]]:
    return list(base.view(store).range(None, None, False))


def test_a_closed_base_comes_back(tmp_path: Path) -> None:
    base = RocksDBBase(tmp_path / "base")
    base.apply({"s": {b"a": b"1"}, "t": {b"b": b"2"}}, b"one")
    base.close()
    again = RocksDBBase(tmp_path / "base")
    assert (again.stamp(), entries(again), entries(again, "t")) == (b"one", [(b"a", b"1")], [(b"b", b"2")])
    again.apply({"t": {b"c": b"3"}, "u": {b"d": b"4"}}, b"two")
    assert [again.view(name).approximate_num_entries() for name in "stu"] == [1, 2, 1]
    again.close()


def test_a_rebuild_that_fails_changes_nothing_and_one_that_succeeds_takes_its_place(tmp_path: Path) -> None:
    def broken() -> Iterator[dict[str, dict[bytes, bytes | None]]]:
        yield {"s": {b"a": b"2"}, "new": {b"x": b"y"}}
        raise TaskCorruptedError("torn")

    base = RocksDBBase(tmp_path / "base")
    base.apply({"s": {b"a": b"1"}}, b"one")
    with pytest.raises(TaskCorruptedError):
        base.rebuild(broken, b"two")
    assert (base.stamp(), entries(base), entries(base, "new")) == (b"one", [(b"a", b"1")], [])
    base.rebuild(lambda: iter([{"t": {b"b": b"2"}}]), b"three")
    assert (base.stamp(), entries(base), entries(base, "t")) == (b"three", [], [(b"b", b"2")])
    base.close()
    assert entries(RocksDBBase(tmp_path / "base"), "t") == [(b"b", b"2")]


def test_two_cannot_have_it_open_and_a_closed_one_says_so(tmp_path: Path) -> None:
    base = RocksDBBase(tmp_path / "base")
    with pytest.raises(LockError, match="is already open"):
        RocksDBBase(tmp_path / "base")
    base.close()
    with pytest.raises(InvalidStateStoreError, match="is closed"):
        base.stamp()


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-*", "*.sst"])
@pytest.mark.parametrize("is_gone", [True, False])
def test_a_database_that_rocksdb_cannot_open_begins_empty(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, is_gone: bool
) -> None:
    base = RocksDBBase(tmp_path / "base")
    base.apply({"s": {b"a": b"1"}}, b"one")
    base.close()
    [path] = (tmp_path / "base").glob(name)
    path.unlink()
    if not is_gone:
        path.write_bytes(b"no database")
    again = RocksDBBase(tmp_path / "base")
    assert (again.stamp(), entries(again), again.is_damaged) == (None, [], False)
    assert f"The base {tmp_path / 'base'} is damaged" in caplog.text
    again.apply({"s": {b"b": b"2"}}, b"two")
    assert entries(again) == [(b"b", b"2")]
    again.close()


def test_a_base_that_is_made_again_knows_nothing_of_the_stores_it_had(tmp_path: Path) -> None:
    base = RocksDBBase(tmp_path / "base")
    base.apply({f"store {number}": {b"a": b"1"} for number in range(1_000)}, b"one")
    base.close()
    [path] = (tmp_path / "base").glob("*.sst")
    blocks = path.read_bytes()
    place = len(blocks) // 2  # behind the first numbers of stores
    path.write_bytes(blocks[:place] + bytes([blocks[place] ^ 1]) + blocks[place + 1 :])
    again = RocksDBBase(tmp_path / "base")
    assert again.stamp() is None
    for name in ("store 0", "store 1"):
        again.apply({name: {b"b": b"2"}}, b"two")
    again.close()
    last = RocksDBBase(tmp_path / "base")
    assert [entries(last, name) for name in ("store 0", "store 1")] == [[(b"b", b"2")]] * 2
    last.close()


def test_a_damaged_block_is_an_error_of_each_read_that_needs_it(tmp_path: Path) -> None:
    rows = {b"%05d" % number: b"value %d" % number for number in range(2_000)}
    base = RocksDBBase(tmp_path / "base")
    base.apply({"s": dict(rows), "t": {b"a": b"1"}}, b"one")
    base.close()
    [path] = (tmp_path / "base").glob("*.sst")
    blocks = path.read_bytes()
    place = blocks.index(b"value 1000")
    path.write_bytes(blocks[:place] + b"V" + blocks[place + 1 :])
    base = RocksDBBase(tmp_path / "base")
    view = base.view("s")
    assert (base.stamp(), view.get(b"00001"), base.is_damaged) == (b"one", b"value 1", False)
    assert len(list(view.range(b"00000", b"00100", False))) == 100
    reads: list[Callable[[], object]] = [
        lambda: view.get(b"01000"),
        lambda: view.multi_get([b"00001", b"01000"]),
        lambda: list(view.range(None, None, False)),
        lambda: list(view.range(None, None, True)),
        lambda: list(view.range(b"01000", b"01001", False)),
        lambda: list(view.range(b"01000", b"01001", True)),
        lambda: base.apply({"s": {b"01000": b"2"}}, b"two"),
    ]
    for read in reads:
        with pytest.raises(CorruptedBaseError, match=str(tmp_path)):
            read()
    assert base.is_damaged
    with pytest.raises(CorruptedBaseError) as caught:
        list(view.range(None, None, False))
    base.close()
    RocksDBBase(tmp_path / "base").close()  # the error keeps nothing open
    assert caught.value.path == str(tmp_path / "base")


@pytest.mark.parametrize("reverse", [False, True])
def test_iterators_show_the_store_as_it_was_and_do_not_keep_it_open(tmp_path: Path, reverse: bool) -> None:
    base = RocksDBBase(tmp_path / "base")
    base.apply({"s": {b"a": b"1", b"b": b"2"}}, b"one")
    begun, new = (base.view("s").range(None, None, reverse) for _ in range(2))
    next(begun)
    base.apply({"s": {b"a": b"3", b"b": b"3"}}, b"two")
    assert list(new) == sorted([(b"a", b"1"), (b"b", b"2")], reverse=reverse)
    base.rebuild(lambda: iter([{"s": {b"c": b"4"}}]), b"three")
    left = base.view("s").range(None, None, reverse)
    base.close()
    assert [*begun, *left] == []
    assert entries(RocksDBBase(tmp_path / "base")) == [(b"c", b"4")]


class Setter(RocksDBConfigSetter):
    """Records its calls."""

    calls: list[str]

    def __init__(self) -> None:
        Setter.calls = []

    def set_config(self, name: str, options: rocksdict.Options, config: StreamsConfig) -> None:
        options.set_write_buffer_size(1 << 16)
        self.calls.append(f"set {name} {config['application.id']}")

    def close(self, name: str, options: rocksdict.Options) -> None:
        self.calls.append(f"close {name}")


def test_options_can_be_set(tmp_path: Path) -> None:
    config = StreamsConfig({"application.id": "app", "rocksdb.config.setter": Setter}, environment={})
    base = RocksDBBase(tmp_path / "0_1", config)
    base.apply({"s": {b"%d" % number: bytes(100) for number in range(5000)}}, b"one")
    base.close()
    assert Setter.calls == ["set 0_1 app", "close 0_1"]


KEYS = st.binary(max_size=3)


@pytest.mark.slow
@given(
    st.lists(st.dictionaries(KEYS, st.none() | st.binary(max_size=2), max_size=6), max_size=4),
    st.none() | KEYS,
    st.none() | KEYS,
)
def test_ranges_are_those_of_a_sorted_dict(
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[dict[bytes, bytes | None]],
    low: bytes | None,
    high: bytes | None,
) -> None:
    base = RocksDBBase(tmp_path_factory.mktemp("rocksdb"))
    model: dict[bytes, bytes] = {}
    base.apply({"before": {b"\xff\xff": b"x"}, "s": {}, "after": {b"": b"x"}}, b"first")
    for changes in commits:
        base.apply({"s": changes}, b"stamp")
        for key, value in changes.items():
            model.pop(key, None)
            if value is not None:
                model[key] = value
    found = [(k, v) for k, v in sorted(model.items()) if (low is None or k >= low) and (high is None or k < high)]
    view = base.view("s")
    assert list(view.range(low, high, False)) == found
    assert list(view.range(low, high, True)) == found[::-1]
    assert view.approximate_num_entries() == len(model)
    base.close()


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_a_closed_database_has_measured_itself(tmp_path: Path, level: str) -> None:
    given = {"application.id": "app", "metrics.recording.level": level}
    base = RocksDBBase(tmp_path / "base", StreamsConfig(given, environment={}))
    base.apply({"s": {b"%d" % number: bytes(100) for number in range(1000)}}, b"one")
    assert base.view("s").get(b"7") == bytes(100)
    base.close()
    measured = base.measured()
    assert measured["total-sst-files-size"].total > 0
    assert measured["estimate-num-keys"].total >= 1000
    assert (measured.keys() > ROCKSDB_PROPERTIES.keys()) == (level == "DEBUG")
    if level == "DEBUG":
        assert measured["bytes-written"].total > 100_000
        assert measured["memtable-bytes-flushed"].total > 0
        assert 0 < measured["memtable-hit-ratio"].total <= 1
        assert 0 < measured["memtable-flush-time"].least <= measured["memtable-flush-time"].most


def test_an_open_database_measures_itself_ever_less_often_and_counts_each_byte_once(tmp_path: Path) -> None:
    now = [0]
    given = {"application.id": "app", "metrics.recording.level": "DEBUG"}
    base = RocksDBBase(tmp_path / "base", StreamsConfig(given, environment={}), lambda: now[0])
    seconds, written = [], 0.0
    for second in range(40):
        now[0] = second * 1_000_000_000
        base.apply({"s": {b"%d" % second: bytes(100)}}, b"one")
        measured = base.measured()
        if measured:
            seconds.append(second)
            assert measured["num-entries-active-mem-table"].total > second
            written += measured["bytes-written"].total
    assert seconds == [1, 3, 7, 15, 25, 35]
    base.close()
    written += base.measured()["bytes-written"].total
    assert 40 * 100 < written < 2 * 40 * 150
