"""Topics of the test driver and frames: records that are piped in from one, and those that were written as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pydantic import BaseModel, Field

from penstock import Consumed, Produced, Serde, Serdes, StreamsBuilder
from penstock.errors import SerializationError
from penstock.notebook import HTML, TEXT
from penstock.serdes.windowed import WindowedSerdes
from penstock.testing import TestInputTopic, TestOutputTopic, TestRecord, TopologyTestDriver
from penstock.windows import TimeWindow, Windowed
from tests.support.frames import rows_for_all

STRING, LONG, JSON = Serdes.string(), Serdes.long(), Serdes.json()


class Topics:
    """A topology that copies a topic, and its topics."""

    def __init__(self, key_serde: Serde, value_serde: Serde) -> None:
        builder = StreamsBuilder()
        builder.stream("in", Consumed.with_(key_serde, value_serde)).to("out", Produced.with_(key_serde, value_serde))
        self.driver = TopologyTestDriver(builder.build(), initial_wall_clock_ms=7)
        self.input: TestInputTopic[Any, Any] = self.driver.create_input_topic(
            "in", key_serde, value_serde, auto_advance_ms=1
        )
        self.output: TestOutputTopic[Any, Any] = self.driver.create_output_topic("out", key_serde, value_serde)


@pytest.fixture
def topics() -> Iterator[Topics]:
    made = Topics(STRING, LONG)
    with made.driver:
        yield made


class Kind(Enum):
    LARGE = "large"


@dataclass
class Place:
    name: str
    since: date
    inner: Place | None = None


class Order(BaseModel):
    order_id: str = Field(alias="orderId")
    amount: float
    at: datetime
    kind: Kind | None = None
    places: list[Place] = []
    by_name: dict[str, int] = {}
    anything: int | str = 0


@dataclass
class Visit:
    place: Place
    minutes: int


NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("type_", "columns", "value", "row"),
    [
        (
            Order,
            {"orderId": ["o1"], "amount": [1.5], "at": [NOON]},
            Order(orderId="o1", amount=1.5, at=NOON),
            {"orderId": "o1", "amount": 1.5, "at": NOON, "kind": None, "places": [], "by_name": [], "anything": "0"},
        ),
        (
            Visit,
            {"place": [{"name": "Ayr", "since": NOON.date()}], "minutes": [5]},
            Visit(Place("Ayr", NOON.date()), 5),
            {"place": {"name": "Ayr", "since": NOON.date(), "inner": None}, "minutes": 5},
        ),
    ],
)
def test_rows_become_objects_of_classes_and_objects_become_structs(
    type_: Any, columns: dict[str, list[Any]], value: Any, row: dict[str, Any]
) -> None:
    topics = Topics(STRING, Serdes.json(type_))
    with topics.driver:
        frame = pl.DataFrame({"key": ["k"], **columns})
        topics.input.pipe_frame(frame, value=list(columns))
        assert [each["value"] for each in pa.table(topics.output).to_pylist()] == [row]
        assert topics.output.read_value() == value


def test_a_struct_has_all_that_an_object_has() -> None:
    value = Order(
        orderId="o1",
        amount=1.5,
        at=NOON,
        kind=Kind.LARGE,
        places=[Place("Ayr", NOON.date(), Place("Rye", NOON.date()))],
        by_name={"a": 1},
        anything="x",
    )
    topics = Topics(STRING, Serdes.json(Order))
    with topics.driver:
        topics.input.pipe_input("k", value)
        topics.input.pipe_input("k", None)
        first, second = (each["value"] for each in pa.table(topics.output).to_pylist())
    assert second is None
    assert first == {
        "orderId": "o1",
        "amount": 1.5,
        "at": NOON,
        "kind": "large",
        "places": [{"name": "Ayr", "since": NOON.date(), "inner": '{"name":"Rye","since":"2024-01-01","inner":null}'}],
        "by_name": [("a", 1)],
        "anything": '"x"',
    }


def test_a_column_that_a_model_does_not_have_is_named() -> None:
    topics = Topics(STRING, Serdes.json(Order))
    frame = pl.DataFrame({"orderId": ["o1"], "amount": [1.5], "at": [NOON], "ammount": [2.5]})
    with topics.driver, pytest.raises(SerializationError, match="it has no field 'ammount'"):
        topics.input.pipe_frame(frame, value=frame.columns)


def test_an_output_topic_is_a_table_and_stays_unread(topics: Topics) -> None:
    topics.input.pipe_input(TestRecord("a", 1, 1_500, (("h", b"x"), ("h", None))))
    topics.input.pipe_input(None, None, 2_000)
    table = pa.table(topics.output)
    assert rows_for_all(topics.output) == [
        {
            "key": "a",
            "value": 1,
            "timestamp": datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC),
            "headers": [{"key": "h", "value": b"x"}, {"key": "h", "value": None}],
        },
        {"key": None, "value": None, "timestamp": datetime(1970, 1, 1, 0, 0, 2, 0, UTC), "headers": []},
    ]
    given = topics.output._repr_mimebundle_()
    assert given[TEXT].splitlines()[0] == "Output topic out (unread: 2)"
    assert "<td>&#x27;a&#x27;</td><td>1</td><td>1970-01-01 00:00:01.500</td>" in given[HTML]
    assert topics.output.get_queue_size() == 2
    topics.output.read_record()
    assert pa.table(topics.output) == table.slice(1)


def test_a_topic_that_was_never_written_is_an_empty_table(topics: Topics) -> None:
    assert pa.table(topics.output).schema.names == ["key", "value", "timestamp", "headers"]
    assert topics.output.to_pandas().empty
    assert topics.output.to_polars().is_empty()


def test_windowed_keys_have_columns() -> None:
    topics = Topics(WindowedSerdes.time_windowed(STRING, 10), LONG)
    with topics.driver:
        topics.input.pipe_input(Windowed("a", TimeWindow(20, 30)), 1)
        topics.input.pipe_input(None, 2)
        epoch = datetime.fromtimestamp(0, UTC)
        times = {"timestamp": epoch + timedelta(milliseconds=7), "headers": []}
        assert rows_for_all(topics.output) == [
            {
                "key": "a",
                "window_start": epoch + timedelta(milliseconds=20),
                "window_end": epoch + timedelta(milliseconds=30),
                "value": 1,
                **times,
            },
            {
                "key": None,
                "window_start": None,
                "window_end": None,
                "value": 2,
                **times,
                "timestamp": epoch + timedelta(milliseconds=8),
            },
        ]


def test_what_was_written_can_be_piped_in_as_it_is(topics: Topics) -> None:
    records = [TestRecord("a", 1, 1_500, (("h", b"x"),)), TestRecord("b", None, 9), TestRecord(None, 2, 3)]
    topics.input.pipe_record_list(records)
    topics.input.pipe_frame(topics.output)
    assert topics.output.read_records_to_list() == [*records, *records]


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "polars", "duckdb", "interchange"])
def test_rows_are_records(topics: Topics, kind: str) -> None:
    class Interchange:
        """A frame of a library without Arrow."""

        def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
            return frame.__dataframe__(nan_as_null, allow_copy)

    frame = pd.DataFrame({"key": ["a", "b"], "value": [1, 2], "timestamp": [10, 20], "other": [True, False]})
    kinds: dict[str, Callable[[], Any]] = {
        "pandas": lambda: frame,
        "pyarrow": lambda: pa.table(frame),
        "polars": lambda: pl.DataFrame(pa.table(frame)),
        "duckdb": lambda: duckdb.from_arrow(pa.table(frame)),
        "interchange": Interchange,
    }
    topics.input.pipe_frame(kinds[kind]())
    assert topics.output.read_records_to_list() == [TestRecord("a", 1, 10), TestRecord("b", 2, 20)]


def test_columns_have_names_and_several_make_a_dict() -> None:
    topics = Topics(STRING, JSON)
    frame = pa.table({"user": ["u"], "page": ["p"], "ms": [5], "at": pa.array([1_500_999], pa.timestamp("us"))})
    with topics.driver:
        topics.input.pipe_frame(frame, key="user", value=["page", "ms"], timestamp="at")
        assert topics.output.read_record() == TestRecord("u", {"page": "p", "ms": 5}, 1_500)


def test_rows_without_a_timestamp_have_the_time_of_the_topic(topics: Topics) -> None:
    topics.input.pipe_frame(pd.DataFrame({"value": [1, 2, 3], "timestamp": [None, 100.0, None]}))
    assert [record.timestamp for record in topics.output.read_records_to_list()] == [7, 100, 8]


def test_times_and_headers_of_polars_and_duckdb(topics: Topics) -> None:
    frame = pl.DataFrame(
        {
            "key": pl.Series(["a", "b"], dtype=pl.Categorical),
            "value": [1, 2],
            "timestamp": [datetime(2020, 1, 1, tzinfo=UTC), None],
            "headers": [[{"key": "h", "value": b"x"}], []],
        }
    )
    topics.input.pipe_frame(frame)
    topics.input.pipe_frame(
        duckdb.sql("select 'c' as key, 3 as value, timestamp '2020-01-01' as timestamp, map {'h': 'x'} as headers")
    )
    start = 1_577_836_800_000
    assert topics.output.read_records_to_list() == [
        TestRecord("a", 1, start, (("h", b"x"),)),
        TestRecord("b", 2, 7),
        TestRecord("c", 3, start, (("h", b"x"),)),
    ]


def test_what_a_query_of_an_output_topic_returns_can_be_piped_in(topics: Topics) -> None:
    topics.input.pipe_key_value_list([("a", 1), ("b", 2), ("a", 3)])
    out = topics.output
    sums = duckdb.sql("select key, sum(value)::bigint as value from out group by key order by key")
    topics.input.pipe_frame(sums)
    topics.input.pipe_frame(out.to_polars().filter(pl.col("key") == "b").select("key", "value"))
    assert [(record.key, record.value) for record in out.read_records_to_list()[3:]] == [
        ("a", 4), ("b", 2), ("b", 2), ("b", 2),
    ]  # fmt: skip


def test_times_with_a_zone_are_instants(topics: Topics) -> None:
    times = pd.to_datetime(["1970-01-01T01:00:00+01:00", "1970-01-01T00:00:01Z"], utc=True).tz_convert("Asia/Tokyo")
    topics.input.pipe_frame(pd.DataFrame({"value": [1, 2], "timestamp": times}))
    assert [record.timestamp for record in topics.output.read_records_to_list()] == [0, 1_000]


def test_headers_are_structs_or_maps(topics: Topics) -> None:
    headers = pa.array([[("h", b"x")], None], pa.map_(pa.string(), pa.binary()))
    topics.input.pipe_frame(pa.table({"value": [1, 2], "headers": headers}))
    topics.input.pipe_frame(pa.table({"value": [3], "headers": [[{"key": "h", "value": "text"}]]}))
    found = [record.headers for record in topics.output.read_records_to_list()]
    assert found == [(("h", b"x"),), (), (("h", b"text"),)]


def test_errors_say_what_is_wrong_with_a_frame(topics: Topics) -> None:
    wrong: Any = [("a", 1)]
    with pytest.raises(TypeError, match=r"Expected a frame.*got list.*pipe_record_list\(\)"):
        topics.input.pipe_frame(wrong)
    lazy: Any = pl.LazyFrame({"value": [1]})
    with pytest.raises(TypeError, match=r"got LazyFrame\. Call collect\(\) on a lazy frame"):
        topics.input.pipe_frame(lazy)
    frame = pa.table({"a": [1], "b": ["x"]})
    with pytest.raises(ValueError, match=r"^The frame has no column 'value', it has a, b: name that"):
        topics.input.pipe_frame(frame)
    with pytest.raises(ValueError, match=r"^key='k': the frame has no column 'k', it has a, b"):
        topics.input.pipe_frame(frame, key="k", value="a")
    with pytest.raises(TypeError, match="'b' of timestamps has the type string: expected ms, or a timestamp"):
        topics.input.pipe_frame(frame, value="a", timestamp="b")
    with pytest.raises(ValueError, match="'c' of timestamps: expected whole ms"):
        topics.input.pipe_frame(pa.table({"value": [1], "c": [1.5]}), timestamp="c")
    with pytest.raises(TypeError, match="'b' of headers has 'x': expected a list of structs"):
        topics.input.pipe_frame(frame, value="a", headers="b")


def test_an_error_names_the_row(topics: Topics) -> None:
    with pytest.raises(TypeError) as wrong_type:
        topics.input.pipe_frame(pa.table({"key": ["a", "b"], "value": [1.5, 2.5]}))
    assert wrong_type.value.__notes__[-1] == "Row 0 of the frame was piped into topic 'in'."
    with pytest.raises(ValueError, match="Invalid timestamp: -5") as negative:
        topics.input.pipe_frame(pa.table({"value": [1, 2], "timestamp": [5, -5]}))
    assert negative.value.__notes__ == ["Row 1 of the frame was piped into topic 'in'."]
    assert topics.output.read_values_to_list() == [1]
