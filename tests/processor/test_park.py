"""Operators that park the records on which their functions fail, in the test driver, in both executions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock import Backoff, Consumed, KStream, Park, Processor, Record, Serdes, StreamsBuilder
from penstock.errors import StreamsError
from penstock.exception_handlers import (
    DEAD_LETTER_QUEUE_TOPIC,
    ErrorHandlerContext,
    LogAndContinueProcessingExceptionHandler,
    ProcessingExceptionHandler,
    Response,
)
from penstock.record import Headers
from penstock.serdes import StringSerde
from penstock.state.memory import MemoryBase
from penstock.testing import TestRecord, TopologyTestDriver
from tests.task.topologies import batch_of, sent, task_of

STRING = Serdes.string()
PARK = Park(backoff=Backoff(1_000), attempts=3)
HEADERS = (("trace", b"7"),)


class Service:
    """A function that fails for the keys and values that are down."""

    def __init__(self) -> None:
        self.down: set[Any] = set()
        self.calls: list[tuple[Any, Any]] = []

    def check(self, key: Any, value: Any) -> None:
        self.calls.append((key, value))
        if not self.down.isdisjoint((key, value)):
            raise ConnectionError(f"no answer for {value}")

    def upper(self, key: Any, value: Any) -> Any:
        self.check(key, value)
        return value.upper()


@pytest.fixture
def service() -> Service:
    return Service()


class Driven:
    """A driver of one operator between the topics in and out."""

    def __init__(self, build: Callable[[KStream[Any, Any]], KStream[Any, Any] | None], **config: Any) -> None:
        builder = StreamsBuilder()
        built = build(builder.stream("in"))
        if built is not None:
            built.to("out")
        settings = {"application.id": "app", "default.key.serde": STRING, "default.value.serde": STRING, **config}
        self.driver = TopologyTestDriver(builder.build(), settings, 0)
        self.input = self.driver.create_input_topic("in", STRING, STRING)
        self.written = 0

    def pipe(self, *texts: str) -> None:
        """Write each text; its first letter is the key, "-" for null, and its timestamp the number of the record."""
        for text in texts:
            key = None if text[0] == "-" else text[0]
            self.input.pipe_input(TestRecord(key, text, self.written, HEADERS))
            self.written += 1

    def wait(self, milliseconds: int) -> None:
        self.driver.advance_wall_clock_time(milliseconds)

    def read(self, topic: str = "out") -> list[TestRecord[Any, Any]]:
        return self.driver.create_output_topic(topic, STRING, STRING).read_records_to_list()

    def parked(self) -> int:
        """Return the number of records in the store of the operator, which has no name of its own."""
        store: Any = self.driver.get_key_value_store("KSTREAM-MAPVALUES-0000000001-parked")
        return len(list(store.all()))

    def values(self, topic: str = "out") -> list[Any]:
        return [each.value for each in self.read(topic)]


@pytest.fixture(params=["auto", "record"])
def drive(request: pytest.FixtureRequest) -> Iterator[Callable[..., Driven]]:
    drivers: list[TopologyTestDriver] = []

    def driven(build: Callable[[KStream[Any, Any]], KStream[Any, Any] | None], **config: Any) -> Driven:
        made = Driven(build, **{"penstock.execution": request.param, **config})
        drivers.append(made.driver)
        return made

    yield driven
    for driver in drivers:
        driver.close()


Drive = Callable[..., Driven]


def test_a_record_that_fails_and_later_ones_of_its_key_wait(drive: Drive, service: Service) -> None:
    driven = drive(lambda stream: stream.map_values(service.upper, on_error=PARK))
    service.down.add("a")
    driven.pipe("a1", "b1", "a2", "b2")
    assert driven.values() == ["B1", "B2"]
    assert service.calls == [("a", "a1"), ("b", "b1"), ("b", "b2")]
    service.down.clear()
    driven.wait(999)
    assert driven.values() == []
    driven.pipe("a3")
    driven.wait(1)
    expected = [TestRecord("a", text, time, HEADERS) for text, time in (("A1", 0), ("A2", 2), ("A3", 4))]
    assert driven.read() == expected
    driven.pipe("a4")
    assert driven.values() == ["A4"]


def test_the_waits_grow_and_each_record_has_its_own_attempts(drive: Drive, service: Service) -> None:
    park = Park(backoff=Backoff(1_000, factor=3, limit=5_000), attempts=10)
    driven = drive(lambda stream: stream.map_values(service.upper, on_error=park))
    service.down.add("a")
    driven.pipe("a1", "a2")
    for wait in (1_000, 3_000, 5_000, 5_000):
        calls = len(service.calls)
        driven.wait(wait - 1)
        assert len(service.calls) == calls
        driven.wait(1)
        assert service.calls[calls:] == [("a", "a1")]
    service.down = {"a2"}
    driven.wait(5_000)
    assert driven.values() == ["A1"]
    calls = len(service.calls)
    driven.wait(1_000)  # the first wait again
    assert service.calls[calls:] == [("a", "a2")]


OPERATORS: list[tuple[str, Callable[[KStream[Any, Any], Service], KStream[Any, Any] | None], list[Any]]] = [
    ("map", lambda stream, s: stream.map(lambda k, v: (k, s.upper(k, v)), on_error=PARK), [("a", "A1"), ("a", "A2")]),
    ("map_values", lambda stream, s: stream.map_values(s.upper, on_error=PARK), [("a", "A1"), ("a", "A2")]),
    (
        "map_values of the value",
        lambda stream, s: stream.map_values(lambda value: s.upper(value[0], value), on_error=PARK),
        [("a", "A1"), ("a", "A2")],
    ),
    (
        "flat_map",
        lambda stream, s: stream.flat_map(lambda k, v: [(v, k), (v, s.upper(k, v))], on_error=PARK),
        [("a1", "a"), ("a1", "A1"), ("a2", "a"), ("a2", "A2")],
    ),
    (
        "flat_map_values",
        lambda stream, s: stream.flat_map_values(lambda k, v: [v, s.upper(k, v)], on_error=PARK),
        [("a", "a1"), ("a", "A1"), ("a", "a2"), ("a", "A2")],
    ),
    (
        "filter",
        lambda stream, s: stream.filter(lambda k, v: s.upper(k, v) == "A1", on_error=PARK),
        [("a", "a1")],
    ),
    (
        "filter_not",
        lambda stream, s: stream.filter_not(lambda k, v: s.upper(k, v) == "A1", on_error=PARK),
        [("a", "a2")],
    ),
    ("peek", lambda stream, s: stream.peek(s.check, on_error=PARK), [("a", "a1"), ("a", "a2")]),
    ("select_key", lambda stream, s: stream.select_key(s.upper, on_error=PARK), [("A1", "a1"), ("A2", "a2")]),
    ("foreach", lambda stream, s: stream.foreach(s.check, on_error=PARK), []),
]


@pytest.mark.parametrize(("build", "expected"), [row[1:] for row in OPERATORS], ids=[row[0] for row in OPERATORS])
def test_each_operator_parks(
    drive: Drive,
    service: Service,
    build: Callable[[KStream[Any, Any], Service], KStream[Any, Any] | None],
    expected: list[tuple[str, str]],
) -> None:
    driven = drive(lambda stream: build(stream, service))
    service.down.add("a")
    driven.pipe("a1", "a2")
    assert service.calls == [("a", "a1")]
    service.down.clear()
    driven.wait(1_000)
    assert service.calls == [("a", "a1"), ("a", "a1"), ("a", "a2")]
    if expected:
        assert [(each.key, each.value) for each in driven.read()] == expected


def test_results_before_an_error_are_not_forwarded(drive: Drive, service: Service) -> None:
    def results(key: str, value: str) -> Iterator[str]:
        yield value
        yield service.upper(key, value)

    driven = drive(lambda stream: stream.flat_map_values(results, on_error=PARK))
    service.down.add("a")
    driven.pipe("a1")
    assert driven.values() == []
    service.down.clear()
    driven.wait(1_000)
    assert driven.values() == ["a1", "A1"]


def test_functions_below_see_the_context_of_the_record(drive: Drive, service: Service) -> None:
    places: list[Any] = []

    class Below(Processor[str, str, str, str]):
        def process(self, record: Record[str, str]) -> None:
            places.append((record.value, record.timestamp, record.headers, self.context.record_metadata))
            self.context.forward(record)

    driven = drive(lambda stream: stream.map_values(service.upper, on_error=PARK).process(Below))
    service.down.add("a")
    driven.pipe("b0", "a1")
    service.down.clear()
    driven.wait(1_000)
    assert places == [("B0", 0, HEADERS, ("in", 0, 0)), ("A1", 1, HEADERS, ("in", 0, 1))]
    assert driven.values() == ["B0", "A1"]


def test_a_record_that_fails_each_time_is_a_dead_letter_with_the_bytes_of_its_source(
    drive: Drive, service: Service
) -> None:
    park = Park(backoff=Backoff(1_000), attempts=2, then="letters")
    driven = drive(lambda stream: stream.map_values(lambda v: f"{v}!").map_values(service.upper, on_error=park))
    service.down.add("a")
    driven.pipe("b1", "a1", "a2")
    driven.wait(1_000)
    (letter,) = driven.read("letters")
    assert (letter.key, letter.value, letter.timestamp) == ("a", "a1", 1)
    said = dict(letter.headers)
    assert said["trace"] == b"7"
    assert said["__streams.errors.exception"] == b"builtins.ConnectionError"
    assert said["__streams.errors.message"] == b"no answer for a1!"
    assert b"in upper" in (said["__streams.errors.stacktrace"] or b"")
    assert said["__streams.errors.topic"] == b"in"
    assert said["__streams.errors.partition"] == b"0"
    assert said["__streams.errors.offset"] == b"1"
    service.down.clear()
    driven.wait(1_000)
    assert driven.values() == ["B1!", "A2!"]
    assert driven.driver.dropped_records() == 1
    metrics = {name.name: metric.metric_value for name, metric in driven.driver.metrics().items()}
    assert metrics["dead-letter-records-total"] == 1


def test_one_attempt_does_not_park(drive: Drive, service: Service) -> None:
    park = Park(backoff=Backoff(1_000), attempts=1, then="letters")
    driven = drive(lambda stream: stream.map_values(service.upper, on_error=park))
    service.down.add("a")
    driven.pipe("a1", "a2")
    assert driven.values("letters") == ["a1", "a2"]


def test_the_handler_decides_after_the_last_attempt(drive: Drive, service: Service) -> None:
    driven = drive(
        lambda stream: stream.map_values(service.upper, on_error=PARK),
        **{
            "processing.exception.handler": LogAndContinueProcessingExceptionHandler(),
            DEAD_LETTER_QUEUE_TOPIC: "queue",
        },
    )
    service.down.add("a")
    driven.pipe("a1", "a2")
    driven.wait(1_000)
    driven.wait(2_000)
    (letter,) = driven.read("queue")
    assert (letter.key, letter.value, dict(letter.headers)["__streams.errors.offset"]) == ("a", "a1", b"0")
    service.down.clear()
    driven.wait(1_000)
    assert driven.values() == ["A2"]


def test_the_default_handler_fails_with_the_place_of_the_record(drive: Drive, service: Service) -> None:
    driven = drive(lambda stream: stream.map_values(service.upper, on_error=PARK, named="charge"))
    service.down.add("a")
    driven.pipe("b1", "a1")
    driven.wait(1_000)
    with pytest.raises(StreamsError, match=r"processor=charge, topic=in, partition=0, offset=1") as raised:
        driven.wait(2_000)
    assert isinstance(raised.value.__cause__, ConnectionError)
    assert raised.value.__cause__.__notes__ == ["This was the last of 3 attempts (on_error)."]
    assert raised.value.failed_record is not None
    assert raised.value.failed_record[1:] == ("in", 0, 1, "'a'", "'a1'")


class Asked(ProcessingExceptionHandler):
    """Continues, and keeps the contexts and records."""

    def __init__(self) -> None:
        self.asked: list[tuple[ErrorHandlerContext, Any, Exception]] = []

    def handle_error(self, context: ErrorHandlerContext, record: Any, error: Exception) -> Response:
        self.asked.append((context, record, error))
        return Response.resume()


def test_a_full_store_leaves_errors_to_the_handler(drive: Drive, service: Service) -> None:
    handler = Asked()
    park = Park(backoff=Backoff(1_000), attempts=3, max_records=2)
    driven = drive(
        lambda stream: stream.map_values(service.upper, on_error=park, named="charge"),
        **{"processing.exception.handler": handler},
    )
    service.down.update("ab")
    driven.pipe("a1", "a2", "a3", "b1", "c1")
    assert driven.values() == ["C1"]
    full, failed = (error for _, _, error in handler.asked)
    assert str(full).startswith("Store 'charge-parked' is full: it has 2 of 2 records and ")
    assert "The record with key 'a' cannot wait in it for an earlier one of its key. Correct the cause" in str(full)
    assert isinstance(failed, ConnectionError)
    assert failed.__notes__[0].startswith("Store 'charge-parked' is full and cannot keep the record: it has 2 of 2 ")
    service.down.clear()
    driven.wait(1_000)
    assert driven.values() == ["A1", "A2"]


def test_a_store_that_is_full_by_size_takes_no_more(drive: Drive, service: Service) -> None:
    park = Park(backoff=Backoff(1_000), attempts=3, max_bytes=1)
    driven = drive(lambda stream: stream.map_values(service.upper, on_error=park))
    service.down.add("a")
    driven.pipe("a1")
    with pytest.raises(StreamsError) as raised:
        driven.pipe("a2")
    assert "of 1 bytes" in str(raised.value.__cause__)


def test_null_keys_do_not_wait_for_each_other(drive: Drive, service: Service) -> None:
    driven = drive(lambda stream: stream.map_values(service.upper, on_error=PARK))
    service.down.add("-1")
    driven.pipe("-1", "-2")
    assert driven.values() == ["-2"]
    service.down.clear()
    driven.wait(1_000)
    assert [(each.key, each.value) for each in driven.read()] == [(None, "-1")]


def test_an_error_below_does_not_park(drive: Drive, service: Service) -> None:
    below = Service()
    handler = Asked()
    driven = drive(
        lambda stream: stream.map_values(service.upper, on_error=PARK).map_values(below.upper, named="below"),
        **{"processing.exception.handler": handler},
    )
    service.down.add("a")
    driven.pipe("a1", "a2")
    service.down.clear()
    below.down.add("A1")
    driven.wait(1_000)
    assert driven.values() == ["A2"]
    ((context, record, _),) = handler.asked
    assert (context.processor_node_id, context.offset, context.source_raw_value) == ("below", 0, b"a1")
    assert (record.value, record.timestamp) == ("A1", 0)


def test_a_late_record_below_is_written_with_its_source(drive: Drive, service: Service) -> None:
    """`late_to` of an operator below finds the source record, although it comes from the store."""

    def build(stream: KStream[Any, Any]) -> KStream[Any, Any]:
        charged = stream.map_values(service.upper, on_error=PARK)
        return charged.deduplicate_by_key(timedelta(hours=1)).late_to("duplicates")

    driven = drive(build)
    service.down.add("a")
    driven.pipe("a1", "a2")
    service.down.clear()
    driven.wait(1_000)
    assert driven.values() == ["A1"]
    (duplicate,) = driven.read("duplicates")
    assert (duplicate.value, dict(duplicate.headers)["penstock.dropped.offset"]) == ("a2", b"1")


def test_a_missing_serde_is_reported_before_the_first_record() -> None:
    builder = StreamsBuilder()
    builder.stream("in").foreach(print, named="charge", on_error=PARK)
    config = {"application.id": "app", "default.key.serde": STRING}
    with pytest.raises(StreamsError) as raised:
        TopologyTestDriver(builder.build(), config)
    assert "value serde" in str(raised.value.__cause__ or raised.value)


def test_a_value_that_the_serde_does_not_write_goes_to_the_handler(drive: Drive, service: Service) -> None:
    driven = drive(lambda stream: stream.map_values(lambda value: 7).foreach(service.check, on_error=PARK))
    service.down.add("a")
    with pytest.raises(StreamsError) as raised:
        driven.pipe("a1")
    cause = str(raised.value.__cause__)
    assert "KSTREAM-FOREACH-0000000002-parked' cannot keep the value 7 of a record that must wait: StringSerde" in cause
    assert "Name the serde of the values in Park, with value_serde=." in cause


def test_park_names_the_serdes_of_its_store(drive: Drive, service: Service) -> None:
    park = PARK.with_value_serde(Serdes.long())
    driven = drive(
        lambda stream: stream.map_values(lambda value: 7).peek(service.check, on_error=park).map_values(str),
    )
    service.down.add("a")
    driven.pipe("a1")
    service.down.clear()
    driven.wait(1_000)
    assert driven.values() == ["7"]


class Unreadable(StringSerde):
    """Writes texts, and does not read them for a while."""

    fails = True

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> str:
        if self.fails:
            raise ValueError("another layout")
        return super().deserialize(topic, data, headers)


def test_a_waiting_record_that_cannot_be_read_keeps_waiting(drive: Drive, service: Service) -> None:
    handler, serde = Asked(), Unreadable()
    driven = drive(
        lambda stream: stream.map_values(service.upper, on_error=PARK.with_value_serde(serde)),
        **{"processing.exception.handler": handler},
    )
    service.down.add("a")
    driven.pipe("a1")
    service.down.clear()
    driven.wait(1_000)
    ((_, record, error),) = handler.asked
    assert record is None
    assert "has a waiting record whose value Unreadable cannot read (another layout): run the program with" in str(
        error
    )
    driven.pipe("b1", "a2")
    assert driven.values() == ["B1"]
    serde.fails = False
    driven.wait(1_000)
    assert driven.values() == ["A1", "A2"]


def test_a_retry_tries_the_first_records_at_once_with_all_their_attempts(drive: Drive, service: Service) -> None:
    driven = drive(lambda stream: stream.map_values(service.upper, on_error=PARK, named="charge"))
    service.down.update("ab")
    driven.pipe("a1", "b1", "a2")
    driven.wait(1_000)
    calls = len(service.calls)
    driven.driver.retry_parked("charge-parked", ["a"])
    assert service.calls[calls:] == [("a", "a1")]
    driven.wait(999)
    assert len(service.calls) == calls + 1
    service.down.remove("a")
    driven.wait(1)  # after the wait of a first failure
    assert driven.values() == ["A1", "A2"]
    service.down.clear()
    driven.driver.retry_parked("charge-parked")
    assert driven.values() == ["B1"]


def test_a_dropped_record_is_a_dead_letter_with_its_source(drive: Drive, service: Service) -> None:
    park = Park(backoff=Backoff(1_000), attempts=3, then="letters", store_name="waiting")
    driven = drive(lambda stream: stream.map_values(lambda v: f"{v}!").map_values(service.upper, on_error=park))
    service.down.update("ab")
    driven.pipe("a1", "b1", "a2")
    driven.driver.drop_parked("waiting", ["a"])
    letters = driven.read("letters")
    assert [(each.key, each.value, each.timestamp) for each in letters] == [("a", "a1", 0), ("a", "a2", 2)]
    first, second = (dict(each.headers) for each in letters)
    assert first["trace"] == b"7"
    assert first["__streams.errors.message"] == (
        b"Dropped on request after 1 failed attempt. The first error was: ConnectionError: no answer for a1!"
    )
    assert second["__streams.errors.message"] == (
        b"Dropped on request; the record waited for an earlier one of its key."
    )
    assert [first["__streams.errors.offset"], second["__streams.errors.offset"]] == [b"0", b"2"]
    service.down.clear()
    driven.pipe("a3")
    driven.wait(1_000)
    assert driven.values() == ["A3!", "B1!"]


def test_a_dropped_record_without_a_topic_for_dead_letters_is_counted(
    drive: Drive, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    driven = drive(lambda stream: stream.map_values(service.upper, on_error=PARK, named="charge"))
    service.down.update(("a", "b", None))
    driven.pipe("a1", "-1", "b1", "a2")
    driven.driver.drop_parked("charge-parked", ["a", None])
    assert driven.driver.dropped_records() == 3
    assert "app: store 'charge-parked' of task 0_0, as requested, drops 3 parked records." in caplog.text
    driven.driver.drop_parked("charge-parked")
    assert driven.driver.dropped_records() == 4
    service.down.clear()
    driven.wait(10_000)
    assert service.calls == [("a", "a1"), (None, "-1"), ("b", "b1")]


def test_a_request_for_no_record_does_nothing(drive: Drive, service: Service, caplog: pytest.LogCaptureFixture) -> None:
    driven = drive(lambda stream: stream.map_values(service.upper, on_error=PARK, named="charge"))
    driven.driver.drop_parked("charge-parked")
    driven.driver.retry_parked("charge-parked", [])
    driven.pipe("a1")
    assert driven.values() == ["A1"]
    assert driven.driver.dropped_records() == 0
    place = "app: store 'charge-parked' of task 0_0"
    assert f"{place} has no parked record that waited at the time of the request to drop: it changes" in caplog.text
    assert f"{place} has no parked record of the keys [] that waited at the time of the" in caplog.text
    assert "requested" not in caplog.text


def test_other_stores_have_no_requests(drive: Drive, service: Service) -> None:
    driven = drive(lambda stream: stream.map_values(service.upper, on_error=PARK, named="charge"))
    with pytest.raises(ValueError, match="'other' has no parked records; those with parked records: charge-parked"):
        driven.driver.drop_parked("other", ["a"])


def test_a_text_is_no_list_of_keys(drive: Drive, service: Service) -> None:
    driven = drive(lambda stream: stream.map_values(service.upper, on_error=PARK, named="charge"))
    service.down.add("a")
    driven.pipe("a1")
    with pytest.raises(TypeError, match=r"the keys of store 'charge-parked' as a list, got 'a': write \['a'\]\."):
        driven.driver.retry_parked("charge-parked", "a")
    with pytest.raises(TypeError, match=r"got b'a': write \[b'a'\]\."):
        driven.driver.drop_parked("charge-parked", b"a")
    assert service.calls == [("a", "a1")]


def test_a_key_without_parked_records_is_refused(drive: Drive, service: Service) -> None:
    driven = drive(lambda stream: stream.map_values(service.upper, on_error=PARK, named="charge"))
    with pytest.raises(ValueError, match=r"no parked record of the key 'k9'. The keys with parked records: none\."):
        driven.driver.retry_parked("charge-parked", ["k9"])
    service.down.update(("a", "b", None))
    driven.pipe("a1", "-1", "b1", "a2")
    with pytest.raises(ValueError, match=r"Store 'charge-parked' has no .* the key 'k9'. .*: 'a', 'b', None") as caught:
        driven.driver.drop_parked("charge-parked", ["a", "k9"])
    assert str(caught.value).endswith("'b', None.")
    assert driven.driver.dropped_records() == 0


def test_a_waiting_record_that_cannot_be_read_is_dropped(drive: Drive, service: Service) -> None:
    park = Park(backoff=Backoff(1_000), attempts=3, then="letters", value_serde=Unreadable())
    driven = drive(lambda stream: stream.map_values(service.upper, on_error=park, named="charge"))
    service.down.add("a")
    driven.pipe("a1")
    driven.driver.drop_parked("charge-parked")
    assert driven.values("letters") == ["a1"]


def test_requests_do_not_advance_stream_time(drive: Drive, service: Service) -> None:
    """A request has the time of the wall clock, and a window below must not close by it."""

    def build(stream: KStream[Any, Any]) -> KStream[Any, Any]:
        charged = stream.map_values(service.upper, on_error=PARK, named="charge")
        return charged.deduplicate_by_key(timedelta(milliseconds=50)).late_to("duplicates")

    driven = drive(build)
    driven.pipe("a1")
    driven.wait(1_000)
    driven.driver.retry_parked("charge-parked")
    driven.pipe("a2")
    assert driven.values() == ["A1"]
    assert driven.values("duplicates") == ["a2"]


def test_many_waiting_records_take_several_punctuations(drive: Drive, service: Service) -> None:
    driven = drive(lambda stream: stream.map_values(service.upper, on_error=PARK))
    service.down.add("a")
    driven.pipe(*(f"a{number}" for number in range(1_500)))
    service.down.clear()
    driven.wait(1_000)
    assert driven.values() == [f"A{number}" for number in range(1_000)]
    driven.wait(1)
    assert driven.values() == [f"A{number}" for number in range(1_000, 1_500)]


def test_a_metric_counts_the_parked_records(drive: Drive, service: Service) -> None:
    driven = drive(lambda stream: stream.map_values(service.upper, on_error=PARK, named="charge"))

    def parked() -> dict[str, Any]:
        metrics = driven.driver.metrics().items()
        return {
            name.tags["processor-node-id"]: each.metric_value for name, each in metrics if name.name == "parked-records"
        }

    service.down.add("a")
    driven.pipe("b1", "a1", "a2")
    assert parked() == {"charge": 2}
    service.down.clear()
    driven.wait(1_000)
    assert parked() == {"charge": 0}


@pytest.mark.parametrize("restarts", [False, True])
def test_no_record_waits_longer_than_the_backoff_though_the_clock_went_back(service: Service, restarts: bool) -> None:
    park = Park(backoff=Backoff(1_000, limit=4_000), attempts=10)
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(STRING, STRING)).map_values(service.upper, on_error=park).to("out")
    base, ten_years = MemoryBase(), 10 * 365 * 86_400_000
    task = task_of(builder.build(), base=base)
    task.advance_wall_clock(ten_years)
    service.down.add("a")
    task.add_records("in", 0, batch_of(("a", "a1", 0)))
    task.process()
    if restarts:
        base.apply(task.changes(), b"1")
        task = task_of(builder.build(), base=base)
    service.down.clear()
    task.advance_wall_clock(10_000)
    assert [value for _, _, value, _ in sent(task)] == ["A1"]


class Model(RuleBasedStateMachine):
    """Compares the operator with an interpreter that takes the records of each key one after the other."""

    @initialize()
    def begin(self) -> None:
        self.service = Service()
        park = Park(backoff=Backoff(100, factor=2, limit=400), attempts=3, then="letters")
        self.driven = Driven(lambda stream: stream.map_values(self.service.upper, on_error=park))
        self.lines: dict[str, list[tuple[str, int, int]]] = {}  # text, attempts, due
        self.results: list[str] = []
        self.letters: list[str] = []
        self.found: list[str] = []
        self.buried: list[str] = []
        self.now = 0

    @rule(key=st.sampled_from("ab"))
    def fail(self, key: str) -> None:
        self.service.down.add(key)

    @rule()
    def recover(self) -> None:
        self.service.down.clear()

    @rule(key=st.sampled_from("abc"))
    def pipe(self, key: str) -> None:
        text = f"{key}{self.driven.written}"
        self.driven.pipe(text)
        line = self.lines.setdefault(key, [])
        line.append((text, 0, self.now))
        if len(line) == 1:
            self.run(key)

    @rule(wait=st.sampled_from([1, 50, 100, 200, 400, 1_000]))
    def wait(self, wait: int) -> None:
        self.driven.wait(wait)
        self.now += wait
        for key in sorted(self.lines, key=lambda key: int(self.lines[key][0][0][1:]) if self.lines[key] else 0):
            self.run(key)

    def run(self, key: str) -> None:
        """Try the records of a key until one has to wait."""
        line = self.lines[key]
        while line and line[0][2] <= self.now:
            text, attempts, _ = line[0]
            if key not in self.service.down:
                self.results.append(text.upper())
            elif attempts + 1 == 3:
                self.letters.append(text)
            else:
                line[0] = text, attempts + 1, self.now + 100 * 2**attempts
                break
            line.pop(0)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "driven"):
            return
        self.found += self.driven.values()
        self.buried += self.driven.values("letters")
        assert (self.found, self.buried) == (self.results, self.letters)
        assert self.driven.parked() == sum(map(len, self.lines.values()))

    def teardown(self) -> None:
        if hasattr(self, "driven"):
            self.driven.driver.close()


TestModel = Model.TestCase
