"""A dictionary column is a list to whoever reads it, whatever was taken, cut or put together."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.record import DictionaryColumn, RecordBatch, column_of, entries_of, rows_of
from penstock.serdes import Serdes, columns
from penstock.serdes.columns import FEW_ROWS, ROWS_BEFORE_ARROW, distinct, distinct_texts

ENTRIES = [b"a", b"bc", None, b"", "\u00e9".encode()]
places = st.lists(st.integers(0, len(ENTRIES) - 1), max_size=30)


def column(of: list[int]) -> DictionaryColumn[Any]:
    return DictionaryColumn.of(ENTRIES, np.array(of, np.int32))


def batch(of: list[int]) -> RecordBatch:
    keys = column(of)
    return RecordBatch(keys, keys, np.arange(len(of), dtype=np.int64), np.arange(len(of), dtype=np.int64))


@given(places)
def test_it_reads_as_the_list_of_its_rows(of: list[int]) -> None:
    found, rows = column(of), [ENTRIES[place] for place in of]
    assert (len(found), list(found), rows_of(found), found[:]) == (len(rows), rows, rows, rows)
    assert [found[index] for index in range(len(rows))] == rows
    assert all((entry in found) == (entry in rows) for entry in [*ENTRIES, b"other"])


@given(places)
def test_its_distinct_entries_are_those_that_arrow_finds_in_the_list(of: list[int]) -> None:
    known, where = distinct(column(of))
    expected, expected_where = distinct(list(column(of)))
    assert known == expected
    assert where.tolist() == expected_where.tolist()
    assert set(known) <= set(entries_of(column(of)))


@given(places)
def test_few_rows_have_the_distinct_entries_that_arrow_finds_in_many(of: list[int]) -> None:
    rows = list(column(of))
    texts = [None if entry is None else entry.decode() for entry in rows]
    for entries, where in (distinct(rows), distinct_texts(texts)):
        assert [entries[place] for place in where.tolist()] == rows
    repeats = FEW_ROWS + 1
    for few, many in (
        (distinct(rows), distinct(rows * repeats)),
        (distinct_texts(texts), distinct_texts(texts * repeats)),
    ):
        assert many[0] == few[0]
        assert many[1].tolist() == few[1].tolist() * repeats
        assert many[1].dtype == few[1].dtype


def test_arrow_is_loaded_only_where_large_columns_come_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[str] = []

    def load() -> ModuleType:
        loads.append("pyarrow")
        return pyarrow

    monkeypatch.delitem(sys.modules, "pyarrow")
    monkeypatch.setattr(columns, "arrow", load)
    monkeypatch.setattr(columns, "_rows_without_arrow", 0)
    rows = [b"a", b"b"] * FEW_ROWS
    for _ in range(ROWS_BEFORE_ARROW // len(rows)):
        assert distinct(rows)[0] == [b"a", b"b"]
    assert not loads
    assert distinct(rows)[0] == [b"a", b"b"]
    assert loads


def test_columns_of_any_size_are_worked_on_without_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pyarrow")
    monkeypatch.setattr(columns, "_is_installed", lambda: False)
    monkeypatch.setattr(columns, "_rows_without_arrow", ROWS_BEFORE_ARROW)
    entries, where = distinct([b"a", None] * FEW_ROWS)
    assert (entries, where.tolist()) == ([b"a", None], [0, 1] * FEW_ROWS)
    assert "pyarrow" not in sys.modules


@given(places, st.data())
def test_batches_of_it_are_cut_taken_and_put_together_as_lists_are(of: list[int], data: st.DataObject) -> None:
    whole, rows = batch(of), [ENTRIES[place] for place in of]
    start, stop = sorted((data.draw(st.integers(0, len(of))), data.draw(st.integers(0, len(of)))))
    assert list(whole.slice(start, stop).keys) == rows[start:stop]
    chosen = data.draw(st.lists(st.integers(0, len(of) - 1), max_size=20) if of else st.just([]))
    taken = whole.take(np.array(chosen, np.int64))
    assert list(taken.keys) == [rows[index] for index in chosen]
    other = DictionaryColumn.of([b"new", b"bc"], np.array([1, 0, 1], np.int32))
    both = RecordBatch.concat([taken, RecordBatch(other, other, np.zeros(3, np.int64), np.zeros(3, np.int64))])
    assert list(both.keys) == [*taken.keys, b"bc", b"new", b"bc"]
    assert both.values is both.keys
    plain = [b"x"]
    mixed = RecordBatch.concat([taken, RecordBatch(plain, plain, np.zeros(1, np.int64), np.zeros(1, np.int64))])
    assert list(mixed.keys) == [*taken.keys, b"x"]


def test_few_entries_make_a_dictionary_and_many_a_list() -> None:
    assert isinstance(column_of([b"a"], np.zeros(2, np.int32)), DictionaryColumn)
    assert column_of([b"a", b"b"], np.array([1, 0, 1], np.int32)) == [b"b", b"a", b"b"]


@given(places)
def test_texts_are_read_from_it_as_from_a_list(of: list[int]) -> None:
    serde = Serdes.string()
    assert serde.deserialize_column("t", column(of)) == serde.deserialize_column("t", list(column(of)))
