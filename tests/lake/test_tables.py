"""Tables of each format: commits with offsets, conflicts with other writers, and new columns."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import StreamsError
from penstock.lake import Delta, Iceberg
from penstock.lake.columns import check_columns
from penstock.lake.tables import KeyedRows, LakeConflictError, LakeTable, TopicIncarnation
from tests.lake.formats import FORMATS, LakeFormat, rows_of

SCHEMA = pa.schema([("_key", pa.string()), ("n", pa.int32())])
SOURCE = TopicIncarnation("app-orders-lake", "id-1", 3)
TIME = pa.timestamp("us", tz="UTC")
NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)
KEYED = pa.schema([pa.field("_key", pa.string(), nullable=False), ("n", pa.int32()), ("_timestamp", TIME)])


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> LakeFormat:
    """A table of each format."""
    made: LakeFormat = FORMATS[request.param](tmp_path)
    return made


def some(*numbers: int, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([{"_key": str(number), "n": number} for number in numbers], schema=schema)


def keyed(schema: pa.Schema = KEYED, deleted: Sequence[Any] = (), **numbers: int) -> KeyedRows:
    """Return changes of the keys of `numbers`, and of deleted keys."""
    rows = [{"_key": key, "n": number, "_timestamp": NOW} for key, number in numbers.items()]
    keys = pa.Table.from_pylist([{"_key": key} for key in deleted], schema=pa.schema([schema.field("_key")]))
    return KeyedRows(pa.Table.from_pylist(rows, schema=schema), keys, ("_key",))


def test_rows_and_offsets_are_one_commit(lake: LakeFormat) -> None:
    table = lake.open(SCHEMA)
    assert table.offsets(SOURCE) == {}
    table.append(some(1, 2), SOURCE, {0: 5})
    table.refresh()
    table.append(some(3), SOURCE, {0: 5, 2: 7})
    again = lake.open(SCHEMA)
    assert again.offsets(SOURCE) == {0: 5, 2: 7}
    assert rows_of(lake) == [("1", 1), ("2", 2), ("3", 3)]


def test_offsets_belong_to_one_topic_from_its_creation_to_its_deletion(lake: LakeFormat) -> None:
    table = lake.open(SCHEMA)
    table.append(some(1), SOURCE, {0: 5})
    table.refresh()
    other, again = TopicIncarnation("other", "id-2", 1), TopicIncarnation(SOURCE.topic, "id-3", 3)
    assert table.offsets(again) == table.offsets(other) == {}
    for number, source in enumerate([other, again]):
        table.append(some(2), source, {0: 9 + number})
        table.refresh()
    assert [table.offsets(source) for source in (SOURCE, other, again)] == [{0: 5}, {0: 9}, {0: 10}]


def test_instances_that_start_at_once_create_one_table(lake: LakeFormat) -> None:
    lake.prepare()
    starts = threading.Barrier(4)

    def start() -> LakeTable:
        starts.wait()
        return lake.open(SCHEMA)

    with ThreadPoolExecutor(4) as threads:
        tables = [each.result() for each in [threads.submit(start) for _ in range(4)]]
    tables[0].refresh()  # a start that was late may have added a version
    tables[0].append(some(1), SOURCE, {0: 1})
    for table in tables:
        table.refresh()
    assert [table.offsets(SOURCE) for table in tables] == [{0: 1}] * 4


@pytest.mark.parametrize("has_rows", [False, True])
def test_a_commit_on_an_older_version_adds_nothing(lake: LakeFormat, has_rows: bool) -> None:
    first, second = lake.open(SCHEMA), lake.open(SCHEMA)
    if has_rows:
        first.append(some(0), SOURCE, {0: 1})
        first.refresh()
        second.refresh()
    first.append(some(1), SOURCE, {0: 2})
    with pytest.raises(LakeConflictError, match="Another program has changed"):
        second.append(some(1), SOURCE, {0: 2})
    second.refresh()
    assert second.offsets(SOURCE) == {0: 2}
    assert [row for row in rows_of(lake) if row[1] == 1] == [("1", 1)]


def test_a_commit_of_another_writer_of_the_table_keeps_the_offsets(lake: LakeFormat) -> None:
    table = lake.open(SCHEMA)
    table.append(some(1), SOURCE, {0: 2})
    lake.append_elsewhere(some(7))
    table.refresh()
    assert table.offsets(SOURCE) == {0: 2}
    lake.append_elsewhere(some(8))
    with pytest.raises(LakeConflictError):
        table.append(some(2), SOURCE, {0: 3})
    table.refresh()
    table.append(some(2), SOURCE, {0: 3})
    assert [row[1] for row in rows_of(lake)] == [1, 2, 7, 8]


def test_a_compaction_keeps_rows_and_offsets(lake: LakeFormat) -> None:
    table = lake.open(KEYED)
    for offset, change in enumerate([keyed(a=1, b=2), keyed(c=3), keyed(b=4)]):
        table.refresh()
        table.upsert(change, SOURCE, {0: offset})
    lake.compact()
    assert len(lake.files()) == 1
    with pytest.raises(LakeConflictError):
        table.upsert(keyed(a=5), SOURCE, {0: 3})
    table.refresh()
    assert table.offsets(SOURCE) == {0: 2}
    table.upsert(keyed(a=5, deleted=["c"]), SOURCE, {0: 3})
    assert rows_of(lake, "_key, n") == [("a", 5), ("b", 4)]


def test_new_columns_are_added_and_old_ones_stay(lake: LakeFormat) -> None:
    lake.open(SCHEMA).append(some(1), SOURCE, {0: 1})
    wider = pa.schema([("_key", pa.string()), ("place", pa.struct([("x", pa.int64())]))])
    table = lake.open(wider)
    rows = pa.Table.from_pylist([{"_key": "2", "place": {"x": 7}}], schema=wider)
    table.append(rows, SOURCE, {0: 2})
    assert rows_of(lake, "_key, n, place.x") == [("1", 1, None), ("2", None, 7)]


def test_a_column_of_another_type_is_an_error(lake: LakeFormat) -> None:
    lake.open(SCHEMA).append(some(1), SOURCE, {0: 1})
    text = pa.schema([("_key", pa.string()), ("n", pa.string())])
    table = lake.open(text)
    rows = pa.Table.from_pylist([{"_key": "2", "n": "two"}], schema=text)
    with pytest.raises(StreamsError, match=r"orders.* has the column n of the type int32, and .* string\. Change"):
        table.append(rows, SOURCE, {0: 2})
    assert len(rows_of(lake)) == 1


def test_a_table_takes_narrower_numbers_than_its_own(lake: LakeFormat) -> None:
    wide = pa.schema([("_key", pa.string()), ("n", pa.int64())])
    lake.open(wide).append(some(1, schema=wide), SOURCE, {0: 1})
    table = lake.open(SCHEMA)
    table.append(some(2), SOURCE, {0: 2})
    assert rows_of(lake) == [("1", 1), ("2", 2)]


@pytest.mark.parametrize(
    ("stored", "new", "fits"),
    [
        (pa.large_string(), pa.string(), True),
        (pa.int32(), pa.int64(), False),
        (pa.list_(pa.int64()), pa.list_(pa.int32()), True),
        (pa.list_(pa.string()), pa.list_(pa.int32()), False),
        (pa.map_(pa.string(), pa.float64()), pa.map_(pa.string(), pa.float32()), True),
        (pa.map_(pa.string(), pa.string()), pa.map_(pa.int32(), pa.string()), False),
        (pa.struct([("x", pa.int64())]), pa.struct([("y", pa.string())]), True),
        (pa.struct([("x", pa.int64())]), pa.struct([("x", pa.string())]), False),
    ],
)
def test_types_fit_by_their_parts(stored: pa.DataType, new: pa.DataType, fits: bool) -> None:
    old, now = pa.schema([("n", stored)]), pa.schema([("n", new)])
    if fits:
        check_columns("the table", old, now)
    else:
        with pytest.raises(StreamsError, match="the table has the column n of the type"):
            check_columns("the table", old, now)


def test_names_of_tables_show_no_secrets() -> None:
    iceberg, delta = Iceberg("a.b", properties={"token": "secret"}), Delta("s3://a", {"key": "secret"})
    assert "secret" not in f"{iceberg} {iceberg!r} {delta} {delta!r}"
    assert (str(iceberg), str(delta)) == ("the Iceberg table a.b of the catalog default", "the Delta table s3://a")


def test_an_upsert_replaces_and_deletes_rows_by_key(lake: LakeFormat) -> None:
    table = lake.open(KEYED)
    for offset, change in enumerate([keyed(a=1, b=2, c=3), keyed(a=4, d=5, deleted=["b", "x"]), keyed(deleted=["c"])]):
        table.refresh()
        table.upsert(change, SOURCE, {0: offset})
        assert lake.open(KEYED).offsets(SOURCE) == {0: offset}
    assert rows_of(lake, "_key, n") == [("a", 4), ("d", 5)]


def test_an_upsert_that_changes_no_row_keeps_its_offsets(lake: LakeFormat) -> None:
    table = lake.open(KEYED)
    for offset in (1, 2):
        table.refresh()
        table.upsert(keyed(deleted=["x"]), SOURCE, {0: offset})
    assert lake.open(KEYED).offsets(SOURCE) == {0: 2}
    assert rows_of(lake) == []


def test_an_upsert_on_an_older_version_changes_nothing(lake: LakeFormat) -> None:
    first, second = lake.open(KEYED), lake.open(KEYED)
    first.upsert(keyed(a=1), SOURCE, {0: 2})
    for change in (keyed(a=2), keyed(deleted=["a"]), keyed(deleted=["x"])):
        with pytest.raises(LakeConflictError, match="Another program has changed"):
            second.upsert(change, SOURCE, {0: 3})
    second.refresh()
    assert second.offsets(SOURCE) == {0: 2}
    assert rows_of(lake, "_key, n") == [("a", 1)]


def test_an_upsert_adds_new_columns(lake: LakeFormat) -> None:
    lake.open(KEYED).upsert(keyed(a=1, b=2), SOURCE, {0: 1})
    wider = KEYED.append(pa.field("place", pa.struct([("x", pa.int64())])))
    table = lake.open(wider)
    rows = [{"_key": "b", "n": 3, "_timestamp": NOW, "place": {"x": 7}}]
    none = pa.schema([KEYED.field("_key")]).empty_table()
    table.upsert(KeyedRows(pa.Table.from_pylist(rows, schema=wider), none, ("_key",)), SOURCE, {0: 2})
    assert rows_of(lake, "_key, n, place.x") == [("a", 1, None), ("b", 3, 7)]


def test_an_upsert_of_a_table_without_the_columns_of_the_key_is_an_error(lake: LakeFormat) -> None:
    lake.open(pa.schema([("n", pa.int32())]))
    table = lake.open(KEYED)
    with pytest.raises(StreamsError, match=r"orders.* has no column _key, by which its rows are replaced"):
        table.upsert(keyed(a=1), SOURCE, {0: 1})


def test_an_upsert_of_a_table_that_another_program_has_made(lake: LakeFormat) -> None:
    """Its key may be null, and have several rows: an update replaces all of them."""
    lake.open(SCHEMA)
    lake.append_elsewhere(some(1, 1, 2))
    table = lake.open(KEYED)
    table.upsert(keyed(**{"1": 7}), SOURCE, {0: 1})
    assert rows_of(lake, "_key, n") == [("1", 7), ("2", 2)]


def test_rows_that_may_lack_a_required_value_are_an_error(lake: LakeFormat) -> None:
    lake.open(KEYED)
    table = lake.open(SCHEMA)
    with pytest.raises(StreamsError, match="requires a value of the column _key, which the records may lack"):
        table.append(some(1), SOURCE, {0: 1})


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [False, True]),
        (pa.int32(), [-1, 2]),
        (pa.int64(), [2, 2**40]),
        (pa.string(), ["", "it's `so`"]),
        (pa.binary(), [b"\x00", b"\xff"]),
        (pa.date32(), [date(2026, 1, 2), date(2026, 1, 3)]),
        (TIME, [NOW, NOW.replace(microsecond=7)]),
        (pa.decimal128(38, 18), [Decimal("0.5"), Decimal(2)]),
    ],
)
def test_rows_are_found_by_keys_of_each_type(lake: LakeFormat, kind: pa.DataType, values: list[Any]) -> None:
    schema = KEYED.set(0, pa.field("_key", kind, nullable=False))
    table = lake.open(schema)
    for number in (1, 2):
        rows = pa.Table.from_pylist([{"_key": each, "n": number, "_timestamp": NOW} for each in values], schema=schema)
        table.refresh()
        table.upsert(KeyedRows(rows, pa.schema([schema.field(0)]).empty_table(), ("_key",)), SOURCE, {0: number})
    assert rows_of(lake, "_key, n") == [(each, 2) for each in values]


def test_rows_are_found_by_all_columns_of_a_key(lake: LakeFormat) -> None:
    """Values of two keys meet in a third one, whose row stays."""
    fields = [pa.field(name, pa.string(), nullable=False) for name in ("_key_a", "_key_b")]
    schema = pa.schema([*fields, ("n", pa.int32()), ("place", pa.struct([("x", pa.int64())])), ("_timestamp", TIME)])
    keys, none = ("_key_a", "_key_b"), pa.schema(fields).empty_table()

    def rows(**numbers: int) -> pa.Table:
        made = [
            {"_key_a": key[0], "_key_b": key[1], "n": n, "place": {"x": n}, "_timestamp": NOW}
            for key, n in numbers.items()
        ]
        return pa.Table.from_pylist(made, schema=schema)

    table = lake.open(schema)
    table.upsert(KeyedRows(rows(ax=1, ay=2, bx=3, by=4), none, keys), SOURCE, {0: 1})
    table.refresh()
    table.upsert(KeyedRows(rows(ax=5), rows(by=0).select(list(keys)), keys), SOURCE, {0: 2})
    assert rows_of(lake, "_key_a, _key_b, n, place.x") == [("a", "x", 5, 5), ("a", "y", 2, 2), ("b", "x", 3, 3)]
    assert lake.open(schema).offsets(SOURCE) == {0: 2}
