"""The topics of a TopologyTestDriver, for input and output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar, overload

from penstock.extras import load
from penstock.host.inline.inline_host import ProducedRecord
from penstock.notebook import Forms, table
from penstock.record import Headers, KeyValue, checked_headers
from penstock.serdes import Serde
from penstock.tabular import Tabular
from penstock.testing.record import TestRecord
from penstock_broker.common.durations import Duration, milliseconds

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.state.query.arrow_frames import ArrowStream, InterchangeFrame

K = TypeVar("K")
V = TypeVar("V")

_NOT_GIVEN: Final = object()
"""The default of a missing argument, since None means null."""


class Driver(Protocol):
    """The methods of the driver used by topics."""

    def pipe_bytes(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()
    ) -> None:
        """Process one record completely."""
        ...

    def read_bytes(self, topic: str) -> ProducedRecord:
        """Return the next record of `topic`."""
        ...

    def unread_bytes(self, topic: str) -> list[ProducedRecord]:
        """Return the unread records of `topic`; they stay unread."""
        ...

    def queue_size(self, topic: str) -> int:
        """Return the number of unread records of `topic`."""
        ...


class TestInputTopic(Generic[K, V]):
    """A topic to pipe records into (Kafka class: TestInputTopic); created by `create_input_topic`.

    See `TopologyTestDriver.create_input_topic` for the arguments.
    """

    __test__: ClassVar[bool] = False

    def __init__(
        self,
        driver: Driver,
        topic: str,
        key_serde: Serde,
        value_serde: Serde,
        start_timestamp: int,
        auto_advance_ms: int,
    ) -> None:
        if auto_advance_ms < 0:
            raise ValueError(f"auto_advance_ms must be 0 or more, got {auto_advance_ms}.")
        self._driver = driver
        self._topic = topic
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._current_time = start_timestamp
        self._auto_advance_ms = auto_advance_ms

    def advance_time(self, advance_ms: Duration) -> None:
        """Advance the time of later records by `advance_ms`; raises ValueError for a negative step."""
        step = milliseconds(advance_ms, "advance_ms")
        if step < 0:
            raise ValueError(f"advance_ms must be 0 or more, got {advance_ms}.")
        self._current_time += step

    @overload
    def pipe_input(self, record: TestRecord[K, V], /) -> None: ...

    @overload
    def pipe_input(self, value: V, /, *, timestamp: int | None = None, headers: Headers = ()) -> None: ...

    @overload
    def pipe_input(
        self, key: K | None = None, value: V | None = None, timestamp: int | None = None, headers: Headers = ()
    ) -> None: ...

    def pipe_input(
        self, key: Any = _NOT_GIVEN, value: Any = _NOT_GIVEN, timestamp: int | None = None, headers: Headers = ()
    ) -> None:
        """Process one record completely: `pipe_input(key, value)`, `pipe_input(value)` or `pipe_input(record)`.

        Args:
            key: the key, None for null.
            value: the value, None for null.
            timestamp: time in ms; None for the time of this topic, which then advances by auto_advance_ms.
            headers: pairs of name and bytes.

        Raises:
            ValueError: the topology does not read the topic, or the timestamp is negative.
            TypeError: the timestamp is not a whole number, such as the float seconds of time.time().
            StreamsError: a processor failed.
        """
        if isinstance(key, TestRecord):
            self._pipe(key)
        elif value is _NOT_GIVEN:
            self._pipe(TestRecord(None, None if key is _NOT_GIVEN else key, timestamp, headers))
        else:
            self._pipe(TestRecord(None if key is _NOT_GIVEN else key, value, timestamp, headers))

    def pipe_record_list(self, records: Iterable[TestRecord[K, V]]) -> None:
        """Process `records` in order."""
        for record in records:
            self._pipe(record)

    def pipe_key_value_list(
        self, key_values: Iterable[tuple[K, V]], start_timestamp: int | None = None, advance_ms: Duration = 0
    ) -> None:
        """Process a record for each (key, value).

        Args:
            key_values: pairs of key and value.
            start_timestamp: the time of the first record in ms; None for the time of this topic, with its own advance.
            advance_ms: the time between two records, if start_timestamp is given.
        """
        step = milliseconds(advance_ms, "advance_ms")
        for index, (key, value) in enumerate(key_values):
            time = None if start_timestamp is None else start_timestamp + index * step
            self._pipe(TestRecord(key, value, time))

    def pipe_value_list(
        self, values: Iterable[V], start_timestamp: int | None = None, advance_ms: Duration = 0
    ) -> None:
        """Process a record without a key for each value; times are as in `pipe_key_value_list`."""
        step = milliseconds(advance_ms, "advance_ms")
        for index, value in enumerate(values):
            time = None if start_timestamp is None else start_timestamp + index * step
            self._pipe(TestRecord(None, value, time))

    def pipe_frame(
        self,
        frame: ArrowStream | InterchangeFrame,
        key: str | Sequence[str] | None = None,
        value: str | Sequence[str] | None = None,
        timestamp: str | None = None,
        headers: str | None = None,
    ) -> None:
        """Process the rows of a pandas, polars, pyarrow or DuckDB frame as records, in order.

        Args:
            frame: any object with `__arrow_c_stream__` or `__dataframe__`; read one batch of rows at a time.
            key: the column of the keys; several make a dict. None: the column `key`, null keys without it.
            value: the column of the values; several make a dict. None: the column `value`. Serdes of dataclasses and
                pydantic models accept dicts.
            timestamp: the column of the timestamps, in ms or as a time type (UTC without a zone). None: the column
                `timestamp`. Rows without a timestamp have the time of this topic, which then advances by
                auto_advance_ms.
            headers: the column of the headers: lists of `key` and `value`, or maps. None: the column `headers`.

        Raises:
            TypeError: `frame` is not a dataframe, or the type of a column is invalid for timestamps or headers.
            ValueError: the frame has no column of that name, the topology does not read the topic, or a timestamp is
                negative.
            StreamsError: a processor failed.
        """
        rows = load("penstock.testing.frames", "pipe_frame()").rows_of(frame, key, value, timestamp, headers)
        for number, row in enumerate(rows):
            try:
                self._pipe(TestRecord(*row))
            except Exception as error:
                error.add_note(f"Row {number} of the frame was piped into topic {self._topic!r}.")
                raise

    def _pipe(self, record: TestRecord[Any, Any]) -> None:
        timestamp = record.timestamp
        if timestamp is None:
            timestamp = self._current_time
            self._current_time += self._auto_advance_ms
        topic, headers = self._topic, checked_headers(record.headers)
        key = value = None
        if record.key is not None:
            key, headers = self._key_serde.serialize_record(topic, record.key, headers)
        if record.value is not None:
            value, headers = self._value_serde.serialize_record(topic, record.value, headers)
        self._driver.pipe_bytes(topic, key, value, timestamp, headers)

    def __repr__(self) -> str:
        return f"TestInputTopic({self._topic!r}, {type(self._key_serde).__name__}, {type(self._value_serde).__name__})"


class TestOutputTopic(Tabular, Generic[K, V]):
    """A topic to read results from (Kafka class: TestOutputTopic); created by `create_output_topic`.

    See `TopologyTestDriver.create_output_topic` for the arguments.

    As a table it has the unread records, and leaves them unread: `key`, `window_start` and `window_end` of windowed
    keys, `value`, `timestamp`, `headers`.
    """

    __test__: ClassVar[bool] = False

    def __init__(self, driver: Driver, topic: str, key_serde: Serde, value_serde: Serde) -> None:
        self._driver = driver
        self._topic = topic
        self._key_serde = key_serde
        self._value_serde = value_serde

    def read_record(self) -> TestRecord[K, V]:
        """Return the next record; raises LookupError if the topic is empty."""
        return self._record(self._driver.read_bytes(self._topic))

    def _record(self, record: ProducedRecord) -> TestRecord[K, V]:
        topic, headers = self._topic, record.headers
        key: Any = _read(self._key_serde, topic, record.key, headers)
        value: Any = _read(self._value_serde, topic, record.value, headers)
        return TestRecord(key, value, record.timestamp, headers)

    def read_value(self) -> V:
        """Return the value of the next record; raises LookupError if the topic is empty."""
        return self.read_record().value

    def read_key_value(self) -> KeyValue:
        """Return key and value of the next record; raises LookupError if the topic is empty."""
        record = self.read_record()
        return KeyValue(record.key, record.value)

    def read_records_to_list(self) -> list[TestRecord[K, V]]:
        """Return all unread records."""
        return [self.read_record() for _ in range(self.get_queue_size())]

    def read_key_values_to_list(self) -> list[KeyValue]:
        """Return keys and values of all unread records."""
        return [KeyValue(record.key, record.value) for record in self.read_records_to_list()]

    def read_key_values_to_map(self) -> dict[K, V]:
        """Return each key's last value in the unread records; raises RuntimeError for a null key."""
        result: dict[K, V] = {}
        while not self.is_empty():
            record = self.read_record()
            if record.key is None:
                raise RuntimeError("Null keys not allowed with read_key_values_to_map method")
            result[record.key] = record.value
        return result

    def read_values_to_list(self) -> list[V]:
        """Return the values of all unread records."""
        return [record.value for record in self.read_records_to_list()]

    def get_queue_size(self) -> int:
        """Return the number of unread records."""
        return self._driver.queue_size(self._topic)

    def is_empty(self) -> bool:
        """Return whether all records have been read."""
        return self.get_queue_size() == 0

    def _arrow_reader(self) -> pa.RecordBatchReader:
        columns = load("penstock.state.query.columns", "A table")
        own = columns.record_columns(self._key_serde, self._value_serde)
        batches = columns.record_batches(own, self._unread())
        return load("pyarrow", "A table").RecordBatchReader.from_batches(columns.schema_of(own), batches)

    def _title(self) -> str:
        return f"Output topic {self._topic}"

    def _table(self, limit: int) -> Forms:
        columns = load("penstock.state.query.columns", "A table")
        own = columns.record_columns(self._key_serde, self._value_serde)
        return table(
            self._title(), {"unread": str(self.get_queue_size())}, columns.first_rows(own, self._unread(), limit)
        )

    def _unread(self) -> Iterator[tuple[Any, TestRecord[K, V]]]:
        """Return an iterator over the currently unread records, with their keys."""
        unread = self._driver.unread_bytes(self._topic)
        return ((record.key, record) for record in map(self._record, unread))

    def __repr__(self) -> str:
        return f"TestOutputTopic({self._topic!r}, {type(self._key_serde).__name__}, {type(self._value_serde).__name__})"


def _read(serde: Serde, topic: str, data: bytes | None, headers: Headers) -> Any:
    """Deserialize `data`; errors of the serde have a note with the topic."""
    try:
        return None if data is None else serde.deserialize(topic, data, headers)
    except Exception as error:
        error.add_note(
            f"Output topic {topic!r} has {data!r:.100}, which {type(serde).__name__} cannot read: pass the serde with "
            "which the topology writes it to create_output_topic."
        )
        raise
