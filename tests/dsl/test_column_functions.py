"""Operators with functions on columns: the same bytes as with functions on rows, in both executions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Backoff, Consumed, KStream, Park, Produced, Serde, Serdes, StreamsBuilder, Topology, vectorized
from penstock.errors import StreamsError
from penstock.exception_handlers import LogAndContinueProcessingExceptionHandler
from penstock.record import ArrayColumn, RecordBatch
from penstock.serdes.format import read_type
from penstock.testing import TopologyTestDriver
from tests.task.topologies import batch_of, sent, task_of

STRING, DOUBLE, LONG = Serdes.string(), Serdes.double(), Serdes.long()
CONTINUE = {"processing.exception.handler": LogAndContinueProcessingExceptionHandler}
EXECUTIONS = ("auto", "record")

Stream = KStream[Any, Any]
Build = Callable[[Stream], Stream]


def topology_of(build: Build, read: Serde, written: Serde) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(key_serde=STRING, value_serde=read))
    # where the task continues after errors, a node above a sink works record by record
    build(stream).filter(lambda key, value: True).to("out", Produced.with_(key_serde=STRING, value_serde=written))
    return builder.build()


def run(build: Build, read: Serde, written: Serde, batch: RecordBatch, execution: str) -> list[Any]:
    """Return key, value, timestamp and headers of the output, as bytes."""
    task = task_of(topology_of(build, read, written), execution=execution, config=CONTINUE)
    task.add_records("in", 0, batch)
    task.process()
    return [(each.key, each.value, each.timestamp, each.headers) for each in task.drain_in_order()]


def twice(value: float) -> float:
    return value * 2


def twice_or_null(value: float | None) -> float | None:
    return None if value is None else value * 2


@vectorized
def twice_in_lists(values: list[float | None]) -> list[float | None]:
    return [twice_or_null(value) for value in values]


def twice_in_numpy(values: np.ndarray) -> np.ndarray:
    return values * 2


def twice_in_pandas(values: pd.Series) -> pd.Series:
    return values * 2


def twice_in_arrow(values: pa.Array) -> pa.Array:
    return pc.multiply(values, pa.scalar(2, values.type) if values.type != pa.null() else 2)


def twice_in_polars(values: pl.Series) -> pl.Series:
    return values * 2


def marked(value: str | None) -> str | None:
    return None if value is None else value + "!"


def marked_in_arrow(values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(values, "!", "")


def marked_in_polars(values: pl.Series) -> pl.Series:
    return values + "!"


def marked_in_numpy(values: np.ndarray) -> np.ndarray:
    return values + "!"


def marked_in_pandas(values: pd.Series) -> pd.Series:
    return values + "!"


def longer(key: str | None, value: str | None) -> bool:
    return len(key or "") > len(value or "")


@vectorized
def longer_in_lists(keys: list[str | None], values: list[str | None]) -> list[bool]:
    return list(map(longer, keys, values))


def longer_in_arrow(keys: pa.StringArray, values: pa.StringArray) -> pa.Array:
    lengths = [pc.fill_null(pc.utf8_length(column), 0) for column in (keys, values)]
    return pc.greater(*lengths)


def longer_in_polars(keys: pl.Series, values: pl.Series) -> pl.Series:
    return keys.str.len_chars().fill_null(0) > values.str.len_chars().fill_null(0)


def longer_in_numpy(keys: np.ndarray, values: np.ndarray) -> npt.NDArray[np.bool_]:
    return np.array(list(map(longer, keys, values)), np.bool_)


def joined(key: str | None, value: str | None) -> str | None:
    return None if key is None or value is None else key + value


def joined_in_arrow(keys: pa.StringArray, values: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise(keys, values, "")


def joined_in_polars(keys: pl.Series, values: pl.Series) -> pl.Series:
    return keys + values


def characters(value: str | None) -> list[str]:
    return list(value or "")


def characters_in_arrow(values: pa.StringArray) -> pa.Array:
    return pa.array([characters(value) for value in values.to_pylist()], pa.list_(pa.string()))


def characters_in_polars(values: pl.Series) -> pl.Series:
    return pl.Series([characters(value) for value in values], dtype=pl.List(pl.String))


@vectorized
def characters_in_lists(values: list[str | None]) -> list[list[str]]:
    return [characters(value) for value in values]


def by(method: str, function: Callable[..., Any]) -> Build:
    return lambda stream: getattr(stream, method)(function)


TWICE_OR_NULL = [twice_in_lists, twice_in_arrow, twice_in_polars, twice_in_pandas]

CASES = [
    (method, row, column, read, written)
    for method, row, read, written, columns in (
        ("map_values", twice, DOUBLE, DOUBLE, [twice_in_numpy]),
        ("map_values", twice_or_null, DOUBLE, DOUBLE, TWICE_OR_NULL),
        ("map_values", twice, LONG, LONG, [twice_in_numpy]),
        ("map_values", twice_or_null, LONG, LONG, TWICE_OR_NULL),
        ("map_values", lambda value: value + "!", STRING, STRING, [marked_in_numpy]),
        ("map_values", marked, STRING, STRING, [marked_in_arrow, marked_in_polars, marked_in_pandas]),
        ("map_values", joined, STRING, STRING, [joined_in_arrow, joined_in_polars]),
        ("select_key", joined, STRING, STRING, [joined_in_arrow, joined_in_polars]),
        ("filter", longer, STRING, STRING, [longer_in_lists, longer_in_arrow, longer_in_polars, longer_in_numpy]),
        ("filter_not", longer, STRING, STRING, [longer_in_lists, longer_in_arrow, longer_in_polars, longer_in_numpy]),
        ("flat_map_values", characters, STRING, STRING,
         [characters_in_lists, characters_in_arrow, characters_in_polars]),
    )
    for column in columns
]  # fmt: skip

VALUES: dict[type, st.SearchStrategy[Any]] = {
    float: st.floats(),
    int: st.integers(-(2**40), 2**40),
    str: st.text(max_size=3),
}


@pytest.mark.parametrize(("method", "row", "column", "read", "written"), CASES)
@given(data=st.data())
def test_columns_give_the_bytes_of_rows(
    method: str, row: Any, column: Any, read: Serde, written: Serde, data: st.DataObject
) -> None:
    kind = read_type(read)
    assert kind is not None
    keys = st.none() | st.text(max_size=2)
    headers = st.sampled_from([(), (("h", b"1"),)])
    rows = data.draw(st.lists(st.tuples(keys, st.none() | VALUES[kind], st.integers(0, 99), headers), max_size=60))
    batch = RecordBatch.of(
        [
            (None if k is None else k.encode(), None if v is None else read.serialize("in", v), time, offset, own)
            for offset, (k, v, time, own) in enumerate(rows)
        ]
    )
    expected = run(by(method, row), read, written, batch, "record")
    assert run(by(method, row), read, written, batch, "auto") == expected
    for execution in EXECUTIONS:
        assert run(by(method, column), read, written, batch, execution) == expected


def in_arrow(values: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(values, 0.5), 1)


def in_floats(values: pa.Array) -> pa.Array:
    return values.cast(pa.float32())


def in_polars(values: pl.Series) -> pl.Series:
    return values / 3


def in_numpy(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    values += 1  # its own array
    return values


def in_pandas(values: pd.Series) -> pd.Series:
    return values * 1.5


@vectorized
def in_lists(values: list[float | None]) -> list[float | None]:
    return [None if value is None else value / 7 for value in values]


def as_texts(keys: pa.Array, values: pa.Array) -> pa.StringArray:
    return pc.coalesce(pc.cast(values, pa.string()), keys.cast(pa.string()), "none")


FLOATS = [in_arrow, in_floats, in_polars, in_numpy, in_pandas, in_lists]


@given(
    functions=st.lists(st.sampled_from(FLOATS), max_size=5),
    rows=st.lists(st.tuples(st.none() | st.text(max_size=2), st.none() | st.floats(width=32)), max_size=40),
    keyed=st.booleans(),
)
def test_functions_hand_arrays_to_each_other_as_they_hand_rows(
    functions: list[Any], rows: list[tuple[str | None, float | None]], keyed: bool
) -> None:
    def build(stream: Stream) -> Stream:
        for function in functions:
            stream = stream.map_values(function)
        return stream.select_key(as_texts).filter_not(lambda key, value: key == "1") if keyed else stream

    batch = RecordBatch.of(
        [
            (None if k is None else k.encode(), None if v is None else DOUBLE.serialize("in", v), row, row, ())
            for row, (k, v) in enumerate(rows)
        ]
    )
    assert run(build, DOUBLE, DOUBLE, batch, "auto") == run(build, DOUBLE, DOUBLE, batch, "record")


def test_no_row_becomes_an_object_between_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(column: ArrayColumn[Any]) -> Any:
        raise AssertionError("an object for each row")

    def words(values: pa.StringArray) -> pa.ListArray:
        return pc.utf8_split_whitespace(values)

    def by_word(keys: pa.StringArray, values: pa.StringArray) -> pa.StringArray:
        return values

    def build(stream: Stream) -> Stream:
        return stream.flat_map_values(words).map_values(marked_in_arrow).select_key(by_word).repartition()

    builder = StreamsBuilder()
    build(builder.stream("in", Consumed.with_(STRING, STRING))).to("out", Produced.with_(STRING, STRING))
    task = task_of(builder.build(), first_of_several=True)
    task.add_records("in", 0, batch_of(*[(None, "one two", row) for row in range(30)]))
    with monkeypatch.context() as patch:
        patch.setattr(ArrayColumn, "rows", rows)
        task.process()
    assert [value for _, _, value, _ in sent(task)] == ["one!", "two!"] * 30


@pytest.mark.parametrize("method", ["peek", "foreach"])
@pytest.mark.parametrize("execution", EXECUTIONS)
def test_an_action_gets_keys_and_values(method: str, execution: str) -> None:
    calls: list[tuple[list[str], list[str]]] = []

    def action(keys: pa.Array, values: pa.Array) -> None:
        calls.append((keys.to_pylist(), values.to_pylist()))

    builder = StreamsBuilder()
    getattr(builder.stream("in"), method)(action)
    task = task_of(builder.build(), execution=execution)
    task.add_records("in", 0, batch_of(*[(str(row), f"v{row}", row) for row in range(30)]))
    task.process()
    assert len(calls) == (1 if execution == "auto" else 30)
    assert [key for keys, _ in calls for key in keys] == [str(row) for row in range(30)]
    assert [value for _, values in calls for value in values] == [f"v{row}" for row in range(30)]


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_grouping_by_a_column_counts(execution: str) -> None:
    def first_letters(keys: pa.Array, values: pa.Array) -> pa.StringArray:
        return pc.utf8_slice_codeunits(values, 0, 1)

    builder = StreamsBuilder()
    builder.stream("in").group_by(first_letters).count().to_stream().to("out")
    with TopologyTestDriver(
        builder.build(),
        {"default.key.serde": STRING, "default.value.serde": STRING, "penstock.execution": execution},
    ) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_value_list(["apple", "pear", "avocado"])
        assert driver.create_output_topic("out", STRING, LONG).read_key_values_to_map() == {"a": 2, "p": 1}


def refusing(values: pa.Array) -> pa.Array:
    if pc.any(pc.equal(values, "bad")).as_py():
        raise ValueError("a bad value")
    return values


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("rows", [3, 60])
def test_only_the_records_at_fault_are_dead_letters(execution: str, rows: int) -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(refusing).filter(lambda key, value: True).to("out")
    config = {**CONTINUE, "errors.dead.letter.queue.topic.name": "dead"}
    task = task_of(builder.build(), execution=execution, config=config)
    values = ["bad" if row in (1, rows - 1) else f"v{row}" for row in range(rows)]
    task.add_records("in", 0, batch_of(*[("k", value, row) for row, value in enumerate(values)]))
    task.process()
    assert [(topic, value) for topic, _, value, _ in sent(task)] == [
        ("dead" if value == "bad" else "out", value) for value in values
    ]


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_an_error_names_the_record_at_fault(execution: str) -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(refusing, "check").to("out")
    task = task_of(builder.build(), execution=execution)
    values = ["bad" if row == 17 else "good" for row in range(40)]
    task.add_records("in", 0, batch_of(*[("k", value, row) for row, value in enumerate(values)], first_offset=100))
    with pytest.raises(StreamsError, match=r"processor=check.*topic=in.*partition=0.*offset=117") as raised:
        task.process()
    assert isinstance(raised.value.__cause__, ValueError)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_wrong_length_fails_whatever_the_handler_says(execution: str) -> None:
    def total(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values, values])

    builder = StreamsBuilder()
    builder.stream("in").map_values(total, "sum").filter(lambda key, value: True).to("out")
    task = task_of(builder.build(), execution=execution, config=CONTINUE)
    task.add_records("in", 0, batch_of(*[("k", "v", row) for row in range(30)], first_offset=7))
    rows = 30 if execution == "auto" else 1
    with pytest.raises(StreamsError, match=r"processor=sum.*topic=in.*partition=0.*offset=7") as raised:
        task.process()
    assert f"returned a column of length {2 * rows} where length {rows} was expected" in str(raised.value.__cause__)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_record_at_fault_is_parked_and_tried_again_alone(execution: str) -> None:
    calls: list[list[str]] = []
    down = ["b"]

    @vectorized
    def charge(values: list[str]) -> list[str]:
        calls.append(values)
        if values[0] in down:
            raise ConnectionError
        return [f"{value} charged" for value in values]

    builder = StreamsBuilder()
    park = Park(backoff=Backoff(1_000), attempts=3)
    builder.stream("in", Consumed.with_(STRING, STRING)).map_values(charge, on_error=park).to(
        "out", Produced.with_(STRING, STRING)
    )
    with TopologyTestDriver(builder.build(), {"penstock.execution": execution}) as driver:
        source = driver.create_input_topic("in", STRING, STRING)
        output = driver.create_output_topic("out", STRING, STRING)
        for value in "abc":
            source.pipe_input(value, value)
        assert output.read_values_to_list() == ["a charged", "c charged"]
        down.clear()
        driver.advance_wall_clock_time(1_000)
        assert output.read_values_to_list() == ["b charged"]
    assert calls == [["a"], ["b"], ["c"], ["b"]]


def test_the_annotation_of_a_result_selects_its_serde() -> None:
    @vectorized
    def halves(values: list[str]) -> list[float]:
        return [len(value) / 2 for value in values]

    @vectorized
    def words(values: list[str]) -> list[list[str]]:
        return [value.split() for value in values]

    def lengths(keys: pa.StringArray, values: pa.StringArray) -> npt.NDArray[np.float64]:
        return pc.utf8_length(values).to_numpy() / 2

    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(STRING, STRING))
    stream.map_values(halves).to("halves")
    stream.flat_map_values(words).to("words")
    stream.select_key(lengths).to("keyed")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input("k", "one three")
        assert driver.create_output_topic("halves", STRING, DOUBLE).read_value() == 4.5
        assert driver.create_output_topic("words", STRING, STRING).read_values_to_list() == ["one", "three"]
        assert driver.create_output_topic("keyed", DOUBLE, STRING).read_key_value().key == 4.5


@pytest.mark.parametrize(
    ("build", "form"),
    [
        (lambda stream: stream.filter(twice_in_arrow), r"predicate\(key, value\)"),
        (lambda stream: stream.select_key(twice_in_arrow), r"mapper\(key, value\)"),
        (lambda stream: stream.map(joined_in_arrow), "takes whole columns"),
        (lambda stream: stream.flat_map(joined_in_arrow), "takes whole columns"),
        (lambda stream: stream.split().branch(longer_in_lists), "takes whole columns"),
        (lambda stream: stream.to_table().map_values(twice_in_arrow), "takes whole columns"),
    ],
)
def test_what_a_function_on_columns_cannot_be_is_refused(build: Callable[[Stream], Any], form: str) -> None:
    with pytest.raises(TypeError, match=form):
        build(StreamsBuilder().stream("in"))


def test_an_operator_refuses_a_function_of_columns_and_single_values() -> None:
    def mixed(key: str, values: np.ndarray) -> np.ndarray:
        return values

    with pytest.raises(TypeError, match="mixed takes a column, values, and a single value, key"):
        StreamsBuilder().stream("in").map_values(mixed)


def test_a_coroutine_function_on_columns_is_refused() -> None:
    async def later(values: pa.Array) -> pa.Array:
        return values

    with pytest.raises(TypeError, match="coroutine function"):
        StreamsBuilder().stream("in").map_values(later)


def test_an_array_of_numpy_may_be_the_value_of_one_record() -> None:
    def added(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return one + other

    StreamsBuilder().stream("in").group_by_key().reduce(added)
